//! Everything that the printer can print compiles with NVRTC for every target, without spills.

#[path = "../../compiler/tests/simt/build.rs"]
mod build;
#[path = "../../compiler/tests/simt/zoo.rs"]
mod zoo;

use girih_compiler::ir::program::Program;
use girih_compiler::lower::simt_to_cuda;
use girih_compiler::vocab::target::TARGETS;
use girih_dsl::source::Sources;
use girih_runtime::nvrtc::Nvrtc;

#[test]
fn every_kind_of_statement_compiles_for_every_target() {
    let nvrtc = match Nvrtc::get() {
        Ok(nvrtc) => nvrtc,
        Err(e) => {
            eprintln!("skipped: every_kind_of_statement_compiles_for_every_target ({e})");
            return;
        }
    };
    for target in &TARGETS {
        let kernels = zoo::zoo(target);
        let program = Program { kernels, ..Program::default() };
        let text = simt_to_cuda::print(&program, target, &Sources::default());
        match nvrtc.compile("zoo", &text, target.name) {
            Ok(compiled) => assert!(!compiled.cubin.is_empty()),
            Err(e) => {
                let path = std::env::temp_dir().join(format!("girih_zoo_{}.cu", target.name));
                let kept = std::fs::write(&path, &text).is_ok();
                panic!("{}: {e}\n(text kept in {}: {kept})", target.name, path.display());
            }
        }
    }
}
