//! E06xx: `tile` and `profile` blocks.

use super::Code;

pub const ROWS: &[Code] = &[
    Code {
        code: "E0601",
        title: "tile block of no op",
        text: "A `tile` or `profile` block names an op of the file or of an import.

wrong:
    op f[M, N](x: f32[M, N]) -> (y: f32[M]) {
        y[m] = sum[n](x[m, n])
    }
    tile g { warps = 4 }

right:
    tile f { warps = 4 }
",
    },
    Code {
        code: "E0602",
        title: "unknown target",
        text: "A block is for the targets sm_75, sm_80, sm_86, sm_89, sm_90, sm_100 and sm_120.

wrong:
    op f[M, N](x: f32[M, N]) -> (y: f32[M]) {
        y[m] = sum[n](x[m, n])
    }
    tile f for sm_91 { warps = 4 }

right:
    tile f for sm_90 { warps = 4 }
",
    },
    Code {
        code: "E0603",
        title: "no such definition",
        text: "`tile OP.name`, `store` and `inline` name definitions of the op.

wrong:
    op f[M, N](x: f32[M, N]) -> (y: f32[M]) {
        y[m] = sum[n](x[m, n])
    }
    tile f.acc { warps = 4 }

right:
    tile f.y { warps = 4 }
",
    },
    Code {
        code: "E0604",
        title: "unknown setting",
        text: "A `tile` block holds the settings of the table in section 9 of the language reference.

wrong:
    op f[M, N](x: f32[M, N]) -> (y: f32[M]) {
        y[m] = sum[n](x[m, n])
    }
    tile f { warp = 4 }

right:
    tile f { warps = 4 }
",
    },
    Code {
        code: "E0605",
        title: "setting with or without axes",
        text: "block, step, split, cluster and unroll are said of axes; the others are not.

wrong:
    op f[M, N](x: f32[M, N]) -> (y: f32[M]) {
        y[m] = sum[n](x[m, n])
    }
    tile f { block = 64 }

right:
    tile f { block m = 64 }
",
    },
    Code {
        code: "E0606",
        title: "no such axis",
        text: "`block` and `cluster` speak of the axes on the left of the definition; step, split and unroll also of its folds.

wrong:
    op f[M, N](x: f32[M, N]) -> (y: f32[M]) {
        y[m] = sum[n](x[m, n])
    }
    tile f { block q = 64 }

right:
    tile f { block m = 64 }
",
    },
    Code {
        code: "E0607",
        title: "impossible value of a setting",
        text: "Each setting has its own values: a number in a range, a set, or a word. What is to be stored cannot be computed where it is read
as well, and a profile names values that the op's conditions and declarations allow.

wrong:
    op f[M, N](x: f32[M, N]) -> (y: f32[M]) {
        y[m] = sum[n](x[m, n])
    }
    tile f { warps = 100 }

right:
    tile f { warps = {4, 8} }
",
    },
    Code {
        code: "E0608",
        title: "profile of no size",
        text: "A profile names sizes, consts and dtype parameters of its op.

wrong:
    op f[M, N](x: f32[M, N]) -> (y: f32[M]) {
        y[m] = sum[n](x[m, n])
    }
    profile f Q = 1..=64

right:
    profile f M = 1..=64, N = 4096
",
    },
    Code {
        code: "E0609",
        title: "a setting that cannot be followed",
        text: "A setting of a `tile` block, or of a schedule given to a run, is followed by the kernels it speaks of or refused. The
planner decides which form a kernel has (`--json` and `girih emit --stage plan` name it); a form follows the settings
that mean something to it, and values that fit the target. What only wishes or allows (`vector`, `atomic`, `accumulate`)
is never refused; of several values the first that fits is taken.

wrong:
    op f[M, N](x: f32[M, N]) -> (y: f32[M, N]) {
        y[m, n] = x[m, n] + 1.0
    }
    tile f { stages = 3 }

right:
    tile f { block m = 8, n = 32  threads = 256 }
",
    },
    Code {
        code: "E0610",
        title: "a setting that is said twice",
        text: "A setting is said once of the same kernels for the same target. A block for some targets (`for sm_80`) counts more than one
for all, and a block of one definition (`tile op.name`) more than one of the op.

wrong:
    tile f { block m = 64 }
    tile f { block m = 128  warps = 4 }

right:
    tile f { block m = {64, 128}  warps = 4 }

right:
    tile f { block m = 64  warps = 4 }
    tile f for sm_80 { block m = 128 }
",
    },
];
