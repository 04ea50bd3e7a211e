//! Kernels that between them have every kind of expression and statement, at every type they take.
#![allow(dead_code)]

use super::build::*;
use girih_compiler::ir::simt::*;
use girih_compiler::ir::simt_verify::{bits, call_type};
use girih_compiler::vocab::dtype::{DTYPES, DType, Value};
use girih_compiler::vocab::func::{FUNCS, Func};
use girih_compiler::vocab::target::Target;

pub const TYPES: [Ty; 7] = [Ty::Bool, Ty::I32, Ty::U32, Ty::I64, Ty::U64, Ty::F32, Ty::F64];

/// All kernels that a target can run.
pub fn zoo(target: &Target) -> Vec<Kernel> {
    let mut all = vec![
        functions(),
        casts(),
        dtypes(),
        control(),
        sync(),
        atomics(),
        specials(),
        keywords(),
        large_shared(),
    ];
    all.extend(vectors());
    all.extend(intrinsics(target));
    for (n, k) in all.iter_mut().enumerate() {
        k.name = format!("zoo_{n}_{}", k.name);
    }
    all
}

fn named(name: &str) -> Kernel {
    Kernel { name: name.into(), ..kernel(1, 32) }
}

/// A value of a type that differs between threads.
fn sample(ty: Ty) -> Expr {
    match ty {
        Ty::I32 => add(tid(), i(1)),
        Ty::Bool => lt(tid(), i(7)),
        ty => Expr::Cast(ty, Box::new(add(tid(), i(1)))),
    }
}

/// Stores a value of any type as f64.
fn keep(k: &mut Kernel, out: Mem, at: &mut i32, value: Expr, ty: Ty) {
    let n = k.vars.len();
    let x = k.var(format!("x{n}"), ty);
    k.body.push(Stmt::Let(x, value));
    let wide = Expr::Cast(Ty::F64, Box::new(v(x)));
    k.body.push(Stmt::Store(out, add(i(32 * *at), tid()), wide));
    *at += 1;
}

fn output(k: &mut Kernel, len: i64) -> Mem {
    Mem::Global(pointer(k, "out", DType::F64, len, true))
}

/// Gives the output its real length, once it is known.
fn close(mut k: Kernel, stored: i32) -> Kernel {
    for p in &mut k.params {
        if let ParamKind::Pointer { len, written: true, .. } = &mut p.kind
            && p.name == "out"
        {
            *len = 32 * stored as i64;
        }
    }
    k
}

fn functions() -> Kernel {
    let mut k = named("functions");
    let (out, mut at) = (output(&mut k, 0), 0);
    for row in &FUNCS {
        for ty in [Ty::Bool, Ty::I32, Ty::I64, Ty::F32, Ty::F64] {
            let mut tys = vec![ty; row.arity as usize];
            if row.func == Func::Ldexp {
                tys[1] = Ty::I32;
            }
            if let Ok(result) = call_type(row.func, &tys) {
                let args = tys.iter().map(|&t| sample(t)).collect();
                keep(&mut k, out, &mut at, Expr::Call(row.func, args), result);
            }
        }
    }
    use IntOp::*;
    for ty in [Ty::I32, Ty::U32, Ty::I64, Ty::U64] {
        for op in [Add, Sub, Mul, Div, Rem, And, Or, Xor, Shl, Shr, Min, Max] {
            let b = if matches!(op, Shl | Shr) { Expr::Cast(ty, Box::new(i(3))) } else { sample(ty) };
            keep(&mut k, out, &mut at, Expr::Int(op, Box::new(sample(ty)), Box::new(b)), ty);
        }
    }
    close(k, at)
}

