//! Launches: a program with its arguments bound, checked once and then launched without allocation.
//!
//! `prepare` checks every argument by the user's name (there, on this device, long enough, aligned as the program
//! was compiled for, no forbidden overlap), lays the workspace out and flattens the program's steps into driver
//! calls over one block of argument slots. `launch` then only walks that list.

use crate::buffer::{DeviceBuffer, DevicePointer, alignment, download, upload};
use crate::driver::check;
use crate::error::{Error, Result};
use crate::executable::{Executable, LoadedKernel};
use crate::graph::Captured;
use crate::stream::Stream;
use crate::tensor_map;
use cudarc::driver::sys;
use girih_compiler::ir::program::{Arg, Buffer, BufferRole, Launch, Program, Step};
use girih_compiler::ir::simt::ParamKind;
use girih_compiler::vocab::dtype::{DType, Value};
use std::collections::BTreeMap;
use std::ffi::c_void;

/// Alignment of every part of the workspace.
const PART: u64 = 256;
/// Bytes of the fault buffer.
const FAULT_BYTES: u64 = 32;

/// The caller's side of a launch: memory for inputs, `inout`s and results, and scalars, by name.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    pub buffers: BTreeMap<String, DevicePointer>,
    pub scalars: BTreeMap<String, Value>,
    /// Bytes that an argument's address must be a multiple of, where the program was compiled for more than its
    /// element's size.
    pub alignment: BTreeMap<String, u32>,
    /// Memory for intermediate values, of [`workspace_bytes`]; the prepared launch has its own if it is not given.
    pub workspace: Option<DevicePointer>,
}

/// A fault that a kernel recorded: its row in the program's table, and the index or value that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub site: usize,
    pub value: i64,
}

/// Bytes of workspace that a launch of this program needs.
pub fn workspace_bytes(program: &Program) -> u64 {
    program.buffers.iter().filter(|b| is_internal(b)).map(part_bytes).sum::<u64>().max(PART)
}

fn is_internal(buffer: &Buffer) -> bool {
    matches!(buffer.role, BufferRole::Workspace | BufferRole::Constant(_) | BufferRole::Fault)
}

fn part_bytes(buffer: &Buffer) -> u64 {
    let bytes = if buffer.role == BufferRole::Fault {
        FAULT_BYTES.max(buffer.bytes as u64)
    } else {
        buffer.bytes as u64
    };
    bytes.max(1).next_multiple_of(PART)
}

/// The user's name of a buffer, for those that the caller gives.
pub fn argument_name(buffer: &Buffer) -> Option<&str> {
    match &buffer.role {
        BufferRole::Input(_) => Some(&buffer.name),
        BufferRole::Inout(_, name) | BufferRole::Output(name) => Some(name),
        _ => None,
    }
}

fn is_written(buffer: &Buffer) -> bool {
    matches!(buffer.role, BufferRole::Inout(..) | BufferRole::Output(_))
}

/// A launch that is ready to go. Launch it as often as wanted, from one thread at a time.
#[derive(Debug)]
pub struct Prepared {
    executable: Executable,
    pointers: Vec<DevicePointer>,
    fault: Option<DevicePointer>,
    calls: Vec<Call>,
    /// Kernels of each call.
    parts: Vec<Vec<usize>>,
    /// Argument values; a call's are at `first..`.
    slots: Box<[u64]>,
    /// One pointer into `slots` for each slot: what the driver is given.
    slot_pointers: Box<[*mut c_void]>,
    /// Tensor maps, to which their slots' pointers point.
    _maps: Box<[sys::CUtensorMap]>,
    _workspace: Option<DeviceBuffer>,
}

// SAFETY: the pointers point into `slots` and `_maps`, which move with the value without moving their contents.
unsafe impl Send for Prepared {}

/// One driver call.
#[derive(Debug)]
enum Call {
    Launch {
        kernel: LoadedKernel,
        first: usize,
    },
    Fill {
        to: DevicePointer,
        byte: u8,
    },
    Copy {
        from: DevicePointer,
        to: DevicePointer,
    },
    /// `counters` are the slots that hold the counter of this loop. `graph` is the whole loop in one driver call.
    Repeat {
        count: i64,
        counters: Vec<usize>,
        calls: Vec<Call>,
        graph: Option<Captured>,
    },
}

/// Driver calls of a loop from which on, and up to which, it is made a graph: fewer gain nothing, and more take memory
/// and time to prepare, since the loop's counter is an argument of each.
const GRAPH_CALLS: std::ops::RangeInclusive<i64> = 8..=16384;

