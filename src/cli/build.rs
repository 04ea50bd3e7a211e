//! `girih build`: what runs without the compiler.

use super::Outcome;
use super::args::BuildArgs;
use girih::{Device, Result, package};

pub fn build(args: &BuildArgs) -> Result<Outcome> {
    let mut points = super::tune::covered(&args.op)?;
    if let Some(schedule) = super::run::settings(args.op.schedule.as_deref())? {
        points.iter_mut().for_each(|p| p.op = p.op.clone().schedule(schedule.clone()));
    }
    let target = args.op.target.map_or_else(|| Device::sim().target(), Ok)?;
    if args.op.schedule.is_some() {
        for point in &points {
            super::run::say_fewer_parts(&args.op, &point.op.bind()?, &Device::Simulator(target))?;
        }
    }
    for file in package::build(&points, &args.op.file, target, &args.out)? {
        super::print(&format!("{}\n", file.display()));
    }
    Ok(Outcome::Right)
}