fn casts() -> Kernel {
    let mut k = named("casts");
    let (out, mut at) = (output(&mut k, 0), 0);
    for from in TYPES {
        for to in TYPES {
            keep(&mut k, out, &mut at, Expr::Cast(to, Box::new(sample(from))), to);
            if bits(from) == bits(to) && from != Ty::Bool {
                keep(&mut k, out, &mut at, Expr::Bitcast(to, Box::new(sample(from))), to);
            }
        }
        for op in [CmpOp::Lt, CmpOp::Le, CmpOp::Gt, CmpOp::Ge, CmpOp::Eq, CmpOp::Ne] {
            let e = Expr::Compare(op, Box::new(sample(from)), Box::new(sample(from)));
            keep(&mut k, out, &mut at, e, Ty::Bool);
        }
        let e = Expr::Select(Box::new(sample(Ty::Bool)), Box::new(sample(from)), Box::new(sample(from)));
        keep(&mut k, out, &mut at, e, from);
        if !matches!(from, Ty::U32 | Ty::U64) {
            for row in &DTYPES {
                let e = Expr::Round(row.dtype, Box::new(sample(from)));
                keep(&mut k, out, &mut at, e, Ty::of(row.compute));
            }
        }
    }
    for dtype in [DType::F16, DType::BF16] {
        let packed = Expr::Pack2(dtype, Box::new(sample(Ty::F32)), Box::new(f(2.5)));
        for half in 0..2 {
            keep(&mut k, out, &mut at, Expr::Unpack2(dtype, half, Box::new(packed.clone())), Ty::F32);
        }
    }
    let not = Expr::Not(Box::new(Expr::And(
        Box::new(sample(Ty::Bool)),
        Box::new(Expr::Or(Box::new(sample(Ty::Bool)), Box::new(Expr::Lit(Value::Bool(false))))),
    )));
    keep(&mut k, out, &mut at, not, Ty::Bool);
    for value in [
        Value::I32(i32::MIN),
        Value::I64(i64::MIN),
        Value::F32(f32::INFINITY),
        Value::F32(f32::NAN),
        Value::F32(-0.0),
        Value::F32(1e-45),
        Value::F64(f64::NEG_INFINITY),
        Value::F64(1e300),
        Value::F64(5e-324),
    ] {
        let ty = Ty::of(value.ty());
        keep(&mut k, out, &mut at, Expr::Lit(value), ty);
        keep(&mut k, out, &mut at, Expr::Call(Func::Neg, vec![Expr::Lit(value)]), ty);
    }
    keep(&mut k, out, &mut at, Expr::U32(0xdead_beef), Ty::U32);
    close(k, at)
}

/// Each dtype copied through shared memory.
fn dtypes() -> Kernel {
    let mut k = named("dtypes");
    let mut after = Vec::new();
    for row in &DTYPES {
        let each = if row.bits == 4 { 2 } else { 1 };
        let len = 32 * each;
        let x = Mem::Global(pointer(&mut k, &format!("x_{}", row.name), row.dtype, len, false));
        let y = Mem::Global(pointer(&mut k, &format!("y_{}", row.name), row.dtype, len, true));
        let s = Mem::Shared(k.shared(format!("s_{}", row.name), row.dtype, len as u32, 16));
        for e in 0..each {
            let at = add(mul(tid(), i(each as i32)), i(e as i32));
            k.body.push(Stmt::Store(s, at.clone(), load(x, at.clone())));
            after.push(Stmt::Store(y, at.clone(), load(s, at)));
        }
    }
    k.body.push(Stmt::Barrier);
    k.body.extend(after);
    k
}

fn control() -> Kernel {
    let mut k = named("control");
    let out = Mem::Global(pointer(&mut k, "out", DType::I32, 32, true));
    let fault = pointer(&mut k, "fault", DType::I64, 4, true);
    let (sum, j, n) = (k.var("sum", Ty::I32), k.var("j", Ty::I32), k.var("n", Ty::I32));
    let (wide, m, l) = (k.var("j", Ty::I64), k.var("m", Ty::I32), k.var("l", Ty::I32));
    let a = k.array("a", Ty::I32, 4);
    let fill = |unroll, var, step| Stmt::For {
        var,
        lo: i(0),
        hi: i(4),
        step: i(step),
        unroll,
        body: vec![Stmt::SetElem(a, v(var), add(v(var), tid()))],
    };
    k.body = vec![
        Stmt::Comment("a comment that ends in a backslash \\".into()),
        Stmt::Let(sum, i(0)),
        fill(Unroll::Full, m, 1),
        fill(Unroll::By(2), l, 1),
        Stmt::For {
            var: j,
            lo: i(0),
            hi: Expr::Int(IntOp::Min, Box::new(add(tid(), i(1))), Box::new(i(4))),
            step: i(1),
            unroll: Unroll::None,
            body: vec![Stmt::Set(sum, add(v(sum), elem(a, v(j))))],
        },
        Stmt::For {
            var: wide,
            lo: Expr::Lit(Value::I64(0)),
            hi: Expr::Cast(Ty::I64, Box::new(tid())),
            step: Expr::Lit(Value::I64(2)),
            unroll: Unroll::Auto,
            body: vec![Stmt::Set(sum, add(i(1), v(sum)))],
        },
        Stmt::Let(n, tid()),
        Stmt::While {
            cond: lt(i(0), v(n)),
            body: vec![Stmt::Set(n, sub(v(n), i(3))), Stmt::Set(sum, sub(v(sum), sub(v(n), i(1))))],
        },
        Stmt::If {
            cond: lt(v(sum), i(100)),
            then: vec![Stmt::Set(sum, mul(add(v(sum), i(1)), i(2)))],
            otherwise: vec![Stmt::Set(sum, i(-1))],
        },
        cond(
            lt(v(sum), i(-1000)),
            vec![Stmt::Fault { fault, site: 0, value: Expr::Cast(Ty::I64, Box::new(v(sum))) }],
        ),
        Stmt::Store(out, tid(), v(sum)),
    ];
    k
}

