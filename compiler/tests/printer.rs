//! The CUDA C printer: text of statements and expressions, names, helpers.

#[path = "simt/build.rs"]
mod build;
#[path = "simt/zoo.rs"]
mod zoo;

use build::*;
use expect_test::{Expect, expect};
use girih_compiler::ir::simt::*;
use girih_compiler::lower::simt_to_cuda::{print, print_kernel};
use girih_compiler::vocab::dtype::{DType, Value};
use girih_compiler::vocab::func::Func;
use girih_compiler::vocab::target::{TARGETS, Target};
use girih_dsl::ast::Span;
use girih_dsl::source::Sources;

fn target(name: &str) -> &'static Target {
    Target::parse(name).expect("a target of the table")
}

#[test]
fn a_kernel() {
    let mut sources = Sources::default();
    let file = sources.add("add.tile", "op f() {\n    y[i] = x[i] + 1 \\\n}\n");
    let mut k = Kernel { name: "girih_f_y".into(), ..kernel(4, 128) };
    let x = Mem::Global(pointer(&mut k, "x", DType::BF16, 512, false));
    let y = Mem::Global(pointer(&mut k, "y", DType::BF16, 512, true));
    let scale = k.param("scale", ParamKind::Scalar(Ty::F32));
    let (at, acc, j) = (k.var("i", Ty::I32), k.var("acc", Ty::F32), k.var("j", Ty::I32));
    k.body = vec![
        Stmt::Let(at, add(mul(bid(), i(128)), tid())),
        Stmt::Line(Span { file, start: 13, end: 20 }),
        Stmt::Let(acc, f(0.0)),
        Stmt::For {
            var: j,
            lo: i(0),
            hi: i(4),
            step: i(1),
            unroll: Unroll::Full,
            body: vec![Stmt::Set(acc, call(Func::Add, vec![v(acc), load(x, add(v(at), v(j)))]))],
        },
        cond(
            lt(v(at), i(500)),
            vec![Stmt::Store(
                y,
                v(at),
                call(Func::Max, vec![call(Func::Mul, vec![v(acc), Expr::Param(scale)]), f(0.0)]),
            )],
        ),
    ];
    let text = print_kernel(&k, target("sm_90a"), &sources);
    let body = &text[text.find("extern").expect("a kernel")..];
    expect![[r#"
        extern "C" __global__ void __launch_bounds__(128)
        girih_f_y(const bf16* __restrict__ x, bf16* y, float scale) {
            const int i = int(blockIdx.x) * 128 + int(threadIdx.x);
            // add.tile:2  y[i] = x[i] + 1
            float acc = 0.0f;
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                acc += f32_from_bf16(x[i + j]);
            }
            if (i < 500) {
                y[i] = bf16_from_f32(max_f32(acc * scale, 0.0f));
            }
        }
    "#]]
    .assert_eq(body);
}

fn text_of(ty: Ty, e: Expr) -> String {
    let mut k = kernel(1, 32);
    for name in ["a", "b", "c"] {
        k.var(name, ty);
    }
    let result = girih_compiler::ir::simt_verify::type_of(&k, &e).expect("well typed");
    let x = k.var("x", result);
    k.body = vec![Stmt::Let(x, e)];
    let text = print_kernel(&k, target("sm_80"), &Sources::default());
    let line = text.lines().find(|l| l.contains(" x = ")).expect("the declaration");
    line.trim().split_once(" = ").expect("an assignment").1.trim_end_matches(';').to_string()
}

fn check(ty: Ty, e: Expr, want: Expect) {
    want.assert_eq(&text_of(ty, e));
}

#[test]
fn parentheses_stand_only_where_needed() {
    let [a, b, c] = [0, 1, 2].map(|n| v(VarId(n)));
    let fadd = |x: &Expr, y: &Expr| call(Func::Add, vec![x.clone(), y.clone()]);
    let fsub = |x: &Expr, y: &Expr| call(Func::Sub, vec![x.clone(), y.clone()]);
    let fmul = |x: &Expr, y: &Expr| call(Func::Mul, vec![x.clone(), y.clone()]);
    let fneg = |x: &Expr| call(Func::Neg, vec![x.clone()]);
    check(Ty::F32, fadd(&fmul(&a, &b), &c), expect!["a * b + c"]);
    check(Ty::F32, fmul(&fadd(&a, &b), &c), expect!["(a + b) * c"]);
    check(Ty::F32, fadd(&a, &fadd(&b, &c)), expect!["a + (b + c)"]);
    check(Ty::F32, fsub(&fsub(&a, &b), &c), expect!["a - b - c"]);
    check(Ty::F32, fneg(&fneg(&a)), expect!["- -a"]);
    check(Ty::F32, fneg(&f(-1.5)), expect!["- -1.5f"]);
    check(Ty::F32, fsub(&a, &f(-1.5)), expect!["a - -1.5f"]);
    check(Ty::I32, add(a.clone(), Expr::Lit(Value::I32(i32::MIN))), expect!["a + (-2147483647 - 1)"]);
    check(Ty::I32, Expr::Not(Box::new(lt(a.clone(), b.clone()))), expect!["!(a < b)"]);
    let select = |p: Expr, x: Expr, y: Expr| Expr::Select(Box::new(p), Box::new(x), Box::new(y));
    let nested =
        select(lt(a.clone(), b.clone()), a.clone(), select(lt(b.clone(), c.clone()), b.clone(), c.clone()));
    check(Ty::I32, nested, expect!["a < b ? a : b < c ? b : c"]);
    check(Ty::I32, call(Func::Add, vec![a.clone(), b.clone()]), expect!["add_i32(a, b)"]);
    let shift = Expr::Int(IntOp::Shl, Box::new(add(a.clone(), b.clone())), Box::new(i(2)));
    check(Ty::I32, Expr::Int(IntOp::And, Box::new(shift), Box::new(c)), expect!["a + b << 2 & c"]);
}

#[test]
fn helpers_are_defined_only_where_used() {
    let mut k = kernel(1, 32);
    let x = k.var("x", Ty::F32);
    k.body = vec![Stmt::Let(x, call(Func::Min, vec![f(1.0), f(2.0)]))];
    let text = print_kernel(&k, target("sm_75"), &Sources::default());
    assert!(text.contains("float min_f32(float a, float b)") && !text.contains("max_f32"), "{text}");
    assert!(
        !text.contains("min.NaN")
            && print_kernel(&k, target("sm_80"), &Sources::default()).contains("min.NaN")
    );
}

#[test]
fn names_of_the_language_are_mangled() {
    let text = print(&program_of_zoo(), target("sm_90a"), &Sources::default());
    for wrong in [" double =", " new =", " for =", " threadIdx =", " __x =", "größe", "a.b ="] {
        assert!(!text.contains(wrong), "{wrong}");
    }
}

fn program_of_zoo() -> girih_compiler::ir::program::Program {
    girih_compiler::ir::program::Program { kernels: zoo::zoo(target("sm_90a")), ..Default::default() }
}

#[test]
fn printing_is_stable_and_the_same_for_each_call() {
    for t in &TARGETS {
        let program = girih_compiler::ir::program::Program { kernels: zoo::zoo(t), ..Default::default() };
        assert_eq!(print(&program, t, &Sources::default()), print(&program, t, &Sources::default()));
    }
}

// simt text.

#[test]
fn simt_text_is_read_back() {
    use girih_compiler::ir::simt_text;
    for t in &TARGETS {
        for k in zoo::zoo(t) {
            let text = simt_text::print(&k);
            let back = simt_text::parse(&text).unwrap_or_else(|e| panic!("{}: {e}\n{text}", k.name));
            assert_eq!(back.len(), 1);
            assert_eq!(format!("{:?}", back[0]), format!("{k:?}"));
            assert_eq!(simt_text::print(&back[0]), text);
        }
    }
}

#[test]
fn simt_text_is_readable() {
    let mut k = Kernel { name: "k".into(), ..kernel(2, 64) };
    let x = Mem::Global(pointer(&mut k, "x", DType::F16, 128, false));
    let s = Mem::Shared(k.shared("tile", DType::F32, 64, 16));
    let sum = k.var("sum", Ty::F32);
    k.body = vec![
        line(3),
        Stmt::Let(sum, call(Func::Exp, vec![load(x, add(tid(), i(1)))])),
        cond(lt(tid(), i(9)), vec![Stmt::Store(s, tid(), v(sum))]),
    ];
    expect![[r#"
        kernel "k" grid 2 1 1 block 64 1 1 cluster 1 1 1 min_blocks 0
        param "x" pointer f16 128
        shared "tile" f32 64 align 16
        var "sum" f32
        {
          line 0 30 35
          let %sum.0 = exp(&x.0[i.add(thread.x, 1)])
          if c.lt(thread.x, 9) {
            store @tile.0[thread.x] = %sum.0
          }
        }
    "#]]
    .assert_eq(&girih_compiler::ir::simt_text::print(&k));
}

#[test]
fn wrong_simt_text_is_an_error_with_its_line() {
    use girih_compiler::ir::simt_text::parse;
    let head = "kernel \"k\" grid 1 1 1 block 1 1 1 cluster 1 1 1 min_blocks 0\n";
    for (text, want) in [
        (format!("{head}{{\n  jump\n}}"), "line 3: `jump`"),
        (format!("{head}{{\n  let %x.0 = foo(1)\n}}"), "line 3: `foo`"),
        (format!("{head}{{\n  barrier\n"), "ends too early"),
        (format!("{head}wire \"x\" f32\n{{}}"), "line 2: `wire`"),
        (format!("{head}{{ comment \"open }}"), "line 2: a text without its end"),
        (format!("{head}{{ {}", "if true {".repeat(5000)), "nested deeper"),
    ] {
        let e = parse(&text).expect_err("wrong text");
        assert!(e.contains(want), "{e}");
    }
}
