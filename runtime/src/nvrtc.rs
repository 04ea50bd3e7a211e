//! NVRTC: CUDA C to a cubin for one real architecture.
//!
//! The library is loaded by path when it is first needed, with its own few symbols: a missing library, an old one
//! or a missing symbol is a typed error. Compilation is `--fmad=false` without fast math, so that the text means
//! on the GPU what the simulator does; the log is read on success too, and what it says about lost speed is kept.

use crate::error::{CompileError, Error, Result};
use crate::locate;
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

type Handle = *mut c_void;

/// The options every compilation gets; a part of the cache's key.
pub const OPTIONS: [&str; 4] = ["--std=c++17", "--fmad=false", "--minimal", "--ptxas-options=-v"];

/// The oldest NVRTC with the options and architectures that are used.
const OLDEST: (i32, i32) = (12, 8);

/// From here on NVRTC keeps a cache of its own through the driver, which it sets up at the first compilation of a process
/// (as it seems: a first compile took 0.15 s longer). It is told not to: `cache` has what it would keep.
const OWN_CACHE: (i32, i32) = (13, 0);

/// What NVRTC's functions are, by their C signatures. Results are plain integers: a newer library may return
/// codes that an enum does not know.
struct Api {
    create: unsafe extern "C" fn(
        *mut Handle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    destroy: unsafe extern "C" fn(*mut Handle) -> c_int,
    compile: unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> c_int,
    log_size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    cubin_size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    ptx_size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    ptx: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// A loaded NVRTC.
pub struct Nvrtc {
    api: Api,
    path: PathBuf,
    version: (i32, i32),
    archs: Vec<u32>,
    // Keep the function pointers valid.
    _libraries: Vec<Library>,
}

/// What a compilation gave.
#[derive(Clone, Debug)]
pub struct Compiled {
    pub cubin: Vec<u8>,
    pub report: CompileReport,
}

/// What the log of a successful compilation says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompileReport {
    pub log: String,
    pub time: Duration,
    pub kernels: Vec<KernelReport>,
    /// Lines that mean lost speed (C7508, C7511, C7519, …), as NVRTC wrote them.
    pub lost_speed: Vec<String>,
}

/// One kernel's use of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelReport {
    pub name: String,
    pub registers: u32,
    pub stack_bytes: u32,
    pub spill_store_bytes: u32,
    pub spill_load_bytes: u32,
    pub shared_bytes: u32,
}

impl CompileReport {
    /// Bytes spilled to local memory by all kernels, stores and loads.
    pub fn spills(&self) -> u32 {
        self.kernels.iter().map(|k| k.spill_store_bytes + k.spill_load_bytes).sum()
    }

    /// Reads the log that `--ptxas-options=-v` makes.
    pub fn parse(log: &str) -> CompileReport {
        let mut report = CompileReport { log: log.to_string(), ..CompileReport::default() };
        for line in log.lines() {
            if let Some(name) = quoted_after(line, "Compiling entry function") {
                report.kernels.push(KernelReport { name, ..KernelReport::default() });
            } else if let Some(kernel) = report.kernels.last_mut() {
                kernel.read_line(line);
            }
            if is_lost_speed(line) {
                report.lost_speed.push(line.trim().to_string());
            }
        }
        report
    }
}

impl KernelReport {
    fn read_line(&mut self, line: &str) {
        let words: [(&str, &mut u32); 5] = [
            ("bytes stack frame", &mut self.stack_bytes),
            ("bytes spill stores", &mut self.spill_store_bytes),
            ("bytes spill loads", &mut self.spill_load_bytes),
            ("registers", &mut self.registers),
            ("bytes smem", &mut self.shared_bytes),
        ];
        for (word, slot) in words {
            if let Some(n) = number_before(line, word) {
                *slot = n;
            }
        }
    }
}

/// ptxas's performance advisories: setmaxnreg ignored (C7508), wgmma serialised (C7511, C7510, C7514), arrivals
/// injected (C7519). The family is C75xx.
fn is_lost_speed(line: &str) -> bool {
    line.match_indices("C75").any(|(i, _)| {
        let tail = &line.as_bytes()[i + 3..];
        tail.len() >= 2 && tail[..2].iter().all(u8::is_ascii_digit)
    })
}

fn quoted_after(line: &str, words: &str) -> Option<String> {
    let rest = &line[line.find(words)? + words.len()..];
    let open = rest.find('\'')? + 1;
    let close = open + rest[open..].find('\'')?;
    Some(rest[open..close].to_string())
}

/// The number that stands before a word: `12` in `Used 12 registers`.
fn number_before(line: &str, word: &str) -> Option<u32> {
    let before = line[..line.find(word)?].trim_end();
    let start = before.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |i| i + 1);
    before[start..].parse().ok()
}