fn sync() -> Kernel {
    let mut k = named("sync");
    let (out, mut at) = (output(&mut k, 0), 0);
    use ShuffleKind::*;
    for ty in TYPES {
        for kind in [Index, Xor, Up, Down] {
            let n = k.vars.len();
            let x = k.var(format!("s{n}"), ty);
            k.body.push(Stmt::Shuffle { var: x, kind, value: sample(ty), lane: i(3) });
            keep(&mut k, out, &mut at, v(x), ty);
        }
    }
    let b = k.var("ballot", Ty::U32);
    k.body.push(Stmt::Ballot { var: b, pred: lt(tid(), i(5)) });
    keep(&mut k, out, &mut at, v(b), Ty::U32);
    k.body.extend([Stmt::WarpBarrier, Stmt::Fence, Stmt::Barrier]);
    close(k, at)
}

fn atomics() -> Kernel {
    let mut k = named("atomics");
    let (out, mut at) = (output(&mut k, 0), 0);
    use AtomicOp::*;
    for (dtype, ty) in
        [(DType::I32, Ty::I32), (DType::I64, Ty::I64), (DType::F32, Ty::F32), (DType::F64, Ty::F64)]
    {
        let s = Mem::Shared(k.shared(format!("s_{}", dtype.name()), dtype, 1, 8));
        let zero = Expr::Cast(ty, Box::new(i(0)));
        k.body.extend([cond(eq(tid(), i(0)), vec![Stmt::Store(s, i(0), zero)]), Stmt::Barrier]);
        for op in [Add, Min, Max, Or, Exchange] {
            if op == Or && matches!(ty, Ty::F32 | Ty::F64) {
                continue;
            }
            k.body.push(Stmt::Atomic { op, mem: s, index: i(0), value: sample(ty), old: None });
            let n = k.vars.len();
            let old = k.var(format!("old{n}"), ty);
            k.body.push(Stmt::Atomic { op, mem: s, index: i(0), value: sample(ty), old: Some(old) });
            keep(&mut k, out, &mut at, v(old), ty);
        }
    }
    close(k, at)
}

fn specials() -> Kernel {
    let mut k = Kernel { block: [4, 4, 2], grid: [2, 1, 1], min_blocks: 2, ..named("specials") };
    let out = Mem::Global(pointer(&mut k, "out", DType::I32, 64, true));
    use Special::*;
    let [x, y, z, bx, by, bz] = [ThreadX, ThreadY, ThreadZ, BlockX, BlockY, BlockZ].map(Expr::Special);
    let thread = add(x, mul(i(4), add(y, mul(i(4), z))));
    k.body = vec![Stmt::Store(out, add(thread, mul(i(32), add(bx.clone(), add(by, bz)))), bx)];
    k
}

/// Names that C++ and CUDA have for themselves.
fn keywords() -> Kernel {
    let mut k = named("keywords");
    let words = [
        "double",
        "new",
        "int",
        "for",
        "half",
        "threadIdx",
        "kernel",
        "max",
        "__x",
        "u32",
        "expf",
        "words",
        "x",
        "x_2",
        "x",
        "größe",
        "a.b",
        "min_f32",
        "NULL",
    ];
    let x = Mem::Global(pointer(&mut k, "template", DType::F32, 32, false));
    let y = Mem::Global(pointer(&mut k, "class", DType::F32, 32, true));
    let mut last = load(x, tid());
    for word in words {
        let n = k.var(word, Ty::F32);
        k.body.push(Stmt::Let(n, call(Func::Min, vec![last, f(3.0)])));
        last = v(n);
    }
    k.body.push(Stmt::Store(y, tid(), call(Func::Exp, vec![last])));
    k
}