impl Call {
    /// Driver calls that it stands for.
    fn count(&self) -> i64 {
        match self {
            Call::Repeat { count, calls, .. } => {
                count.saturating_mul(calls.iter().map(Call::count).fold(0, i64::saturating_add))
            }
            _ => 1,
        }
    }
}

impl Prepared {
    /// Checks the arguments and prepares the launch.
    pub fn new(executable: &Executable, arguments: &Arguments) -> Result<Prepared> {
        let program = executable.program();
        let _entered = executable.device().enter()?;
        check_arguments(program, arguments)?;
        let workspace = own_workspace(executable, arguments)?;
        let base = workspace.as_ref().map(DeviceBuffer::pointer).or(arguments.workspace);
        let base = base.expect("own_workspace makes one where none is given");
        let pointers = place(program, arguments, base);
        for (buffer, pointer) in program.buffers.iter().zip(&pointers) {
            if let BufferRole::Constant(bytes) = &buffer.role {
                upload(executable.device(), *pointer, bytes)?;
            }
        }
        let scalars = scalar_slots(program, arguments)?;
        let mut builder = Builder {
            executable,
            pointers: &pointers,
            scalars: &scalars,
            slots: Vec::new(),
            maps: Vec::new(),
        };
        let (mut calls, mut parts) = (Vec::new(), Vec::new());
        for step in &program.steps {
            if let Some(call) = builder.step(step, &mut Vec::new()) {
                calls.push(call);
                parts.push(kernels(step));
            }
        }
        let (map_slots, maps): (Vec<usize>, Vec<_>) = builder.maps.into_iter().unzip();
        let mut maps = maps.into_iter().collect::<Result<Box<[_]>>>()?;
        let mut slots = builder.slots.into_boxed_slice();
        let mut slot_pointers: Box<[*mut c_void]> =
            slots.iter_mut().map(|s| std::ptr::from_mut(s).cast()).collect();
        for (slot, map) in map_slots.into_iter().zip(&mut maps) {
            slot_pointers[slot] = std::ptr::from_mut(map).cast();
        }
        let fault = fault_buffer(program, &pointers);
        let executable = executable.clone();
        if let Some(fault) = fault {
            upload(executable.device(), fault, &[0; FAULT_BYTES as usize])?;
        }
        let mut prepared = Prepared {
            executable,
            pointers,
            fault,
            calls,
            parts,
            slots,
            slot_pointers,
            _maps: maps,
            _workspace: workspace,
        };
        prepared.capture_loops();
        Ok(prepared)
    }

    /// Makes graphs of the loops. Where the driver refuses, a loop stays what it is.
    fn capture_loops(&mut self) {
        let device = self.executable.device().clone();
        let Prepared { calls, slots, slot_pointers, .. } = self;
        for call in calls.iter_mut().filter(|c| GRAPH_CALLS.contains(&c.count())) {
            if !matches!(call, Call::Repeat { .. }) {
                continue;
            }
            let captured =
                Captured::new(&device, |s| run(std::slice::from_ref(call), slots, slot_pointers, s));
            if let (Call::Repeat { graph, .. }, Ok(captured)) = (call, captured) {
                *graph = Some(captured);
            }
        }
    }

    pub fn executable(&self) -> &Executable {
        &self.executable
    }

    /// Starts the work on a stream of the same device, and returns at once. A fault is found by [`Prepared::fault`]
    /// after the stream has been waited for. Nothing is allocated, so the launch can be captured in a graph.
    pub fn launch(&mut self, stream: &Stream) -> Result<()> {
        let device = self.executable.device();
        if !device.same(stream.device()) {
            return Err(Error::argument("stream", "it is of another device than the program was loaded on"));
        }
        let _entered = device.enter()?;
        run(&self.calls, &mut self.slots, &mut self.slot_pointers, stream)
    }

    /// Kernels (by their index in the program) of each part that [`Prepared::launch_part`] starts, in order.
    pub fn parts(&self) -> &[Vec<usize>] {
        &self.parts
    }

    /// Starts one part of the work alone: all parts in order are one launch. For profiles.
    pub fn launch_part(&mut self, part: usize, stream: &Stream) -> Result<()> {
        let _entered = self.executable.device().enter()?;
        run(&self.calls[part..=part], &mut self.slots, &mut self.slot_pointers, stream)
    }

