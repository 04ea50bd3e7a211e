//! Hand-written simt kernels on the simulator: meanings, planted faults, costs.

#[path = "simt/build.rs"]
mod build;
#[path = "simt/zoo.rs"]
mod zoo;

use build::*;
use girih_compiler::host::HostTensor;
use girih_compiler::ir::program::*;
use girih_compiler::ir::simt::*;
use girih_compiler::reference::Inputs;
use girih_compiler::sim::{self, Kind, SimError, SimOptions, SimOutcome};
use girih_compiler::vocab::dtype::{DType, Value};
use girih_compiler::vocab::func::Func;
use girih_compiler::vocab::target::Target;

/// y[t] = s[63 - t], through shared memory.
fn reversal(threads: u32, barrier: bool) -> Kernel {
    let mut k = kernel(1, threads);
    let x = Mem::Global(pointer(&mut k, "x", DType::F32, threads as i64, false));
    let y = Mem::Global(pointer(&mut k, "y", DType::F32, threads as i64, true));
    let s = Mem::Shared(k.shared("s", DType::F32, threads, 16));
    k.body = vec![line(1), Stmt::Store(s, tid(), load(x, tid()))];
    if barrier {
        k.body.push(Stmt::Barrier);
    }
    let index = sub(i(threads as i32 - 1), tid());
    k.body.extend([line(2), Stmt::Store(y, tid(), load(s, index))]);
    k
}

fn ramp(n: i64) -> HostTensor {
    HostTensor::from_f64(DType::F32, &[n], &(0..n).map(|i| i as f64).collect::<Vec<_>>())
}

#[test]
fn a_barrier_orders_shared_memory() {
    let out = run(&program(reversal(64, true)), &[("x", ramp(64))]).expect("no error");
    assert_eq!(floats(&out.outputs["y"]), (0..64).map(|i| 63.0 - i as f64).collect::<Vec<_>>());
    assert_eq!(out.kernels[0].global_read, 256);
    assert_eq!(out.kernels[0].shared_wavefronts, 4);
    assert!(out.kernels[0].conflicts.is_empty());
}

#[test]
fn a_missing_barrier_is_a_race() {
    let e = run(&program(reversal(64, false)), &[("x", ramp(64))]).expect_err("a race");
    assert_eq!(e.kind, Kind::Race, "{e}");
    // Warp 0 runs first: its reads come before warp 1's writes.
    assert_eq!((e.span, e.other), (Some(span(1)), Some(span(2))));
}

#[test]
fn a_warp_does_not_run_in_lockstep() {
    let e = run(&program(reversal(32, false)), &[("x", ramp(32))]).expect_err("a race");
    assert_eq!(e.kind, Kind::Race, "{e}");
}

#[test]
fn loops_and_functions() {
    let mut k = kernel(3, 48);
    let n = 130;
    let x = Mem::Global(pointer(&mut k, "x", DType::F32, n, false));
    let y = Mem::Global(pointer(&mut k, "y", DType::F32, n, true));
    let (at, acc, j) = (k.var("at", Ty::I32), k.var("acc", Ty::F32), k.var("j", Ty::I32));
    k.body = vec![
        Stmt::Let(at, add(mul(bid(), i(48)), tid())),
        cond(
            lt(v(at), i(n as i32)),
            vec![
                Stmt::Let(acc, f(0.0)),
                repeat(
                    j,
                    add(v(at), i(1)),
                    vec![Stmt::Set(acc, call(Func::Add, vec![v(acc), load(x, v(j))]))],
                ),
                Stmt::Store(y, v(at), call(Func::Exp, vec![call(Func::Neg, vec![v(acc)])])),
            ],
        ),
    ];
    let out = run(&program(k), &[("x", ramp(n))]).expect("no error");
    for (i, got) in floats(&out.outputs["y"]).into_iter().enumerate() {
        let sum = (i * (i + 1) / 2) as f64;
        assert_eq!(got, (-sum).exp() as f32 as f64, "y[{i}]");
    }
}

// Every kind of statement.

