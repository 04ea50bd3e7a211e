//! The fixed default of each form: one configuration that never looks at the shape, as a kernel written by hand has it.
//! Reports measure it beside the forms' own choices, which do look at the shape. The algorithm is the form's own (a
//! transposition through shared memory stays one, and a stencil's rows of points); only the settings are fixed.

use crate::space::{KernelSpace, Space};
use girih_compiler::ir::graph::Word;
use girih_compiler::ir::plan::{Form, Plan};
use girih_compiler::lower::schedule::word_text;
use girih_compiler::lower::{Schedule, plan_to_program};
use girih_compiler::vocab::target::Target;

/// Form, setting, and its value at every shape.
const FIXED: &[(Form, &str, &str)] = &[
    (Form::Map, "threads", "256"),
    (Form::Map, "vector", "4"),
    (Form::Row, "threads", "256"),
    (Form::Row, "block", "1"),
    (Form::Row, "hold", "registers"),
    (Form::Contract, "block", "128"),
    (Form::Contract, "step", "64"),
    (Form::Contract, "stages", "4"),
    (Form::Contract, "split", "1"),
    (Form::Contract, "cluster", "1"),
    (Form::Contract, "warpgroups", "2"),
    (Form::Contract, "order", "swizzle(8)"),
    (Form::Contract, "persistent", "off"),
    (Form::Fold, "block", "128"),
    (Form::Fold, "step", "128"),
    (Form::Fold, "stages", "2"),
    (Form::Scan, "threads", "256"),
    (Form::Sort, "threads", "256"),
    (Form::Scatter, "threads", "256"),
    (Form::Thread, "threads", "256"),
    (Form::Block, "threads", "256"),
    (Form::Step, "threads", "256"),
];

/// The point of a plan's space that is every kernel's fixed default. A setting that a kernel's form refuses at this
/// shape is left to the form; so is one whose value a `tile` block excludes.
pub fn points(plan: &Plan, target: &Target, space: &Space) -> Vec<u64> {
    let mut points = vec![0; space.kernels.len()];
    for (i, k) in space.kernels.iter().enumerate() {
        points[i] = point(plan, target, k);
    }
    points
}

/// The same as a schedule.
pub fn schedule(plan: &Plan, target: &Target, space: &Space) -> Schedule {
    let mut schedule = Schedule::default();
    space.kernels.iter().zip(points(plan, target, space)).for_each(|(k, p)| k.add(p, &mut schedule));
    schedule
}

fn point(plan: &Plan, target: &Target, k: &KernelSpace) -> u64 {
    if k.form == Form::Map && turns(plan, target, k) {
        return 0;
    }
    let mut digits: Vec<usize> = k.choices.iter().map(|c| fixed(k.form, &c.key, &c.values)).collect();
    loop {
        let mut schedule = Schedule::default();
        k.add(k.point(&digits), &mut schedule);
        let Err(why) = plan_to_program(plan, target, &schedule) else { return k.point(&digits) };
        let blamed = |i: &usize| why.setting.as_ref().is_some_and(|s| k.choices[*i].is_named(s));
        let set: Vec<usize> = (0..digits.len()).filter(|&i| digits[i] > 0).collect();
        let Some(&drop) = set.iter().find(|i| blamed(i)).or(set.last()) else { return 0 };
        digits[drop] = 0;
    }
}

/// Whether a map goes through shared memory, or takes rows of a stencil's points: what its threads and vectors are then is
/// fixed, and to set them would choose another algorithm.
fn turns(plan: &Plan, target: &Target, k: &KernelSpace) -> bool {
    let Ok(program) = plan_to_program(plan, target, &Schedule::default()) else { return false };
    let rows = program.forms.iter().filter(|f| f.kernel == k.kernel).flat_map(|f| &f.simt);
    let shared = rows.into_iter().any(|&i| !program.kernels[i].shared.is_empty());
    shared || k.choices.iter().any(|c| c.key == "unroll")
}

/// The digit of a setting's fixed value; 0 where there is none. Tiles that are larger than the whole axis are not among the
/// values: the largest of them is one tile as well.
fn fixed(form: Form, key: &str, values: &[Word]) -> usize {
    let Some((.., wanted)) = FIXED.iter().find(|f| f.0 == form && f.1 == key) else { return 0 };
    let same = values.iter().position(|v| word_text(v) == *wanted);
    let below = || match (values.last(), wanted.parse::<i64>()) {
        (Some(Word::Int(most)), Ok(n)) if *most < n => Some(values.len() - 1),
        _ => None,
    };
    same.or_else(below).map_or(0, |at| at + 1)
}