    /// The first fault of the launches since the last call, if there was one. Wait for the stream first: this reads
    /// the device's memory.
    pub fn fault(&self) -> Result<Option<Fault>> {
        let Some(fault) = self.fault else { return Ok(None) };
        let mut bytes = [0u8; FAULT_BYTES as usize];
        download(self.executable.device(), fault, &mut bytes)?;
        let word = |i: usize| i64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().expect("eight bytes"));
        if word(0) == 0 {
            return Ok(None);
        }
        upload(self.executable.device(), fault, &[0; FAULT_BYTES as usize])?;
        Ok(Some(Fault { site: word(0) as usize - 1, value: word(1) }))
    }

    /// Sets results and intermediate values to a byte, so that what is not written shows. Not the fault buffer,
    /// the constants, or what the caller gives.
    pub fn poison(&self, byte: u8, stream: &Stream) -> Result<()> {
        let _entered = self.executable.device().enter()?;
        for (buffer, pointer) in self.executable.program().buffers.iter().zip(&self.pointers) {
            if matches!(buffer.role, BufferRole::Output(_) | BufferRole::Workspace) {
                fill(*pointer, byte, stream)?;
            }
        }
        Ok(())
    }
}

/// The kernels of a step, by their index in the program.
fn kernels(step: &Step) -> Vec<usize> {
    match step {
        Step::Launch(l) => vec![l.kernel],
        Step::Repeat { steps, .. } => steps.iter().flat_map(kernels).collect(),
        Step::Fill { .. } | Step::Copy { .. } => Vec::new(),
    }
}

fn run(calls: &[Call], slots: &mut [u64], pointers: &mut [*mut c_void], stream: &Stream) -> Result<()> {
    for call in calls {
        match call {
            Call::Launch { kernel, first } => launch_kernel(kernel, &mut pointers[*first..], stream)?,
            Call::Fill { to, byte } => fill(*to, *byte, stream)?,
            Call::Copy { from, to } => copy(*from, *to, stream)?,
            // A graph is not launched into a capture.
            Call::Repeat { graph: Some(graph), .. } if !stream.is_capturing()? => graph.launch(stream)?,
            Call::Repeat { count, counters, calls, .. } => {
                for i in 0..*count {
                    counters.iter().for_each(|&c| slots[c] = i as u64);
                    run(calls, slots, pointers, stream)?;
                }
            }
        }
    }
    Ok(())
}

fn launch_kernel(k: &LoadedKernel, args: &mut [*mut c_void], stream: &Stream) -> Result<()> {
    let ([gx, gy, gz], [bx, by, bz]) = (k.grid, k.block);
    if k.cluster.is_none() && !k.early {
        // SAFETY: the arguments match the kernel's parameters (`Builder::launch`), the memory behind them was checked,
        // and the driver copies the values before it returns.
        return check("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(
                k.function,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                k.shared,
                stream.raw(),
                args.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        });
    }
    // SAFETY: all-zero is a valid value of this plain C struct.
    let mut attributes: [sys::CUlaunchAttribute; 2] = unsafe { std::mem::zeroed() };
    let mut count = 0;
    if let Some([x, y, z]) = k.cluster {
        attributes[count].id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attributes[count].value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
        count += 1;
    }
    if k.early {
        attributes[count].id =
            sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[count].value.programmaticStreamSerializationAllowed = 1;
        count += 1;
    }
    let config = sys::CUlaunchConfig {
        gridDimX: gx,
        gridDimY: gy,
        gridDimZ: gz,
        blockDimX: bx,
        blockDimY: by,
        blockDimZ: bz,
        sharedMemBytes: k.shared,
        hStream: stream.raw(),
        attrs: attributes.as_mut_ptr(),
        numAttrs: count as u32,
    };
    // SAFETY: as above; the configuration lives through the call.
    check("cuLaunchKernelEx", unsafe {
        sys::cuLaunchKernelEx(&config, k.function, args.as_mut_ptr(), std::ptr::null_mut())
    })
}

fn fill(to: DevicePointer, byte: u8, stream: &Stream) -> Result<()> {
    if to.bytes == 0 {
        return Ok(());
    }
    // SAFETY: the memory was checked, or is ours.
    check("cuMemsetD8Async", unsafe {
        sys::cuMemsetD8Async(to.address, byte, to.bytes as usize, stream.raw())
    })
}