/// Random bytes of a dtype, as an input; floats are finite.
fn random(dtype: DType, len: i64, seed: u64) -> HostTensor {
    let mut t = HostTensor::zeros(dtype, &[len]);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for i in 0..t.len() {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        t.set(i, Value::I64((state >> 33) as i64 % 17 - 8));
    }
    t
}

fn inputs_of(p: &Program) -> Vec<(String, HostTensor)> {
    let given = p.buffers.iter().filter(|b| matches!(b.role, BufferRole::Input(_)));
    given.enumerate().map(|(n, b)| (b.name.clone(), random(b.dtype, b.dims[0], n as u64 + 1))).collect()
}

fn run_random(p: &Program) -> (Vec<(String, HostTensor)>, Result<SimOutcome, SimError>) {
    let inputs = inputs_of(p);
    let named: Vec<(&str, HostTensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let out = run(p, &named);
    (inputs, out)
}

#[test]
fn the_zoo_runs_without_an_error() {
    let target = Target::parse("sm_90a").expect("a target of the table");
    for k in zoo::zoo(target) {
        let name = k.name.clone();
        let p = program(k);
        let (inputs, out) = run_random(&p);
        let out = out.unwrap_or_else(|e| panic!("{name}: {e}"));
        if name.contains("dtypes") {
            for (given, t) in &inputs {
                let y = &out.outputs[&given.replacen('x', "y", 1)];
                assert_eq!(y.data, t.data, "{given}");
            }
        }
        if name.contains("vector") {
            let (x, y) = (&inputs[0].1, &out.outputs["y"]);
            let each = x.data.len() / 32;
            let mirrored: Vec<u8> = x.data.chunks(each).rev().flatten().copied().collect();
            assert_eq!(y.data, mirrored, "{name}");
        }
    }
}

#[test]
fn functions_agree_with_the_vocabulary() {
    let target = Target::parse("sm_90a").expect("a target of the table");
    let k = zoo::zoo(target).swap_remove(0);
    let stmts = k.body.clone();
    let out = run(&program(k), &[]).expect("no error");
    let got = floats(&out.outputs["out"]);
    let mut row = 0;
    for s in &stmts {
        let Stmt::Let(_, Expr::Call(func, args)) = s else { continue };
        for t in 0..32 {
            let args: Vec<Value> = args.iter().map(|a| sample_value(a, t)).collect();
            let want = girih_compiler::host::convert(func.eval(&args), girih_compiler::vocab::dtype::Ty::F64);
            let want = girih_compiler::host::as_f64(want);
            let at = got[32 * row + t as usize];
            assert!(at == want || at.is_nan() && want.is_nan(), "{} {args:?}: {at} not {want}", func.name());
        }
        row += 1;
    }
    assert!(row > 140, "{row}");
}

/// The value of the zoo's sample expressions at a thread.
fn sample_value(e: &Expr, t: i32) -> Value {
    match e {
        Expr::Cast(ty, _) => {
            let v = Value::I32(t + 1);
            match ty {
                Ty::I64 => Value::I64(t as i64 + 1),
                Ty::F32 => Value::F32(t as f32 + 1.0),
                Ty::F64 => Value::F64(t as f64 + 1.0),
                _ => v,
            }
        }
        Expr::Compare(..) => Value::Bool(t < 7),
        _ => Value::I32(t + 1),
    }
}

/// Fragments by the formulas of the PTX ISA, written out for each kind of operand.
fn fragment(
    shape: &girih_compiler::sim::intrinsics::Shape,
    operand: char,
    lane: usize,
    i: usize,
) -> (usize, usize) {
    let (g, t) = (lane / 4, lane % 4);
    let bits = shape.a_dtype.bits();
    match (operand, shape.k, bits) {
        ('a', 16, 16) => {
            let row = if i < 2 || (4..6).contains(&i) { g } else { g + 8 };
            (row, if i < 4 { t * 2 + (i & 1) } else { t * 2 + (i & 1) + 8 })
        }
        ('b', 16, 16) => (if i < 2 { t * 2 + (i & 1) } else { t * 2 + (i & 1) + 8 }, g),
        ('a', 8, 16) => (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1)),
        ('b', 8, 16) => (t * 2 + i, g),
        ('a', 8, 32) => (if i == 0 || i == 2 { g } else { g + 8 }, if i < 2 { t } else { t + 4 }),
        ('b', 8, 32) => (if i == 0 { t } else { t + 4 }, g),
        ('a', 32, 8) => {
            let row = if i < 4 || (8..12).contains(&i) { g } else { g + 8 };
            (row, if i < 8 { t * 4 + (i & 3) } else { t * 4 + (i & 3) + 16 })
        }
        ('b', 32, 8) => (if i < 4 { t * 4 + (i & 3) } else { t * 4 + (i & 3) + 16 }, g),
        ('a', 4, 64) => (g, t),
        ('b', 4, 64) => (t, g),
        (_, 4, 64) => (g, t * 2 + (i & 1)),
        _ => (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1)),
    }
}

