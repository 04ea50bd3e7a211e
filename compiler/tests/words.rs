//! Blocks that wait for words of other blocks: what gets stuck on hardware that starts blocks in another order is found.

#[path = "simt/build.rs"]
mod build;

use build::*;
use girih_compiler::ir::program::{BufferId, Program, Step};
use girih_compiler::ir::simt::*;
use girih_compiler::sim::Kind;
use girih_compiler::vocab::dtype::{DType, Value};

const BLOCKS: i64 = 20;

/// y[b] = b + 1, each block from the word of the block before it; `ticket`: blocks are numbered as they start.
fn relay(ticket: bool, twice: bool) -> Program {
    let mut k = kernel(BLOCKS as u32, 32);
    let words = pointer(&mut k, "words", DType::I64, BLOCKS + 1, true);
    let y = Mem::Global(pointer(&mut k, "y", DType::I32, BLOCKS, true));
    let number = k.var("number", Ty::I32);
    let old = k.var("old", Ty::I64);
    let all = k.shared("number", DType::I32, 1, 4);
    let word = k.var("word", Ty::U32);
    let to = |ty, e| Expr::Cast(ty, Box::new(e));
    let draw = Stmt::Atomic {
        op: AtomicOp::Add,
        mem: Mem::Global(words),
        index: i(0),
        value: Expr::Lit(Value::I64(1)),
        old: Some(old),
    };
    let given = if ticket { to(Ty::I32, v(old)) } else { bid() };
    k.body = vec![
        cond(eq(tid(), i(0)), vec![draw, Stmt::Store(Mem::Shared(all), i(0), given)]),
        Stmt::Barrier,
        Stmt::Let(number, load(Mem::Shared(all), i(0))),
        Stmt::Intrinsic {
            op: Intrinsic::AwaitWords { mem: words, count: 1 },
            outs: vec![Place::Var(word)],
            args: vec![
                v(number),
                Expr::Select(Box::new(lt(i(0), v(number))), Box::new(i(1)), Box::new(i(0))),
            ],
        },
        cond(
            eq(tid(), i(0)),
            (0..1 + twice as i32)
                .map(|_| Stmt::Intrinsic {
                    op: Intrinsic::PublishWord { mem: words },
                    outs: vec![],
                    args: vec![add(v(number), i(1)), to(Ty::U32, add(to(Ty::I32, v(word)), i(1)))],
                })
                .chain([Stmt::Store(y, v(number), add(to(Ty::I32, v(word)), i(1)))])
                .collect(),
        ),
    ];
    let mut p = program(k);
    p.steps.insert(0, Step::Fill { buffer: BufferId(0), byte: 0 });
    p
}

#[test]
fn blocks_numbered_as_they_start_pass_words_on() {
    let out = run(&relay(true, false), &[]).expect("no error");
    let want: Vec<f64> = (1..=BLOCKS).map(|b| b as f64).collect();
    assert_eq!(floats(&out.outputs["y"]), want);
}

#[test]
fn waiting_by_the_number_of_the_block_is_a_deadlock() {
    let e = run(&relay(false, false), &[]).expect_err("the first blocks never start");
    assert_eq!(e.kind, Kind::Deadlock, "{e}");
}

#[test]
fn a_word_is_published_once() {
    let e = run(&relay(true, true), &[]).expect_err("published twice");
    assert_eq!(e.kind, Kind::Race, "{e}");
}