fn copy(from: DevicePointer, to: DevicePointer, stream: &Stream) -> Result<()> {
    let bytes = from.bytes.min(to.bytes) as usize;
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: both sides were checked, or are ours.
    check("cuMemcpyDtoDAsync", unsafe {
        sys::cuMemcpyDtoDAsync_v2(to.address, from.address, bytes, stream.raw())
    })
}

/// Refuses, by name, what would be wrong at launch.
fn check_arguments(program: &Program, arguments: &Arguments) -> Result<()> {
    let given: Vec<&Buffer> = program.buffers.iter().filter(|b| argument_name(b).is_some()).collect();
    if let Some(name) =
        arguments.buffers.keys().find(|n| !given.iter().any(|b| argument_name(b) == Some(n.as_str())))
    {
        return Err(Error::argument(name, format!("{} has no such argument", program.name)));
    }
    for buffer in &given {
        check_argument(buffer, arguments)?;
    }
    for a in given.iter().filter(|b| is_written(b)) {
        for b in &given {
            let (x, y) = (argument_name(a).unwrap_or(""), argument_name(b).unwrap_or(""));
            if x != y && used(a, arguments).overlaps(used(b, arguments)) {
                return Err(Error::argument(
                    x,
                    format!("its memory overlaps that of {y}, and it is written"),
                ));
            }
        }
    }
    Ok(())
}

/// The bytes of an argument that the program uses.
fn used(buffer: &Buffer, arguments: &Arguments) -> DevicePointer {
    let given = argument_name(buffer).and_then(|n| arguments.buffers.get(n));
    DevicePointer { address: given.map_or(0, |p| p.address), bytes: buffer.bytes as u64 }
}

fn check_argument(buffer: &Buffer, arguments: &Arguments) -> Result<()> {
    let name = argument_name(buffer).unwrap_or("");
    let refuse = |what: String| Err(Error::argument(name, what));
    let Some(pointer) = arguments.buffers.get(name) else { return refuse("it is not given".into()) };
    let needs = buffer.bytes as u64;
    if needs == 0 {
        return Ok(());
    }
    if pointer.bytes < needs {
        let shape = format!("{}{:?}", buffer.dtype.name(), buffer.dims);
        return refuse(format!("{} bytes are given and {needs} are needed for {shape}", pointer.bytes));
    }
    check_device_memory(*pointer, needs).or_else(refuse)?;
    let element = buffer.dtype.bits().div_ceil(8);
    let wanted = arguments.alignment.get(name).copied().unwrap_or(element).max(element).min(16);
    if alignment(pointer.address) < wanted {
        return refuse(format!(
            "its address {:#x} is not a multiple of {wanted} bytes, which this program was compiled for",
            pointer.address
        ));
    }
    Ok(())
}

/// Whether the driver knows the whole range as memory of a device (or managed memory).
fn check_device_memory(pointer: DevicePointer, needs: u64) -> std::result::Result<(), String> {
    if pointer.address == 0 {
        return Err("its address is null".into());
    }
    let mut kind = 0u32;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    // SAFETY: the driver only looks the address up, and writes a u32.
    let code = unsafe {
        sys::cuPointerGetAttribute(std::ptr::from_mut(&mut kind).cast(), attribute, pointer.address)
    };
    const DEVICE: u32 = 2;
    if code != sys::CUresult::CUDA_SUCCESS || kind != DEVICE {
        return Err(format!(
            "its address {:#x} is not device memory (freed, or a host pointer)",
            pointer.address
        ));
    }
    let (mut base, mut size) = (0, 0usize);
    // SAFETY: the driver only looks the address up.
    let code = unsafe { sys::cuMemGetAddressRange_v2(&mut base, &mut size, pointer.address) };
    if code == sys::CUresult::CUDA_SUCCESS && pointer.address + needs > base + size as u64 {
        return Err(format!(
            "{needs} bytes are needed and its allocation ends after {}",
            base + size as u64 - pointer.address
        ));
    }
    Ok(())
}

fn own_workspace(executable: &Executable, arguments: &Arguments) -> Result<Option<DeviceBuffer>> {
    let needs = workspace_bytes(executable.program());
    match arguments.workspace {
        None => DeviceBuffer::new(executable.device(), needs).map(Some),
        Some(w) if w.bytes < needs => {
            Err(Error::argument("workspace", format!("it has {} bytes and {needs} are needed", w.bytes)))
        }
        Some(w) if w.address % PART != 0 => Err(Error::argument(
            "workspace",
            format!("its address {:#x} is not a multiple of {PART}", w.address),
        )),
        Some(w) => check_device_memory(w, needs).map(|()| None).map_err(|e| Error::argument("workspace", e)),
    }
}