#[test]
fn matrix_instructions_multiply() {
    let target = Target::parse("sm_90a").expect("a target of the table");
    for op in zoo::multiplies(target) {
        let shape = girih_compiler::sim::intrinsics::shape(op).expect("it exists");
        let (m, n, k) = (shape.m, shape.n, shape.k);
        let a = random(shape.a_dtype, (m * k) as i64, 3);
        let b = random(shape.b_dtype, (k * n) as i64, 4);
        let c = random(shape.sum, (m * n) as i64, 5);
        let spread = |t: &HostTensor, operand: char, regs: usize, columns: usize, stored: DType| {
            let each = t.len() / 32;
            let mut f = HostTensor::zeros(t.dtype, &[t.len() as i64]);
            for lane in 0..32 {
                for i in 0..each {
                    let (row, col) = fragment(shape, operand, lane, i);
                    f.set(lane * each + i, t.get(row * columns + col));
                }
            }
            HostTensor::new(stored, vec![32 * regs as i64], f.data).expect("a register is 32 or 64 bits")
        };
        let stored = if shape.sum == DType::F64 { DType::F64 } else { DType::I32 };
        let p = program(zoo::multiply_kernel(op));
        let out = run(
            &p,
            &[
                ("a_in", spread(&a, 'a', shape.regs[0], k, stored)),
                ("b_in", spread(&b, 'b', shape.regs[1], n, stored)),
                ("c_in", spread(&c, 'c', shape.regs[2], n, shape.sum)),
            ],
        )
        .unwrap_or_else(|e| panic!("{}: {e}", shape.name));
        let (a, b, c, d) = (floats(&a), floats(&b), floats(&c), floats(&out.outputs["d_out"]));
        for lane in 0..32 {
            for i in 0..shape.regs[2] {
                let (row, col) = fragment(shape, 'c', lane, i);
                let want = (0..k).fold(c[row * n + col], |s, j| s + a[row * k + j] * b[j * n + col]);
                assert_eq!(d[lane * shape.regs[2] + i], want, "{} ({row}, {col})", shape.name);
            }
        }
    }
}

#[test]
fn ldmatrix_gives_rows_and_columns() {
    let target = Target::parse("sm_90a").expect("a target of the table");
    let k = zoo::zoo(target).into_iter().find(|k| k.name.contains("ldmatrix")).expect("in the zoo");
    let out = run(&program(k), &[]).expect("no error");
    let got = floats(&out.outputs["y"]);
    let half = |n: usize| half::f16::from_f32(n as f32).to_bits() as u32;
    let mut register = 0;
    for trans in [false, true] {
        for count in [1, 2, 4] {
            for m in 0..count {
                for lane in 0..32 {
                    let (r, c) = (lane / 4, 2 * (lane % 4));
                    let at = |r: usize, c: usize| 64 * m + if trans { 8 * c + r } else { 8 * r + c };
                    let want = (half(at(r, c)) | half(at(r, c + 1)) << 16) as i32 as f64;
                    assert_eq!(got[32 * register + lane], want, "x{count} trans {trans} lane {lane}");
                }
                register += 1;
            }
        }
    }
}

