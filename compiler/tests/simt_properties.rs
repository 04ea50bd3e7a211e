//! Random expressions: the simulator, the printed C text and the simt text all mean what the expression says.
//! The C text is evaluated by a small evaluator that knows C's precedences and nothing of the printer.

#[path = "simt/build.rs"]
mod build;

use build::*;
use girih_compiler::host::HostTensor;
use girih_compiler::ir::simt::*;
use girih_compiler::ir::simt_text;
use girih_compiler::lower::simt_to_cuda::print_kernel;
use girih_compiler::vocab::dtype::{DType, Value};
use girih_compiler::vocab::func::Func;
use girih_compiler::vocab::target::Target;
use girih_dsl::source::Sources;
use proptest::prelude::*;

const VARS: [&str; 3] = ["a", "b", "c"];

fn boxed(e: Expr) -> Box<Expr> {
    Box::new(e)
}

/// Integer expressions whose values stay small enough not to overflow.
fn number() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![(0..3u32).prop_map(|n| v(VarId(n))), (-9..10i32).prop_map(i)];
    leaf.prop_recursive(5, 40, 3, |inner| {
        let ops = [IntOp::Add, IntOp::Sub, IntOp::And, IntOp::Or, IntOp::Xor, IntOp::Min, IntOp::Max];
        let op = prop::sample::select(ops.to_vec());
        prop_oneof![
            (op, inner.clone(), inner.clone()).prop_map(|(op, x, y)| Expr::Int(op, boxed(x), boxed(y))),
            inner.clone().prop_map(|x| Expr::Int(IntOp::Shr, boxed(x), boxed(i(1)))),
            (inner.clone(), -3..4i32).prop_map(|(x, n)| {
                Expr::Int(IntOp::Mul, boxed(Expr::Int(IntOp::And, boxed(x), boxed(i(15)))), boxed(i(n)))
            }),
            (truth(inner.clone()), inner.clone(), inner).prop_map(|(c, x, y)| Expr::Select(
                boxed(c),
                boxed(x),
                boxed(y)
            )),
        ]
    })
}

fn truth(inner: impl Strategy<Value = Expr> + Clone) -> impl Strategy<Value = Expr> {
    use CmpOp::*;
    let op = prop::sample::select(vec![Lt, Le, Gt, Ge, Eq, Ne]);
    let one = (op, inner.clone(), inner).prop_map(|(op, x, y)| Expr::Compare(op, boxed(x), boxed(y)));
    let both = (one.clone(), one.clone(), 0..5u8).prop_map(|(x, y, n)| match n {
        0 => Expr::And(boxed(x), boxed(y)),
        1 => Expr::Or(boxed(x), boxed(y)),
        2 => Expr::Not(boxed(Expr::And(boxed(x), boxed(y)))),
        3 => Expr::Compare(CmpOp::Ne, boxed(x), boxed(y)),
        _ => Expr::Call(Func::Xor, vec![x, Expr::Not(boxed(y))]),
    });
    prop_oneof![one, both]
}

fn eval(e: &Expr, vars: [i32; 3]) -> i64 {
    let sub = |e: &Expr| eval(e, vars);
    match e {
        Expr::Lit(Value::I32(v)) => *v as i64,
        Expr::Var(v) => vars[v.0 as usize] as i64,
        Expr::Int(op, x, y) => binary(
            match op {
                IntOp::Add => "+",
                IntOp::Sub => "-",
                IntOp::Mul => "*",
                IntOp::And => "&",
                IntOp::Or => "|",
                IntOp::Xor => "^",
                IntOp::Shr => ">>",
                IntOp::Min => "min",
                _ => "max",
            },
            sub(x),
            sub(y),
        ),
        Expr::Compare(op, x, y) => binary(
            match op {
                CmpOp::Lt => "<",
                CmpOp::Le => "<=",
                CmpOp::Gt => ">",
                CmpOp::Ge => ">=",
                CmpOp::Eq => "==",
                CmpOp::Ne => "!=",
            },
            sub(x),
            sub(y),
        ),
        Expr::Select(c, x, y) => {
            if sub(c) != 0 {
                sub(x)
            } else {
                sub(y)
            }
        }
        Expr::And(x, y) => binary("&&", sub(x), sub(y)),
        Expr::Or(x, y) => binary("||", sub(x), sub(y)),
        Expr::Not(x) => (sub(x) == 0) as i64,
        Expr::Call(_, args) => (sub(&args[0]) != sub(&args[1])) as i64,
        e => panic!("not generated: {e:?}"),
    }
}

fn binary(op: &str, x: i64, y: i64) -> i64 {
    match op {
        "+" => x + y,
        "-" => x - y,
        "*" => x * y,
        "&" => x & y,
        "|" => x | y,
        "^" => x ^ y,
        ">>" => x >> y,
        "<" => (x < y) as i64,
        "<=" => (x <= y) as i64,
        ">" => (x > y) as i64,
        ">=" => (x >= y) as i64,
        "==" => (x == y) as i64,
        "!=" => (x != y) as i64,
        "&&" => (x != 0 && y != 0) as i64,
        "||" => (x != 0 || y != 0) as i64,
        "min" => x.min(y),
        "max" => x.max(y),
        op => panic!("an operator that is not generated: {op}"),
    }
}

