//! What cannot run is not compiled: a point is lowered, and the exact limits of the target are held against the
//! kernels that it became. What is left has a predicted time.

use crate::model;
use crate::protocol::{Failure, FailureKind};
use girih_compiler::ir::plan::Plan;
use girih_compiler::ir::program::Program;
use girih_compiler::ir::simt::{Intrinsic, Kernel, Place, Stmt};
use girih_compiler::lower::{Schedule, plan_to_program};
use girih_compiler::vocab::target::Target;

/// Words of its arrays that a thread may have before they are certain to spill.
const MOST_WORDS: u32 = 255;

/// Lowers a schedule and holds it against the target.
pub fn judge(plan: &Plan, target: &Target, schedule: &Schedule) -> Result<Program, Failure> {
    let program = plan_to_program(plan, target, schedule).map_err(|r| {
        let setting = r.setting.map_or(String::new(), |s| format!("{s}: "));
        Failure::new(FailureKind::Refused, format!("{setting}{}", r.message))
    })?;
    program.kernels.iter().try_for_each(|k| fits(k, target))?;
    Ok(program)
}

/// Whether the target can launch a kernel.
pub fn fits(k: &Kernel, target: &Target) -> Result<(), Failure> {
    let limit = |what: &str, needs: u64, has: u64| {
        if needs <= has {
            return Ok(());
        }
        let kind = if what.contains("memory") { FailureKind::Memory } else { FailureKind::Refused };
        Err(Failure::new(kind, format!("{} needs {needs} {what} and {} has {has}", k.name, target.name)))
    };
    let cluster: u32 = k.cluster.iter().map(|&c| c.max(1)).product();
    limit("bytes of shared memory for a block", k.shared_bytes().into(), target.shared_per_block.into())?;
    limit("threads of a block", k.threads().into(), 1024)?;
    limit("blocks of a cluster", cluster.into(), if target.clusters { 8 } else { 1 })?;
    limit("blocks along x", k.grid[0].into(), (1 << 31) - 1)?;
    limit("blocks along y", k.grid[1].into(), 65535)?;
    limit("blocks along z", k.grid[2].into(), 65535)?;
    for (blocks, cluster) in k.grid.iter().zip(k.cluster) {
        if blocks % cluster.max(1) != 0 {
            let what = format!("{}: {blocks} blocks do not divide into clusters of {cluster}", k.name);
            return Err(Failure::new(FailureKind::Refused, what));
        }
    }
    let words = registers(k);
    limit("registers of a thread", words.into(), MOST_WORDS.into())?;
    // Where warps give registers back for others to take, those that hold sums have more than a thread's share.
    let threads = k.threads().next_multiple_of(32);
    let held = if gives_back(k) { threads.saturating_sub(WARPGROUP) } else { threads };
    limit("registers of a block", u64::from(words) * u64::from(held), target.registers_per_sm.into())?;
    if model::resident(k, target) == 0 {
        let what = format!("{}: not one block fits on a multiprocessor of {}", k.name, target.name);
        return Err(Failure::new(FailureKind::Refused, what));
    }
    Ok(())
}

/// Threads that give registers back together, and hold no sums.
const WARPGROUP: u32 = 128;

/// Whether some warps give registers back.
fn gives_back(k: &Kernel) -> bool {
    k.any(&|s| matches!(s, Stmt::Intrinsic { op: Intrinsic::SetMaxRegisters { more: false, .. }, .. }))
}

/// Words that a thread's arrays need, its registers at least. An array that is indexed at run time lies in memory;
/// only the accumulators of matrix instructions are sure to be registers.
fn registers(k: &Kernel) -> u32 {
    let mut held = std::collections::BTreeSet::new();
    let mut todo: Vec<&Stmt> = k.body.iter().collect();
    while let Some(s) = todo.pop() {
        match s {
            Stmt::For { body, .. } | Stmt::While { body, .. } => todo.extend(body),
            Stmt::If { then, otherwise, .. } => todo.extend(then.iter().chain(otherwise)),
            Stmt::Intrinsic { op: Intrinsic::Wgmma { .. } | Intrinsic::MmaM16N8K16 { .. }, outs, .. } => {
                held.extend(outs.iter().filter_map(|o| match o {
                    Place::Elem(a, _) => Some(*a),
                    Place::Var(_) => None,
                }));
            }
            _ => {}
        }
    }
    held.iter().map(|a| k.arrays[a.0 as usize].len).sum()
}