#[test]
fn copies_land_with_zeros_beyond_the_valid_bytes() {
    let target = Target::parse("sm_80").expect("a target of the table");
    let k = zoo::zoo(target).into_iter().find(|k| k.name.contains("cp_async")).expect("in the zoo");
    let p = program(k);
    let (inputs, out) = run_random(&p);
    let (x, y) = (floats(&inputs[0].1), floats(&out.expect("no error").outputs["y"]));
    for (n, each) in [1, 2, 4].into_iter().enumerate() {
        for e in 0..128 {
            let thread = e / each % 32;
            let want = if thread < 30 { x[e] } else { 0.0 };
            assert_eq!(y[128 * n + e], want, "{each} words, element {e}");
        }
    }
}

// Planted faults.

fn fails(k: Kernel) -> SimError {
    let p = program(k);
    run_random(&p).1.expect_err("a planted fault")
}

#[test]
fn an_index_outside_is_reported_with_its_thread() {
    let mut k = kernel(3, 32);
    let x = Mem::Global(pointer(&mut k, "x", DType::F32, 95, false));
    let y = Mem::Global(pointer(&mut k, "y", DType::F32, 96, true));
    let at = add(mul(bid(), i(32)), tid());
    k.body = vec![line(4), Stmt::Store(y, at.clone(), load(x, at))];
    let e = fails(k);
    assert_eq!((e.kind, e.block, e.thread, e.span), (Kind::OutOfBounds, [2, 0, 0], 31, Some(span(4))), "{e}");
    assert!(e.message.contains("index 95 of x, which has 95 elements"), "{e}");
}

#[test]
fn shared_memory_has_bounds_too() {
    let mut k = kernel(1, 32);
    let s = Mem::Shared(k.shared("s", DType::F32, 31, 4));
    k.body = vec![line(2), Stmt::Store(s, tid(), f(0.0))];
    let e = fails(k);
    assert_eq!((e.kind, e.thread, e.span), (Kind::OutOfBounds, 31, Some(span(2))), "{e}");
}

#[test]
fn uninitialised_shared_memory_is_not_read() {
    let mut k = kernel(1, 64);
    let y = Mem::Global(pointer(&mut k, "y", DType::F32, 64, true));
    let s = Mem::Shared(k.shared("s", DType::F32, 64, 4));
    k.body = vec![
        cond(lt(tid(), i(63)), vec![Stmt::Store(s, tid(), f(0.0))]),
        Stmt::Barrier,
        line(3),
        Stmt::Store(y, tid(), load(s, tid())),
    ];
    let e = fails(k);
    assert_eq!((e.kind, e.thread, e.span), (Kind::Uninitialised, 63, Some(span(3))), "{e}");
}

#[test]
fn an_unset_array_element_is_not_read() {
    let mut k = kernel(1, 32);
    let y = Mem::Global(pointer(&mut k, "y", DType::F32, 32, true));
    let a = k.array("a", Ty::F32, 2);
    k.body = vec![
        cond(lt(tid(), i(20)), vec![Stmt::SetElem(a, i(1), f(1.0))]),
        line(5),
        Stmt::Store(y, tid(), elem(a, i(1))),
    ];
    let e = fails(k);
    assert_eq!((e.kind, e.thread, e.span), (Kind::Uninitialised, 20, Some(span(5))), "{e}");
}

#[test]
fn an_output_that_is_not_written_is_reported() {
    let mut k = kernel(1, 32);
    let y = Mem::Global(pointer(&mut k, "y", DType::U4, 65, true));
    let j = k.var("j", Ty::I32);
    k.body = vec![repeat(j, i(2), vec![Stmt::Store(y, add(mul(tid(), i(2)), v(j)), i(7))])];
    let e = fails(k);
    assert_eq!(e.kind, Kind::Unwritten, "{e}");
    assert!(e.message.contains("y[64]"), "{e}");
}