impl Nvrtc {
    /// The NVRTC of this process: found and loaded at the first call.
    pub fn get() -> Result<&'static Nvrtc> {
        static NVRTC: OnceLock<Result<Nvrtc>> = OnceLock::new();
        NVRTC.get_or_init(|| Nvrtc::load(&locate::nvrtc()?)).as_ref().map_err(Clone::clone)
    }

    /// Loads the library at a path.
    pub fn load(path: &Path) -> Result<Nvrtc> {
        let bad = |why: String| Error::BadNvrtc { path: path.to_path_buf(), why };
        // SAFETY: loading a library runs its initialisers; NVRTC's have no preconditions.
        let load = |path: &Path| unsafe { Library::new(path) }.map_err(|e| bad(e.to_string()));
        let mut libraries = locate::companions(path).iter().map(|p| load(p)).collect::<Result<Vec<_>>>()?;
        let library = load(path)?;
        // SAFETY: the signatures are those of nvrtc.h, unchanged since CUDA 11.
        let (api, version, archs) = unsafe { Nvrtc::symbols(&library) }.map_err(bad)?;
        if version < OLDEST {
            let (has, needs) = (version, OLDEST);
            return Err(bad(format!(
                "it is version {}.{}, and {}.{} is needed",
                has.0, has.1, needs.0, needs.1
            )));
        }
        libraries.push(library);
        Ok(Nvrtc { api, path: path.to_path_buf(), version, archs, _libraries: libraries })
    }

    unsafe fn symbols(library: &Library) -> std::result::Result<(Api, (i32, i32), Vec<u32>), String> {
        unsafe fn get<F: Copy>(library: &Library, name: &str) -> std::result::Result<F, String> {
            // SAFETY: the caller names a function of this type.
            unsafe { library.get::<F>(name.as_bytes()) }
                .map(|s| *s)
                .map_err(|_| format!("it has no function {name}"))
        }
        // SAFETY: see `load`; the out-pointers live through each call.
        unsafe {
            let api = Api {
                create: get(library, "nvrtcCreateProgram")?,
                destroy: get(library, "nvrtcDestroyProgram")?,
                compile: get(library, "nvrtcCompileProgram")?,
                log_size: get(library, "nvrtcGetProgramLogSize")?,
                log: get(library, "nvrtcGetProgramLog")?,
                cubin_size: get(library, "nvrtcGetCUBINSize")?,
                cubin: get(library, "nvrtcGetCUBIN")?,
                ptx_size: get(library, "nvrtcGetPTXSize")?,
                ptx: get(library, "nvrtcGetPTX")?,
                error_string: get(library, "nvrtcGetErrorString")?,
            };
            let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int =
                get(library, "nvrtcVersion")?;
            let count: unsafe extern "C" fn(*mut c_int) -> c_int = get(library, "nvrtcGetNumSupportedArchs")?;
            let list: unsafe extern "C" fn(*mut c_int) -> c_int = get(library, "nvrtcGetSupportedArchs")?;
            let (mut major, mut minor, mut n) = (0, 0, 0);
            if version(&mut major, &mut minor) != 0 || count(&mut n) != 0 {
                return Err("it does not tell its version".into());
            }
            let mut archs = vec![0 as c_int; n.max(0) as usize];
            if list(archs.as_mut_ptr()) != 0 {
                return Err("it does not tell the architectures that it knows".into());
            }
            Ok((api, (major, minor), archs.into_iter().map(|a| a as u32).collect()))
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// The architectures it compiles for, as 75, 80, 90, …, from the library itself.
    pub fn archs(&self) -> &[u32] {
        &self.archs
    }

    /// Refuses an architecture that the library does not know, with both sides named.
    pub fn check_arch(&self, arch: &str) -> Result<()> {
        check_arch(arch, &self.archs, self.version)
    }

    /// Compiles to a cubin for `arch` (`sm_90a`).
    pub fn compile(&self, program: &str, source: &str, arch: &str) -> Result<Compiled> {
        let start = Instant::now();
        let (handle, log) = self.compile_handle(program, source, arch)?;
        let cubin = self.fetch("nvrtcGetCUBIN", handle.0, self.api.cubin_size, self.api.cubin)?;
        if cubin.is_empty() {
            return Err(self.bad("it gave no cubin".into()));
        }
        let report = CompileReport { time: start.elapsed(), ..CompileReport::parse(&log) };
        Ok(Compiled { cubin, report })
    }

    /// The PTX of the same compilation, for people to read.
    pub fn ptx(&self, program: &str, source: &str, arch: &str) -> Result<String> {
        let (handle, _) = self.compile_handle(program, source, arch)?;
        let bytes = self.fetch("nvrtcGetPTX", handle.0, self.api.ptx_size, self.api.ptx)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_string())
    }

    fn compile_handle(&self, program: &str, source: &str, arch: &str) -> Result<(Program<'_>, String)> {
        self.check_arch(arch)?;
        let text = CString::new(source).map_err(|_| self.bad("the generated source holds a NUL".into()))?;
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: `text` and the name outlive the call, which copies them.
        let code = unsafe {
            (self.api.create)(
                &mut handle,
                text.as_ptr(),
                c"girih.cu".as_ptr(),
                0,
                std::ptr::null(),
                std::ptr::null(),
            )
        };
        self.check("nvrtcCreateProgram", code)?;
        let handle = Program(handle, self);
        let mut options = options(arch);
        if self.version >= OWN_CACHE {
            options.push("--no-cache".into());
        }
        let owned: Vec<CString> =
            options.iter().map(|o| CString::new(o.as_str()).expect("options are our own words")).collect();
        let pointers: Vec<*const c_char> = owned.iter().map(|o| o.as_ptr()).collect();
        // SAFETY: the handle is live and the pointers outlive the call.
        let code = unsafe { (self.api.compile)(handle.0, pointers.len() as c_int, pointers.as_ptr()) };
        let log = self.fetch("nvrtcGetProgramLog", handle.0, self.api.log_size, self.api.log)?;
        let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_string();
        const COMPILATION: c_int = 6;
        if code == COMPILATION {
            let line = first_error_line(&log, source);
            let program = program.to_string();
            return Err(Error::Compile(Box::new(CompileError { program, options, line, log })));
        }
        self.check("nvrtcCompileProgram", code)?;
        Ok((handle, log))
    }

    fn fetch(
        &self,
        call: &'static str,
        handle: Handle,
        size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
        get: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>> {
        let mut n = 0usize;
        // SAFETY: the handle is live.
        self.check(call, unsafe { size(handle, &mut n) })?;
        let mut bytes = vec![0u8; n];
        if n > 0 {
            // SAFETY: the buffer has the size that the library asked for.
            self.check(call, unsafe { get(handle, bytes.as_mut_ptr().cast()) })?;
        }
        Ok(bytes)
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the function returns a static string for any code.
        let text = unsafe { (self.api.error_string)(code) };
        let text = if text.is_null() {
            format!("code {code}")
        } else {
            // SAFETY: not null, NUL-terminated and static.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(self.bad(format!("{call}: {text}")))
    }

    fn bad(&self, why: String) -> Error {
        Error::BadNvrtc { path: self.path.clone(), why }
    }
}

/// A live `nvrtcProgram`.
struct Program<'a>(Handle, &'a Nvrtc);

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: created by this library and destroyed once.
        unsafe { (self.1.api.destroy)(&mut self.0) };
    }
}

