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
    device: Device,
    graph: sys::CUgraph,
    instance: sys::CUgraphExec,
    // The workspace and the loaded kernels must outlive the graph.
    _prepared: Prepared,
}

// SAFETY: the driver's graph functions may be called from any thread, one at a time for one graph.
unsafe impl Send for Graph {}

impl Graph {
    /// Captures a launch.
    pub fn capture(mut prepared: Prepared) -> Result<Graph> {
        let device = prepared.executable().device().clone();
        let stream = Stream::new(&device)?;
        let _entered = device.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is ours and idle.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream.raw(), mode) })?;
        let launched = prepared.launch(&stream);
        let mut graph = std::ptr::null_mut();
        // SAFETY: the capture was begun above and must be ended whatever happened.
        let ended = check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(stream.raw(), &mut graph) });
        launched?;
        ended?;
        let mut instance = std::ptr::null_mut();
        // SAFETY: the graph is whole.
        let made =
            check("cuGraphInstantiate", unsafe { sys::cuGraphInstantiateWithFlags(&mut instance, graph, 0) });
        let graph = Graph { device: device.clone(), graph, instance, _prepared: prepared };
        made?;
        Ok(graph)
    }

    /// Starts the whole program on a stream.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: the instance and the stream are live.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.instance, stream.raw()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let Ok(_entered) = self.device.enter() else { return };
        // SAFETY: both were made by `capture` and are destroyed once.
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