/// Threads 0..48 of 64 write, all read after a barrier that not all of a warp reach.
#[test]
fn a_barrier_inside_a_branch_is_divergent() {
    let mut k = kernel(1, 64);
    let y = Mem::Global(pointer(&mut k, "y", DType::F32, 64, true));
    let s = Mem::Shared(k.shared("s", DType::F32, 64, 4));
    k.body = vec![
        cond(lt(tid(), i(48)), vec![Stmt::Store(s, tid(), f(1.0)), line(7), Stmt::Barrier]),
        Stmt::Store(y, tid(), load(s, rem(tid(), i(48)))),
    ];
    let e = fails(k);
    assert_eq!((e.kind, e.span), (Kind::DivergentBarrier, Some(span(7))), "{e}");
}

/// The same with whole warps: warp 1 does not reach the barrier at all.
#[test]
fn a_barrier_that_a_warp_passes_by_is_divergent() {
    let mut k = kernel(1, 64);
    k.body = vec![cond(lt(tid(), i(32)), vec![line(3), Stmt::Barrier])];
    let e = fails(k);
    assert_eq!((e.kind, e.span), (Kind::DivergentBarrier, Some(span(3))), "{e}");
    let mut k = kernel(1, 64);
    k.body = vec![Stmt::If {
        cond: lt(tid(), i(32)),
        then: vec![line(3), Stmt::Barrier],
        otherwise: vec![line(5), Stmt::Barrier],
    }];
    let e = fails(k);
    assert_eq!(e.kind, Kind::DivergentBarrier, "{e}");
    assert_eq!([e.span, e.other], [Some(span(5)), Some(span(3))]);
}

/// Producers 0..48 of 64 write, all read, with no barrier for the last sixteen.
#[test]
fn a_missing_barrier_of_part_of_a_warp_is_a_race() {
    let mut k = kernel(1, 64);
    let y = Mem::Global(pointer(&mut k, "y", DType::F32, 64, true));
    let s = Mem::Shared(k.shared("s", DType::F32, 64, 4));
    k.body = vec![
        line(1),
        cond(lt(tid(), i(48)), vec![Stmt::Store(s, tid(), f(1.0))]),
        Stmt::WarpBarrier,
        line(2),
        Stmt::Store(y, tid(), load(s, rem(add(tid(), i(16)), i(48)))),
    ];
    let e = fails(k);
    assert_eq!(e.kind, Kind::Race, "{e}");
}

#[test]
fn a_warp_barrier_orders_one_warp() {
    let mut k = kernel(1, 32);
    let y = Mem::Global(pointer(&mut k, "y", DType::F32, 32, true));
    let s = Mem::Shared(k.shared("s", DType::F32, 32, 4));
    k.body = vec![
        Stmt::Store(s, tid(), f(1.0)),
        Stmt::WarpBarrier,
        Stmt::Store(y, tid(), load(s, sub(i(31), tid()))),
    ];
    run(&program(k), &[]).expect("ordered");
}

#[test]
fn two_writers_of_one_element_race() {
    for (blocks, threads) in [(1, 2), (2, 1)] {
        let mut k = kernel(blocks, threads);
        let y = Mem::Global(pointer(&mut k, "y", DType::I32, 1, true));
        k.body = vec![line(9), Stmt::Store(y, i(0), add(bid(), tid()))];
        let e = fails(k);
        assert_eq!((e.kind, e.span), (Kind::Race, Some(span(9))), "{e}");
    }
}

#[test]
fn a_read_of_another_blocks_write_races() {
    let mut k = kernel(2, 1);
    let y = Mem::Global(pointer(&mut k, "y", DType::I32, 2, true));
    let z = Mem::Global(pointer(&mut k, "z", DType::I32, 2, true));
    k.body = vec![
        line(1),
        Stmt::Store(y, bid(), bid()),
        line(2),
        Stmt::Store(z, bid(), load(y, sub(i(1), bid()))),
    ];
    let e = fails(k);
    // Which of the two is seen depends on which block runs first.
    assert!(matches!(e.kind, Kind::Race | Kind::Uninitialised), "{e}");
}

