//! `girih emit` and `girih why`: the stages of the way, and the reasons.

use super::Outcome;
use super::args::{OpArgs, StageArg};
use super::run::{choose, say_fewer_parts, say_unused_form, schedules_of};
use girih::device::DeviceName;
use girih::pipeline::Level;
use girih::{BoundOp, Device, Error, Result};
use girih_compiler::ir::graph_text;
use girih_compiler::pass::graph_to_plan::{PlanOptions, egraph_text};
use girih_runtime::child;
use std::path::Path;

/// Plans that `emit --stage plan` speaks of.
const PLANS: usize = 4;

pub fn emit(args: &OpArgs, stage: StageArg) -> Result<Outcome> {
    let op = choose(args)?;
    if stage == StageArg::Ast {
        super::print(&format!("{:#?}\n", op.ast()));
        return Ok(Outcome::Right);
    }
    let device = Device::open(DeviceName::Sim, args.target)?;
    let each = args.schedule.as_deref() == Some("each");
    let bound = op.bind()?;
    say_unused_form(args, &bound, &device)?;
    for (schedule, bound) in schedules_of(bound, &device, args.schedule.as_deref())? {
        if let Some(schedule) = schedule.filter(|_| each) {
            super::print(&format!("// schedule {schedule}\n"));
        }
        say_fewer_parts(args, &bound, &device)?;
        super::print(&emitted(&bound, op.name(), &device, stage)?);
    }
    Ok(Outcome::Right)
}

/// A stage of an op that is bound, as text.
fn emitted(bound: &BoundOp, name: &str, device: &Device, stage: StageArg) -> Result<String> {
    match stage {
        StageArg::Tile => return Ok(girih::text::tiles(&bound.tiles(device)?)),
        StageArg::Plan => return Ok(girih::text::plans(&bound.plans(device, PLANS)?)),
        _ => {}
    }
    let mut text = None;
    let compiled = bound.compile_seeing(device, &mut |level| {
        let wanted = match (&level, stage) {
            (Level::Graph(g), StageArg::Graph) => Some(graph_text::print(g)),
            (Level::Graph(g), StageArg::Egraph) => Some(egraph_text(g, &PlanOptions::default())),
            (Level::Simt(p), StageArg::Simt) => Some(girih::text::program(p)),
            (Level::Cuda(c), StageArg::Cuda) => Some(c.to_string()),
            _ => None,
        };
        text = text.take().or(wanted);
    });
    if let Some(text) = text {
        return Ok(text);
    }
    let compiled = compiled?;
    let lowered = compiled.lowered().ok_or_else(|| Error::Refused("nothing was lowered".into()))?;
    let target = device.target()?.name;
    if stage == StageArg::Sass {
        let cubin = child::compile(name, &lowered.cuda, target)?.cubin;
        return disassembled(&cubin);
    }
    Ok(child::ptx(name, &lowered.cuda, target)?)
}

/// The text of a cubin by cuobjdump: the one that `GIRIH_CUOBJDUMP` names, or of the search path.
fn disassembled(cubin: &[u8]) -> Result<String> {
    let tool = std::env::var_os("GIRIH_CUOBJDUMP").unwrap_or_else(|| "cuobjdump".into());
    let path = std::env::temp_dir().join(format!("girih-{}.cubin", std::process::id()));
    std::fs::write(&path, cubin).map_err(|e| Error::file(&path, e.to_string()))?;
    // It looks for nvdisasm on the search path, which lies beside it.
    let beside = Path::new(&tool).parent().map(Path::to_path_buf);
    let known = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(std::env::split_paths(&known));
    let folders = std::env::join_paths(folders).unwrap_or(known.clone());
    let run = std::process::Command::new(&tool).arg("-sass").arg(&path).env("PATH", folders).output();
    // A file that is left in the folder for temporary ones does no harm.
    let _ = std::fs::remove_file(&path);
    let remedy =
        "install it (PyPI: nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm) and name it in GIRIH_CUOBJDUMP";
    match run {
        Ok(out) if out.status.success() => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        Ok(out) => Err(Error::argument("stage", String::from_utf8_lossy(&out.stderr).trim().to_string())),
        Err(e) => Err(Error::argument("stage", format!("sass needs cuobjdump ({e}): {remedy}"))),
    }
}

pub fn why(args: &OpArgs) -> Result<Outcome> {
    let op = choose(args)?;
    let device = Device::open(DeviceName::Sim, args.target)?;
    let bound = op.bind()?;
    say_unused_form(args, &bound, &device)?;
    super::print(&girih::text::why(&bound.plans(&device, PLANS)?));
    Ok(Outcome::Right)
}