fn large_shared() -> Kernel {
    let mut k = named("large_shared");
    let y = Mem::Global(pointer(&mut k, "y", DType::F32, 32, true));
    let a = Mem::Shared(k.shared("a", DType::I8, 33, 16));
    let b = Mem::Shared(k.shared("b", DType::F32, 13000, 128));
    k.body = vec![Stmt::Store(a, tid(), tid()), Stmt::Store(b, tid(), f(1.0)), Stmt::Barrier];
    let sum = call(
        Func::Add,
        vec![load(b, sub(i(31), tid())), Expr::Cast(Ty::F32, Box::new(load(a, sub(i(31), tid()))))],
    );
    k.body.push(Stmt::Store(y, tid(), sum));
    k
}

/// Each dtype in each vector width, raw and converted, through shared memory.
fn vectors() -> Vec<Kernel> {
    let mut all = Vec::new();
    for row in &DTYPES {
        for bytes in [4, 8, 16] {
            let count = bytes * 8 / row.bits;
            if count == 0 {
                continue;
            }
            for raw in [false, true] {
                all.push(vector(row.dtype, count, raw));
            }
        }
    }
    all
}

fn vector(dtype: DType, count: u32, raw: bool) -> Kernel {
    let mut k = named(&format!("vector_{}_{count}{}", dtype.name(), if raw { "_raw" } else { "" }));
    let len = 32 * count;
    let x = Mem::Global(pointer(&mut k, "x", dtype, len as i64, false));
    let y = Mem::Global(pointer(&mut k, "y", dtype, len as i64, true));
    let s = Mem::Shared(k.shared("s", dtype, len, 16));
    let (ty, elems) =
        if raw { (Ty::U32, count * dtype.bits() / 32) } else { (Ty::of(dtype.compute()), count) };
    let (a, b) = (k.array("a", ty, elems), k.array("b", ty, elems + 1));
    let index = mul(tid(), i(count as i32));
    let other = mul(sub(i(31), tid()), i(count as i32));
    k.body = vec![
        Stmt::LoadVec { array: a, at: 0, mem: x, index: index.clone(), count },
        Stmt::StoreVec { mem: s, index: index.clone(), array: a, at: 0, count },
        Stmt::Barrier,
        Stmt::LoadVec { array: b, at: 1, mem: s, index: other, count },
        Stmt::StoreVec { mem: y, index, array: b, at: 1, count },
    ];
    k
}

fn intrinsics(target: &Target) -> Vec<Kernel> {
    let mut all = Vec::new();
    if target.ldmatrix {
        all.push(matrices());
    }
    if target.cp_async {
        all.push(copies());
    }
    all.extend(multiplies(target).into_iter().map(multiply));
    all
}

fn matrices() -> Kernel {
    let mut k = named("ldmatrix");
    let y = Mem::Global(pointer(&mut k, "y", DType::I32, 32 * 14, true));
    let s = k.shared("s", DType::F16, 256, 16);
    let a = k.array("a", Ty::U32, 14);
    let j = k.var("j", Ty::I32);
    let at = add(mul(tid(), i(8)), v(j));
    k.body = vec![
        repeat(j, i(8), vec![Stmt::Store(Mem::Shared(s), at.clone(), Expr::Cast(Ty::F32, Box::new(at)))]),
        Stmt::Barrier,
    ];
    let mut first = 0;
    for trans in [false, true] {
        for count in [1, 2, 4] {
            let outs = (0..count).map(|i| Place::Elem(a, first + i as u32)).collect();
            let row = Expr::SharedAddr(s, Box::new(mul(tid(), i(8))));
            k.body.push(Stmt::Intrinsic { op: Intrinsic::LdMatrix { count, trans }, outs, args: vec![row] });
            for n in 0..count as u32 {
                let bits = Expr::Bitcast(Ty::I32, Box::new(elem(a, i((first + n) as i32))));
                k.body.push(Stmt::Store(y, add(i(32 * (first + n) as i32), tid()), bits));
            }
            first += count as u32;
        }
    }
    k
}