/// The last block to arrive sums what the others stored, after fences and an atomic count.
#[test]
fn fences_and_an_atomic_order_blocks() {
    let mut k = kernel(8, 32);
    let part = Mem::Global(pointer(&mut k, "part", DType::I32, 8, true));
    let count = Mem::Global(pointer(&mut k, "count", DType::I32, 1, true));
    let y = Mem::Global(pointer(&mut k, "y", DType::I32, 1, true));
    let (seen, sum, j) = (k.var("seen", Ty::I32), k.var("sum", Ty::I32), k.var("j", Ty::I32));
    k.body = vec![cond(
        eq(tid(), i(0)),
        vec![
            Stmt::Store(part, bid(), add(bid(), i(1))),
            Stmt::Fence,
            Stmt::Atomic { op: AtomicOp::Add, mem: count, index: i(0), value: i(1), old: Some(seen) },
            cond(
                eq(v(seen), i(7)),
                vec![
                    Stmt::Fence,
                    Stmt::Let(sum, i(0)),
                    repeat(j, i(8), vec![Stmt::Set(sum, add(v(sum), load(part, v(j))))]),
                    Stmt::Store(y, i(0), v(sum)),
                ],
            ),
        ],
    )];
    let mut p = program(k);
    p.steps.insert(0, Step::Fill { buffer: BufferId(1), byte: 0 });
    let out = run(&p, &[]).expect("ordered");
    assert_eq!(floats(&out.outputs["y"]), [36.0]);
}

#[test]
fn a_copy_is_not_there_before_its_wait() {
    for (waits, barrier, want) in [(false, true, Kind::Uninitialised), (true, false, Kind::Race)] {
        let mut k = kernel(1, 32);
        let x = pointer(&mut k, "x", DType::F32, 32, false);
        let y = Mem::Global(pointer(&mut k, "y", DType::F32, 32, true));
        let s = k.shared("s", DType::F32, 32, 16);
        let copy = Intrinsic::CpAsync { mem: x, bytes: 4 };
        let args = vec![Expr::SharedAddr(s, Box::new(tid())), tid(), i(4)];
        k.body = vec![
            Stmt::Intrinsic { op: copy, outs: vec![], args },
            Stmt::Intrinsic { op: Intrinsic::CpAsyncCommit, outs: vec![], args: vec![] },
        ];
        if waits {
            k.body.push(Stmt::Intrinsic { op: Intrinsic::CpAsyncWait(0), outs: vec![], args: vec![] });
        }
        if barrier {
            k.body.push(Stmt::Barrier);
        }
        k.body.extend([line(8), Stmt::Store(y, tid(), load(Mem::Shared(s), sub(i(31), tid())))]);
        let e = fails(k);
        assert_eq!((e.kind, e.span), (want, Some(span(8))), "{e}");
    }
}

#[test]
fn warp_wide_operations_need_the_whole_warp() {
    let mut k = kernel(1, 32);
    let x = k.var("x", Ty::I32);
    let s = Stmt::Shuffle { var: x, kind: ShuffleKind::Xor, value: tid(), lane: i(1) };
    k.body = vec![cond(lt(tid(), i(16)), vec![line(6), s])];
    let e = fails(k);
    assert_eq!((e.kind, e.span), (Kind::PartialWarp, Some(span(6))), "{e}");
    assert!(e.message.contains("thread 16"), "{e}");
}

#[test]
fn a_vector_access_is_aligned() {
    let mut k = kernel(1, 32);
    let x = Mem::Global(pointer(&mut k, "x", DType::F32, 64, false));
    let a = k.array("a", Ty::F32, 2);
    k.body = vec![line(3), Stmt::LoadVec { array: a, at: 0, mem: x, index: tid(), count: 2 }];
    let e = fails(k);
    assert_eq!((e.kind, e.thread, e.span), (Kind::Misaligned, 1, Some(span(3))), "{e}");
}

