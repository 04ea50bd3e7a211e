//! Launches on the caller's device memory and stream.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::execute::Compiled;
use girih_compiler::vocab::dtype::Value;
use girih_runtime::buffer::alignment;
use girih_runtime::launch::{Arguments, Prepared, workspace_bytes};
use girih_runtime::{DevicePointer, Executable, Graph, Stream};
use std::collections::BTreeMap;

/// A launch with everything checked and bound: it may be launched as often as wanted.
#[derive(Debug)]
pub struct Launch {
    prepared: Prepared,
    compiled: Compiled,
}

impl Launch {
    /// Starts the work and returns at once; allocates nothing, so it may be captured in a CUDA graph.
    pub fn launch(&mut self, stream: &Stream) -> Result<()> {
        Ok(self.prepared.launch(stream)?)
    }

    /// Starts each part of the work in order, with the names of its kernels: for profiles.
    pub(crate) fn launch_parts(
        &mut self,
        stream: &Stream,
        each: &mut dyn FnMut(&[String], &mut dyn FnMut() -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        for part in 0..self.prepared.parts().len() {
            let program = self.prepared.executable().program();
            let kernels = self.prepared.parts()[part].iter();
            let names: Vec<String> = kernels.map(|&k| program.kernels[k].name.clone()).collect();
            each(&names, &mut || Ok(self.prepared.launch_part(part, stream)?))?;
        }
        Ok(())
    }

    /// Fills results and workspace with NaN patterns, so that what is not written shows.
    pub fn poison(&mut self, stream: &Stream) -> Result<()> {
        Ok(self.prepared.poison(0xff, stream)?)
    }

    /// Whether the work that the stream has finished met a fault. Wait for the stream first.
    pub fn status(&self) -> Result<()> {
        match self.prepared.fault()? {
            None => Ok(()),
            Some(fault) => {
                Err(self.compiled.fault(self.prepared.executable().program(), fault.site, fault.value))
            }
        }
    }

    /// The same as a CUDA graph: one driver call however many kernels there are.
    pub fn into_graph(self) -> Result<Graph> {
        Ok(Graph::capture(self.prepared)?)
    }
}

impl Compiled {
    /// Bytes of workspace that a launch needs.
    pub fn workspace_bytes(&self) -> u64 {
        self.lowered().map_or(0, |l| workspace_bytes(&l.program))
    }

    /// Binds device memory to inputs, `inout`s and results by name, with a workspace of its own. Scalars that are
    /// not given take their defaults.
    pub fn prepare(&self, memory: &[(&str, DevicePointer)], scalars: &[(&str, Value)]) -> Result<Launch> {
        self.prepare_in(memory, scalars, None)
    }

    /// The same in the caller's workspace of [`Compiled::workspace_bytes`], aligned to 256 bytes.
    pub fn prepare_in(
        &self,
        memory: &[(&str, DevicePointer)],
        scalars: &[(&str, Value)],
        workspace: Option<DevicePointer>,
    ) -> Result<Launch> {
        let buffers: BTreeMap<String, DevicePointer> =
            memory.iter().map(|(n, p)| (n.to_string(), *p)).collect();
        let executable = self.fitting(&buffers)?;
        let (known, _) = self.bound().scalars();
        let mut all: BTreeMap<String, Value> = known.into_iter().collect();
        all.extend(scalars.iter().map(|(n, v)| (n.to_string(), *v)));
        // Whatever alignment the memory has, the executable was chosen for it.
        let arguments = Arguments { buffers, scalars: all, alignment: BTreeMap::new(), workspace };
        Ok(Launch { prepared: Prepared::new(&executable, &arguments)?, compiled: self.clone() })
    }

    /// The program, or a variant of it with narrower accesses where an address is aligned to less than the program
    /// was compiled for. Variants are kept, by alignment.
    fn fitting(&self, memory: &BTreeMap<String, DevicePointer>) -> Result<Executable> {
        let Some(own) = self.executable() else {
            let what = format!("it is {}, which takes no device memory: use run", self.device());
            return Err(Error::argument("device", what));
        };
        let short: BTreeMap<String, u32> = self
            .alignment()
            .into_iter()
            .filter_map(|(name, wanted)| {
                let has = memory.get(&name).filter(|p| p.address != 0).map(|p| alignment(p.address))?;
                (has < wanted).then_some((name, has))
            })
            .collect();
        if short.is_empty() {
            return Ok(own.clone());
        }
        self.variants().get_or_make(&short, || {
            let variant = self.bound().with_alignment(&short).compile(self.device())?;
            Ok(variant.executable().expect("compiled for the same device").clone())
        })
    }
}

impl Device {
    /// A stream of its own on a GPU.
    pub fn stream(&self) -> Result<Stream> {
        match self {
            Device::Cuda(gpu) => Ok(Stream::new(gpu)?),
            _ => Err(Error::argument("device", format!("it is {self}, which has no streams"))),
        }
    }
}