/// C's binary operators, loosest first.
const LEVELS: [&[&str]; 9] =
    [&["||"], &["&&"], &["|"], &["^"], &["&"], &["==", "!="], &["<", "<=", ">", ">="], &[">>"], &["+", "-"]];

struct C<'a> {
    tokens: Vec<&'a str>,
    at: usize,
    vars: [i32; 3],
}

impl<'a> C<'a> {
    fn new(text: &'a str, vars: [i32; 3]) -> C<'a> {
        let mut tokens = Vec::new();
        let mut rest = text.trim();
        while let Some(c) = rest.chars().next() {
            let len = match c {
                c if c.is_ascii_alphanumeric() => {
                    rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len())
                }
                _ if ["||", "&&", "==", "!=", "<=", ">=", ">>"].iter().any(|op| rest.starts_with(op)) => 2,
                _ => 1,
            };
            tokens.push(&rest[..len]);
            rest = rest[len..].trim_start();
        }
        C { tokens, at: 0, vars }
    }

    fn peek(&self) -> &'a str {
        self.tokens.get(self.at).copied().unwrap_or("")
    }

    fn next(&mut self) -> &'a str {
        self.at += 1;
        self.tokens[self.at - 1]
    }

    fn expect(&mut self, token: &str) {
        assert_eq!(self.next(), token);
    }

    fn ternary(&mut self) -> i64 {
        let c = self.level(0);
        if self.peek() != "?" {
            return c;
        }
        self.expect("?");
        let x = self.ternary();
        self.expect(":");
        let y = self.ternary();
        if c != 0 { x } else { y }
    }

    fn level(&mut self, n: usize) -> i64 {
        let Some(ops) = LEVELS.get(n) else { return self.product() };
        let mut x = self.level(n + 1);
        while ops.contains(&self.peek()) {
            let op = self.next();
            let y = self.level(n + 1);
            x = binary(op, x, y);
        }
        x
    }

    fn product(&mut self) -> i64 {
        let mut x = self.unary();
        while self.peek() == "*" {
            self.expect("*");
            x *= self.unary();
        }
        x
    }

    fn unary(&mut self) -> i64 {
        match self.next() {
            "-" => -self.unary(),
            "!" => (self.unary() == 0) as i64,
            "(" => {
                let x = self.ternary();
                self.expect(")");
                x
            }
            f @ ("min" | "max") => {
                self.expect("(");
                let x = self.ternary();
                self.expect(",");
                let y = self.ternary();
                self.expect(")");
                binary(f, x, y)
            }
            "a" => self.vars[0] as i64,
            "b" => self.vars[1] as i64,
            "c" => self.vars[2] as i64,
            number => number.parse().expect("a number"),
        }
    }
}

/// x = a, b, c of each thread; y = the expression.
fn kernel_of(e: &Expr) -> Kernel {
    let mut k = kernel(1, 32);
    let x = Mem::Global(pointer(&mut k, "x", DType::I32, 96, false));
    let y = Mem::Global(pointer(&mut k, "y", DType::I32, 32, true));
    for (n, name) in VARS.into_iter().enumerate() {
        let var = k.var(name, Ty::I32);
        k.body.push(Stmt::Let(var, load(x, add(mul(tid(), i(3)), i(n as i32)))));
    }
    let result = k.var("result", Ty::I32);
    k.body.extend([Stmt::Let(result, e.clone()), Stmt::Store(y, tid(), v(result))]);
    k
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn expressions_mean_the_same_everywhere(e in number(), seed in any::<u32>()) {
        let k = kernel_of(&e);
        let values: Vec<i64> = (0..96u32).map(|n| (seed.wrapping_mul(2 * n + 1) >> 16) as i64 % 41 - 20).collect();
        let vars = |t: usize| std::array::from_fn(|n| values[3 * t + n] as i32);
        let out = run(&program(k.clone()), &[("x", HostTensor::from_i64(DType::I32, &[96], &values))]);
        let got = floats(&out.expect("no error").outputs["y"]);
        let text = print_kernel(&k, Target::parse("sm_80").expect("a target"), &Sources::default());
        let line = text.lines().find_map(|l| l.trim().strip_prefix("const int result = ")).expect("it is declared");
        for t in 0..32 {
            let want = eval(&e, vars(t));
            prop_assert_eq!(got[t] as i64, want, "the simulator at thread {}", t);
            let mut c = C::new(line.trim_end_matches(';'), vars(t));
            prop_assert_eq!(c.ternary(), want, "{}", line);
            prop_assert_eq!(c.at, c.tokens.len(), "{}", line);
        }
        let simt = simt_text::print(&k);
        let back = simt_text::parse(&simt).expect("its own text is read");
        prop_assert_eq!(format!("{:?}", back[0]), format!("{k:?}"));
    }
}