/// All options of a compilation for `arch`.
pub fn options(arch: &str) -> Vec<String> {
    std::iter::once(format!("--gpu-architecture={arch}")).chain(OPTIONS.map(String::from)).collect()
}

/// The number in `sm_90a`.
pub fn arch_number(arch: &str) -> Option<u32> {
    arch.strip_prefix("sm_")?.trim_end_matches(['a', 'f']).parse().ok()
}

fn check_arch(arch: &str, known: &[u32], version: (i32, i32)) -> Result<()> {
    match arch_number(arch) {
        Some(n) if known.contains(&n) => Ok(()),
        _ => Err(Error::UnknownArch { arch: arch.to_string(), known: known.to_vec(), version }),
    }
}

/// `girih.cu(12): error: …` → line 12 and its text.
fn first_error_line(log: &str, source: &str) -> Option<(usize, String)> {
    let line = log.lines().find(|l| l.contains("error"))?;
    let open = line.find('(')? + 1;
    let number: usize = line[open..open + line[open..].find(')')?].parse().ok()?;
    Some((number, source.lines().nth(number.checked_sub(1)?)?.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "ptxas info    : 0 bytes gmem\n\
        ptxas info    : Compiling entry function 'k' for 'sm_90a'\n\
        ptxas info    : Function properties for k\n\
        \x20   8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n\
        ptxas info    : Used 12 registers, used 1 barriers, 8 bytes smem\n\
        ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized";

    #[test]
    fn the_log_becomes_numbers() {
        let r = CompileReport::parse(LOG);
        let k = KernelReport {
            name: "k".into(),
            registers: 12,
            stack_bytes: 8,
            spill_store_bytes: 4,
            spill_load_bytes: 12,
            shared_bytes: 8,
        };
        assert_eq!(r.kernels, [k]);
        assert_eq!(r.spills(), 16);
        assert_eq!(r.lost_speed.len(), 1);
    }

    #[test]
    fn hex_addresses_are_not_advisories() {
        assert!(!is_lost_speed("0xC75AB") && is_lost_speed("(C7519) warpgroup.arrive is injected"));
    }

    #[test]
    fn architectures_outside_the_list_are_named() {
        let known = [75, 80, 90];
        assert!(check_arch("sm_90a", &known, (13, 0)).is_ok());
        for arch in ["sm_129", "sm_50", "sm_"] {
            let text = check_arch(arch, &known, (13, 0)).unwrap_err().to_string();
            assert!(text.contains(arch) && text.contains("13.0") && text.contains("--target"), "{text}");
        }
    }

    #[test]
    fn error_lines_point_into_the_source() {
        let log = "girih.cu(2): error: identifier \"y\" is undefined";
        assert_eq!(first_error_line(log, "a\nb\n"), Some((2, "b".into())));
        assert_eq!(first_error_line(log, "a"), None);
    }
}