/// The memory of every buffer of the program.
fn place(program: &Program, arguments: &Arguments, base: DevicePointer) -> Vec<DevicePointer> {
    let mut at = 0;
    let mut place_one = |buffer: &Buffer| {
        if !is_internal(buffer) {
            return used(buffer, arguments);
        }
        let bytes = if buffer.role == BufferRole::Fault { FAULT_BYTES } else { buffer.bytes as u64 };
        let pointer = DevicePointer { address: base.address + at, bytes };
        at += part_bytes(buffer);
        pointer
    };
    program.buffers.iter().map(&mut place_one).collect()
}

/// The fault buffer, if a kernel can fault. It is cleared when it is read and not at each launch: kernels keep the
/// first fault that is recorded.
fn fault_buffer(program: &Program, pointers: &[DevicePointer]) -> Option<DevicePointer> {
    let at = program.buffers.iter().position(|b| b.role == BufferRole::Fault)?;
    (!program.faults.is_empty()).then(|| pointers[at])
}

/// The scalars' slots, in the program's order.
fn scalar_slots(program: &Program, arguments: &Arguments) -> Result<Vec<u64>> {
    if let Some(name) = arguments.scalars.keys().find(|n| !program.scalars.iter().any(|(s, _)| s == *n)) {
        return Err(Error::argument(name, format!("{} has no such scalar", program.name)));
    }
    let slot = |(name, dtype): &(String, DType)| match arguments.scalars.get(name) {
        None => Err(Error::argument(name, "it is not given")),
        Some(v) if v.ty() != dtype.compute() => {
            Err(Error::argument(name, format!("it is {} and {} is wanted", v.ty().name(), dtype.name())))
        }
        Some(v) => Ok(v.key().1),
    };
    program.scalars.iter().map(slot).collect()
}

/// Flattens steps into calls and argument slots.
struct Builder<'a> {
    executable: &'a Executable,
    pointers: &'a [DevicePointer],
    scalars: &'a [u64],
    slots: Vec<u64>,
    /// Tensor maps with their slots.
    maps: Vec<(usize, Result<sys::CUtensorMap>)>,
}

impl Builder<'_> {
    /// `counters` collects the slots that hold the counter of the loop around.
    fn steps(&mut self, steps: &[Step], counters: &mut Vec<usize>) -> Vec<Call> {
        steps.iter().filter_map(|s| self.step(s, counters)).collect()
    }

    fn step(&mut self, step: &Step, counters: &mut Vec<usize>) -> Option<Call> {
        let at = |b: &girih_compiler::ir::program::BufferId| self.pointers[b.0 as usize];
        match step {
            Step::Launch(launch) => self.launch(launch, counters),
            Step::Fill { buffer, byte } => Some(Call::Fill { to: at(buffer), byte: *byte }),
            Step::Copy { from, to } => Some(Call::Copy { from: at(from), to: at(to) }),
            Step::Repeat { count, steps } => {
                let mut own = Vec::new();
                let calls = self.steps(steps, &mut own);
                Some(Call::Repeat { count: *count, counters: own, calls, graph: None })
            }
        }
    }

    /// An empty grid is no launch.
    fn launch(&mut self, launch: &Launch, counters: &mut Vec<usize>) -> Option<Call> {
        let kernel = self.executable.kernel(launch.kernel);
        if kernel.grid.contains(&0) || kernel.block.contains(&0) {
            return None;
        }
        let first = self.slots.len();
        let params = &self.executable.program().kernels[launch.kernel].params;
        for (arg, param) in launch.args.iter().zip(params) {
            if let (ParamKind::TensorMap(map), Arg::Buffer(b)) = (&param.kind, arg) {
                self.maps.push((self.slots.len(), tensor_map::encode(map, self.pointers[b.0 as usize])));
            }
            if *arg == Arg::Counter {
                counters.push(self.slots.len());
            }
            self.slots.push(self.value(arg));
        }
        Some(Call::Launch { kernel, first })
    }

    /// Eight bytes that hold the argument in their low ones.
    fn value(&self, arg: &Arg) -> u64 {
        match arg {
            Arg::Buffer(b) => self.pointers[b.0 as usize].address,
            Arg::Scalar(s) => self.scalars[s.0 as usize],
            Arg::Const(v) => v.key().1,
            Arg::Counter => 0,
        }
    }
}