#[test]
fn a_loop_without_end_is_stopped() {
    let mut k = kernel(1, 32);
    k.body = vec![line(2), Stmt::While { cond: lt(i(-1), tid()), body: vec![] }];
    let p = program(k);
    let options = SimOptions { loop_limit: 1000, ..SimOptions::default() };
    let e = sim::run(&p, &Inputs::default(), &options).expect_err("no end");
    assert_eq!((e.kind, e.span), (Kind::Runaway, Some(span(2))), "{e}");
}

#[test]
fn index_arithmetic_stays_in_its_domain() {
    let mut k = kernel(1, 32);
    let x = k.var("x", Ty::I32);
    k.body = vec![line(2), Stmt::Let(x, div(sub(tid(), i(1)), i(4)))];
    let e = fails(k);
    assert_eq!((e.kind, e.thread, e.span), (Kind::Arithmetic, 0, Some(span(2))), "{e}");
}

#[test]
fn bank_conflicts_are_counted_by_line() {
    let mut k = kernel(1, 32);
    let y = Mem::Global(pointer(&mut k, "y", DType::F32, 32, true));
    let s = Mem::Shared(k.shared("s", DType::F32, 32 * 32, 4));
    k.body = vec![
        line(1),
        Stmt::Store(s, mul(tid(), i(32)), f(1.0)),
        Stmt::WarpBarrier,
        line(2),
        Stmt::Store(y, tid(), load(s, mul(tid(), i(32)))),
    ];
    let out = run(&program(k), &[]).expect("no error");
    let report = &out.kernels[0];
    assert_eq!((report.shared_wavefronts, report.shared_ideal), (64, 2));
    let found: Vec<_> =
        report.conflicts.iter().map(|c| (c.span, c.array.as_str(), c.wavefronts, c.ideal)).collect();
    assert_eq!(found, [(Some(span(1)), "s", 32, 1), (Some(span(2)), "s", 32, 1)]);
}

#[test]
fn a_recorded_fault_ends_the_run() {
    let mut k = kernel(1, 32);
    let fault = pointer(&mut k, "fault", DType::I64, 4, true);
    let value = Expr::Cast(Ty::I64, Box::new(tid()));
    k.body = vec![cond(eq(tid(), i(9)), vec![Stmt::Fault { fault, site: 0, value }])];
    let mut p = program(k);
    p.faults.push(FaultSite {
        tensor: "table".into(),
        dim: 1,
        lo: 0,
        hi: 5,
        span: span(4),
        what: FaultKind::Read,
    });
    let e = run(&p, &[]).expect_err("a fault");
    assert_eq!((e.kind, e.span, e.fault), (Kind::Fault, Some(span(4)), Some((0, 9))), "{e}");
    assert!(e.message.contains("table") && e.message.contains('9'), "{e}");
}

#[test]
fn malformed_kernels_are_refused() {
    let refused = |k: Kernel| {
        let e = fails(k);
        assert_eq!(e.kind, Kind::Malformed, "{e}");
        e.message
    };
    let mut k = kernel(1, 32);
    let x = k.var("x", Ty::I32);
    k.body = vec![Stmt::Set(x, i(1))];
    assert!(refused(k).contains("not declared"));
    let mut k = kernel(1, 32);
    let x = k.var("x", Ty::I32);
    k.body = vec![cond(lt(tid(), i(1)), vec![Stmt::Let(x, i(1))]), Stmt::Set(x, i(2))];
    assert!(refused(k).contains("not declared"));
    let mut k = kernel(1, 32);
    let x = k.var("x", Ty::F32);
    k.body = vec![Stmt::Let(x, add(f(1.0), f(2.0)))];
    assert!(refused(k).contains("F32"));
    let mut k = kernel(1, 32);
    let x = Mem::Global(pointer(&mut k, "x", DType::F32, 32, false));
    k.body = vec![Stmt::Store(x, tid(), f(1.0))];
    assert!(refused(k).contains("not marked"));
    let mut k = kernel(1, 32);
    let a = k.array("a", Ty::F32, 2);
    k.body = vec![Stmt::SetElem(a, i(2), f(1.0))];
    assert!(refused(k).contains("index 2"));
}
