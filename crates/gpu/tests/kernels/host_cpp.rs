//! Runs the kernels' source as C++, under address and undefined-behaviour sanitizers.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use super::{Batch, Class, Device};

const FLAGS: [&str; 6] = [
    "-std=c++17",
    "-g",
    "-fno-strict-aliasing",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-Wno-unknown-pragmas",
];

/// The kernels' source, and the header that it includes.
pub(crate) const SOURCE: &str = include_str!("../../kernels/packetlane.cu");
const PRELUDE: &str = include_str!("../../kernels/prelude.h");

/// A process that runs the kernels.
pub(crate) struct HostCpp {
    process: Child,
    log: PathBuf,
    /// 0 for forward, 1 for reversed, otherwise a seed.
    pub(crate) order: u64,
}

/// Returns a compiler whose programs run with the sanitizers, or why there is none.
pub(crate) fn compiler() -> Result<&'static str, &'static str> {
    static FOUND: OnceLock<Result<&str, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let dir = folder(&format!("probe-{}", std::process::id()));
        let found = probe(&dir);
        fs::remove_dir_all(dir).expect("a folder of ours");
        found
    });
    found.as_ref().copied().map_err(String::as_str)
}

fn probe(dir: &Path) -> Result<&'static str, String> {
    let source = dir.join("probe.cpp");
    fs::write(&source, "int main() { return 0; }\n").expect("a file in the target folder");
    let mut why = String::from("no C++ compiler (c++, g++, clang++) is installed");
    for name in ["c++", "g++", "clang++"] {
        let program = dir.join(name);
        let built = Command::new(name)
            .args(FLAGS)
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .output();
        match built {
            Err(_) => {}
            Ok(built) if !built.status.success() => why = format!("{name} has no sanitizers"),
            Ok(_) => match Command::new(&program).status() {
                Ok(status) if status.success() => return Ok(name),
                _ => why = format!("programs that {name} builds with sanitizers do not run"),
            },
        }
    }
    Err(why)
}

fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("host_cpp-{name}"));
    fs::create_dir_all(&dir).expect("a folder in the target folder");
    dir
}

/// Compiles a program of tests/host_cpp that includes the kernels' source.
pub(crate) fn compile(
    compiler: &str,
    level: &str,
    name: &str,
    source: &str,
    main: &str,
) -> PathBuf {
    let dir = folder(name);
    fs::write(dir.join("packetlane.cu"), source).expect("a file in the target folder");
    fs::write(dir.join("prelude.h"), PRELUDE).expect("a file in the target folder");
    let main = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/host_cpp")
        .join(main);
    let program = dir.join("program");
    let built = Command::new(compiler)
        .args(FLAGS)
        .arg(level)
        .arg("-I")
        .arg(&dir)
        .arg(main)
        .arg("-o")
        .arg(&program)
        .output()
        .expect("the compiler just ran");
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{errors}");
    program
}

impl HostCpp {
    /// Compiles a source at a level of optimisation, under its own name, and starts it.
    pub(crate) fn build(compiler: &str, level: &str, name: &str, source: &str) -> HostCpp {
        let program = compile(compiler, level, name, source, "main.cpp");
        let dir = folder(name);
        let log = dir.join("log");
        let process = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).expect("a file in the target folder"))
            .spawn()
            .expect("the program just built");
        HostCpp {
            process,
            log,
            order: 0,
        }
    }

    /// Returns the error message of a process that has ended.
    fn last_words(&mut self) -> String {
        let status = self.process.wait().expect("a child of ours");
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let line = log.lines().find(|line| {
            line.contains("ERROR") || line.contains("error") || line.contains("host_cpp:")
        });
        format!("{status}: {}", line.unwrap_or("(no message)"))
    }
}

impl Drop for HostCpp {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Device for HostCpp {
    fn run(
        &mut self,
        class: Class,
        open: bool,
        batch: &Batch,
        bytes: &[u8],
    ) -> Result<(Vec<u8>, Vec<u8>), String> {
        let (entries, threads) = class.entries(open);
        let chunks = if class == Class::Chunks {
            batch.chunks()
        } else {
            Vec::new()
        };
        let mut request = format!(
            "{} {threads} {} {} {} {}\n",
            self.order,
            batch.jobs.len(),
            bytes.len(),
            chunks.len() / 8,
            entries.join(" ")
        )
        .into_bytes();
        request.extend(bytes);
        request.extend(batch.packets());
        request.extend(batch.keys());
        request.extend(chunks);

        let (mut out, mut verdicts) = (vec![0; bytes.len()], vec![0; batch.jobs.len()]);
        let stdin = self.process.stdin.as_mut().expect("it is piped");
        // It answers only after it has read everything.
        let asked = stdin.write_all(&request).and_then(|()| stdin.flush());
        let stdout = self.process.stdout.as_mut().expect("it is piped");
        let answered = asked
            .and_then(|()| stdout.read_exact(&mut out))
            .and_then(|()| stdout.read_exact(&mut verdicts));
        match answered {
            Ok(()) => Ok((out, verdicts)),
            Err(_) => Err(self.last_words()),
        }
    }
}
