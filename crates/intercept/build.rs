//! Compiles the BPF programs with clang.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

/// Advice that is appended to errors about missing tools or headers.
const INSTALL: &str = "programs for the kernel are compiled with clang and the headers of libbpf. \
                       On Debian: apt-get install clang libbpf-dev (or: scripts/setup.sh build)";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang"));
    let object = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo names no OUT_DIR")?);
    let architecture = env::var("CARGO_CFG_TARGET_ARCH")?;
    let compiled = Command::new(&clang)
        .args(["-target", "bpfel", "-mcpu=v3", "-O2", "-g"])
        .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
        // Debian's folder of architecture-specific headers; other distributions have no such folder, which does no
        // harm.
        .arg(format!("-I/usr/include/{architecture}-linux-gnu"))
        .args(["-c", "bpf/intercept.c", "-o"])
        .arg(object.join("intercept.o"))
        .output();
    let output = match compiled {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(format!("{} is not there: {INSTALL}", clang.display()).into());
        }
        Err(error) => return Err(format!("cannot run {}: {error}", clang.display()).into()),
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let hint = match said.contains("file not found") {
        true => format!("a header is missing: {INSTALL}"),
        false => "clang 14 is known to work; CLANG names another one".to_owned(),
    };
    Err(format!("bpf/intercept.c does not compile: {hint}\n{said}").into())
}
