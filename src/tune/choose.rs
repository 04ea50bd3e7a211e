//! Which configuration an op gets where nobody says: the record of its exact key, else the nearest record of its family
//! if the model thinks no worse of it than of the forms' own choice, else the forms' own choice.

use super::store;
use crate::device::Device;
use crate::error::Result;
use crate::execute::{Compiled, Origin};
use crate::kernel::{BoundOp, Kernel};
use crate::pipeline::Fusion;
use girih_autotune::database::{Database, Key, Record, nearest};
use girih_autotune::protocol::Configuration;
use girih_autotune::{model, prune};
use girih_compiler::lower::Schedule;
use girih_runtime::cache::code_digest;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Farther than so many octaves, a shape is no neighbour.
const FAR: f64 = 4.0;

/// A configuration, and where it comes from.
#[derive(Clone, Debug)]
pub enum Choice {
    /// The forms' own.
    Own,
    /// The record of this very op, shape and device.
    Tuned(Box<Record>),
    /// Of another shape.
    Near(Box<Record>, String),
}

/// Looks an op up. Notes say what was damaged or stale.
pub fn choose(bound: &BoundOp, device: &Device, notes: &mut Vec<String>) -> Result<Choice> {
    choose_in(&store::database(), bound, device, notes)
}

pub fn choose_in(
    database: &Database,
    bound: &BoundOp,
    device: &Device,
    notes: &mut Vec<String>,
) -> Result<Choice> {
    if database.layers().iter().all(|l| !l.is_dir()) {
        return Ok(Choice::Own);
    }
    let key = store::key(bound, device)?;
    if let Some(record) = database.get(&key, notes) {
        return Ok(Choice::Tuned(Box::new(record)));
    }
    let family = database.family(&key, notes);
    let near = nearest(&key.dims, &family).filter(|(far, _)| *far <= FAR);
    let Some((_, entry)) = near else { return Ok(Choice::Own) };
    Ok(match is_no_worse(bound, device, &entry.record.configuration)? {
        true => Choice::Near(Box::new(entry.record.clone()), entry.key.shape()),
        false => Choice::Own,
    })
}

/// Whether the model thinks no worse of a configuration than of the forms' own choice.
fn is_no_worse(bound: &BoundOp, device: &Device, c: &Configuration) -> Result<bool> {
    let target = device.target()?;
    let Some(configured) = configured(bound, c) else { return Ok(false) };
    let time = |b: &BoundOp| -> Result<Option<f64>> {
        let judged = prune::judge(&b.plan(device)?, &target, b.op().settings());
        Ok(judged.ok().map(|p| model::predict(&p, &target)))
    };
    Ok(match (time(&configured)?, time(bound)?) {
        (Some(near), Some(own)) => near <= own * 1.02,
        (near, _) => near.is_some(),
    })
}

/// The op under a configuration; `None` if it cannot be read.
pub fn configured(bound: &BoundOp, c: &Configuration) -> Option<BoundOp> {
    let fusion = if c.fusion.is_empty() { Some(Fusion::default()) } else { Fusion::parse(&c.fusion) };
    let schedule = Schedule::parse(&c.schedule).ok()?;
    Some(bound.with_schedule(schedule).with_fusion(fusion?))
}

/// Compiles an op with the configuration that is chosen for it; with the forms' own if that one is stale.
pub fn compile(bound: &BoundOp, device: &Device) -> Result<Compiled> {
    let mut notes = Vec::new();
    let start = Instant::now();
    let choice = choose(bound, device, &mut notes)?;
    // A damaged record is met twice, for its own sizes and among its family.
    notes.dedup();
    let lookup = start.elapsed();
    let chosen = match &choice {
        Choice::Own => None,
        Choice::Tuned(r) | Choice::Near(r, _) => configured(bound, &r.configuration),
    };
    let made = chosen.map(|c| c.compile_as_is(device));
    let compiled = match (made, &choice) {
        (Some(Ok(compiled)), Choice::Tuned(record)) if !is_code(&compiled, record) => {
            let why = "the tuning record is stale (it speaks of other code than this compiler makes) and is not used";
            notes.push(format!("{why}: girih tune renews it"));
            bound.compile_as_is(device)?
        }
        (Some(Ok(compiled)), Choice::Tuned(record)) => {
            notes.push(format!("tuned: {:.1} us when it was measured", record.us));
            compiled.with_origin(Origin::Record(record.us))
        }
        (Some(Ok(compiled)), Choice::Near(_, shape)) => {
            notes.push(format!("tuned at {shape}"));
            compiled.with_origin(Origin::NearestRecord(shape.clone()))
        }
        // What cannot be lowered or compiled any more is no reason not to run.
        (Some(Err(e)), Choice::Tuned(_)) => {
            let why = "the tuning record is not used, its configuration fails";
            notes.push(format!("{why} ({}): girih tune renews it", e.text()));
            bound.compile_as_is(device)?
        }
        _ => bound.compile_as_is(device)?,
    };
    Ok(compiled.with_notes(notes).with_lookup(lookup))
}

/// Whether a record speaks of the code that was generated now.
pub fn is_code(compiled: &Compiled, record: &Record) -> bool {
    compiled.lowered().is_some_and(|l| code_digest(&l.cuda) == record.code)
}

/// Compiled ops by their sizes: a look-up after the first costs well under a microsecond.
pub struct Dispatch {
    kernel: Kernel,
    op: String,
    device: Device,
    consts: Vec<(String, String)>,
    /// Names of the sizes, in the order in which they are given.
    sizes: Vec<String>,
    made: HashMap<Box<[i64]>, Arc<Compiled>>,
}

impl Dispatch {
    /// For an op whose sizes are given in this order.
    pub fn new(
        kernel: &Kernel,
        op: &str,
        sizes: &[&str],
        consts: &[(&str, &str)],
        device: &Device,
    ) -> Result<Dispatch> {
        kernel.op(op)?;
        Ok(Dispatch {
            kernel: kernel.clone(),
            op: op.to_string(),
            device: device.clone(),
            consts: consts.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            sizes: sizes.iter().map(|s| s.to_string()).collect(),
            made: HashMap::new(),
        })
    }

    /// The op for these sizes: compiled the first time with its own record, the nearest one, or the forms' own choice.
    pub fn get(&mut self, sizes: &[i64]) -> Result<&Arc<Compiled>> {
        if !self.made.contains_key(sizes) {
            let op = self.kernel.op(&self.op)?;
            let op = self.sizes.iter().zip(sizes).fold(op, |op, (name, &n)| op.dim(name, n));
            let op = self.consts.iter().fold(op, |op, (name, value)| op.constant(name, value));
            let compiled = Arc::new(op.compile(&self.device)?);
            self.made.insert(sizes.into(), compiled);
        }
        Ok(&self.made[sizes])
    }
}

/// The key of an op on a device, for what lists records.
pub fn key(bound: &BoundOp, device: &Device) -> Result<Key> {
    store::key(bound, device)
}