fn copies() -> Kernel {
    let mut k = named("cp_async");
    let x = pointer(&mut k, "x", DType::F32, 128, false);
    let y = Mem::Global(pointer(&mut k, "y", DType::F32, 128 * 3, true));
    for (n, bytes) in [4u8, 8, 16].into_iter().enumerate() {
        let s = k.shared(format!("s{n}"), DType::F32, 128, 16);
        let each = bytes as i32 / 4;
        let j = k.var("j", Ty::I32);
        let at = add(mul(tid(), i(each)), mul(v(j), i(32 * each)));
        let valid = Expr::Select(Box::new(lt(tid(), i(30))), Box::new(i(bytes as i32)), Box::new(i(0)));
        let copy = Stmt::Intrinsic {
            op: Intrinsic::CpAsync { mem: x, bytes },
            outs: vec![],
            args: vec![Expr::SharedAddr(s, Box::new(at.clone())), at, valid],
        };
        k.body.extend([
            repeat(j, i(4 / each), vec![copy]),
            Stmt::Intrinsic { op: Intrinsic::CpAsyncCommit, outs: vec![], args: vec![] },
            Stmt::Intrinsic { op: Intrinsic::CpAsyncWait(0), outs: vec![], args: vec![] },
            Stmt::Barrier,
        ]);
        let l = k.var("l", Ty::I32);
        let at = add(sub(i(31), tid()), mul(v(l), i(32)));
        let store = Stmt::Store(y, add(i(128 * n as i32), at.clone()), load(Mem::Shared(s), at));
        k.body.push(repeat(l, i(4), vec![store]));
    }
    k
}

pub fn multiplies(target: &Target) -> Vec<Intrinsic> {
    let mut all = Vec::new();
    let mut add = |on: bool, op: Intrinsic| {
        if on {
            all.push(op);
        }
    };
    add(target.mma_f16, Intrinsic::MmaM16N8K8F16);
    add(target.mma_f16 && target.compute >= (8, 0), Intrinsic::MmaM16N8K16 { dtype: DType::F16 });
    add(target.mma_bf16, Intrinsic::MmaM16N8K16 { dtype: DType::BF16 });
    add(target.mma_tf32, Intrinsic::MmaM16N8K8Tf32);
    add(target.mma_f64, Intrinsic::MmaM8N8K4F64);
    for a in [DType::E4M3, DType::E5M2] {
        for b in [DType::E4M3, DType::E5M2] {
            add(target.mma_fp8, Intrinsic::MmaM16N8K32 { a, b });
        }
    }
    for a in [DType::I8, DType::U8] {
        for b in [DType::I8, DType::U8] {
            add(target.mma_i8 && target.compute >= (8, 0), Intrinsic::MmaM16N8K32 { a, b });
        }
    }
    all
}

/// One multiplication: fragments loaded register by register from arrays in fragment order.
fn multiply(op: Intrinsic) -> Kernel {
    let shape = girih_compiler::sim::intrinsics::shape(op).expect("the list has existing ones only");
    let mut k = named(shape.name);
    let [na, nb, nc] = shape.regs.map(|n| n as u32);
    let (part, stored) = if shape.sum == DType::F64 { (Ty::F64, DType::F64) } else { (Ty::U32, DType::I32) };
    let sum_ty = Ty::of(shape.sum.compute());
    let a_in = Mem::Global(pointer(&mut k, "a_in", stored, 32 * na as i64, false));
    let b_in = Mem::Global(pointer(&mut k, "b_in", stored, 32 * nb as i64, false));
    let c_in = Mem::Global(pointer(&mut k, "c_in", shape.sum, 32 * nc as i64, false));
    let out = Mem::Global(pointer(&mut k, "d_out", shape.sum, 32 * nc as i64, true));
    let (a, b) = (k.array("a", part, na), k.array("b", part, nb));
    let (c, d) = (k.array("c", sum_ty, nc), k.array("d", sum_ty, nc));
    let fetch = |k: &mut Kernel, array, n: u32, mem, raw: bool| {
        for r in 0..n as i32 {
            let value = load(mem, add(mul(tid(), i(n as i32)), i(r)));
            let value = if raw { Expr::Bitcast(Ty::U32, Box::new(value)) } else { value };
            k.body.push(Stmt::SetElem(array, i(r), value));
        }
    };
    fetch(&mut k, a, na, a_in, part == Ty::U32);
    fetch(&mut k, b, nb, b_in, part == Ty::U32);
    fetch(&mut k, c, nc, c_in, false);
    let args = [(a, na), (b, nb), (c, nc)]
        .iter()
        .flat_map(|&(x, n)| (0..n as i32).map(move |r| elem(x, i(r))))
        .collect();
    let outs = (0..nc).map(|r| Place::Elem(d, r)).collect();
    k.body.push(Stmt::Intrinsic { op, outs, args });
    for r in 0..nc as i32 {
        k.body.push(Stmt::Store(out, add(mul(tid(), i(nc as i32)), i(r)), elem(d, i(r))));
    }
    k
}

pub fn multiply_kernel(op: Intrinsic) -> Kernel {
    multiply(op)
}
