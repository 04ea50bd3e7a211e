//! A prepared launch as a CUDA graph: one driver call for a whole program.

use crate::device::Device;
use crate::driver::check;
use crate::error::Result;
use crate::launch::Prepared;
use crate::stream::Stream;
use cudarc::driver::sys;

/// A captured program. It holds addresses: the memory that was bound when it was captured must stay.
#[derive(Debug)]
pub struct Graph {
    captured: Captured,
    // The workspace and the loaded kernels must outlive the graph.
    _prepared: Prepared,
}

impl Graph {
    /// Captures a launch.
    pub fn capture(mut prepared: Prepared) -> Result<Graph> {
        let device = prepared.executable().device().clone();
        let captured = Captured::new(&device, |stream| prepared.launch(stream))?;
        Ok(Graph { captured, _prepared: prepared })
    }

    /// Starts the whole program on a stream.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        self.captured.launch(stream)
    }
}

/// Captured work, ready to be launched. What it uses must outlive it.
#[derive(Debug)]
pub(crate) struct Captured {
    device: Device,
    graph: sys::CUgraph,
    instance: sys::CUgraphExec,
}

// SAFETY: the driver's graph functions may be called from any thread, one at a time for one graph.
unsafe impl Send for Captured {}

impl Captured {
    /// Captures what `launch` starts on the stream that it is given.
    pub fn new(device: &Device, launch: impl FnOnce(&Stream) -> Result<()>) -> Result<Captured> {
        let stream = Stream::new(device)?;
        let _entered = device.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is ours and idle.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream.raw(), mode) })?;
        let launched = launch(&stream);
        let mut graph = std::ptr::null_mut();
        // SAFETY: the capture was begun above and must be ended whatever happened.
        let ended = check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(stream.raw(), &mut graph) });
        let mut captured = Captured { device: device.clone(), graph, instance: std::ptr::null_mut() };
        launched?;
        ended?;
        // SAFETY: the graph is whole.
        check("cuGraphInstantiate", unsafe {
            sys::cuGraphInstantiateWithFlags(&mut captured.instance, captured.graph, 0)
        })?;
        Ok(captured)
    }

    pub fn launch(&self, stream: &Stream) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: the instance and the stream are live.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.instance, stream.raw()) })
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        let Ok(_entered) = self.device.enter() else { return };
        // SAFETY: both were made by `new` and are destroyed once.
        unsafe {
            if !self.instance.is_null() {
                sys::cuGraphExecDestroy(self.instance);
            }
            if !self.graph.is_null() {
                sys::cuGraphDestroy(self.graph);
            }
        }
    }
}
