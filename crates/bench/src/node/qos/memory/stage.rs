//! The node of limited memory, nginx and its files.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use rustix::fs::{Advice, fadvise};

use super::super::agent::{Agent, AgentPod, Wish};
use crate::child::{Child, Confinement, words};
use crate::node::group::LabGroup;
use crate::node::scene::Scene;

pub(super) const MIB: u64 = 1 << 20;
/// Memory of the node. The part of the machine's available memory that the experiment takes at most, in percent.
const NODE_BYTES: u64 = 2_048 * MIB;
const MOST_TAKEN: u64 = 60;
/// Files of nginx: half of the node's memory.
const FILES: u64 = 64;
pub(super) const FILE_BYTES: u64 = 16 * MIB;
/// Files that the batch work reads: three quarters of the node's memory.
const BATCH_FILES: u64 = 96;
/// Limit of a batch pod that leaves the other half and more: that at which FSSR ends, 30 % of the node's memory.
const FIXED_BYTES: u64 = NODE_BYTES / 100 * 30;
/// The group of all pods, and those of the pods.
const PODS: &str = "node-one/pods";
/// Folder for the files: on the disk, where `/tmp` may be memory.
const DISK: &str = "/var/tmp";

/// The node, with nginx running.
pub(super) struct Stage {
    pub(super) agent: Agent,
    pub(super) shop: LabGroup,
    pub(super) batch: LabGroup,
    pub(super) filler: LabGroup,
    /// Idle, and limited to [`FIXED_BYTES`].
    pub(super) fixed: LabGroup,
    visitor: LabGroup,
    nginx: Child,
    address: SocketAddr,
    disk: tempfile::TempDir,
}

impl Stage {
    /// Limits the node's memory, writes the files, and starts nginx.
    ///
    /// # Errors
    /// When the machine has too little memory, or something cannot be made.
    pub(super) fn new(scene: &Scene, heddle: &Path, nginx: &Path) -> anyhow::Result<Stage> {
        let available = available_bytes()?;
        anyhow::ensure!(
            available / 100 * MOST_TAKEN >= NODE_BYTES,
            "{} MiB of memory are available: {} MiB have to be, as the experiment takes at most {MOST_TAKEN} % of them",
            available / MIB,
            NODE_BYTES / MIB * 100 / MOST_TAKEN
        );
        let node = scene.group(PODS);
        node.limit_memory(NODE_BYTES)?;
        let pod = |name: &str| -> anyhow::Result<LabGroup> {
            let group = scene.group(&format!("{PODS}/{name}"));
            group.create()?;
            Ok(group)
        };
        let [shop, batch, visitor] = [pod("shop")?, pod("batch")?, pod("visitor")?];
        let [filler, fixed] = [pod("filler")?, pod("fixed")?];
        filler.make_idle()?;
        fixed.make_idle()?;
        fixed.limit_memory(FIXED_BYTES)?;
        let pods = vec![
            AgentPod::offline(batch.clone()),
            AgentPod {
                group: shop.clone(),
                wish: Wish::Nothing,
            },
        ];
        let root = format!("  root: {}\n", node.path().display());
        let agent = Agent::new(scene, heddle, pods, &root)?;
        let disk = tempfile::Builder::new()
            .prefix("heddle-lab-")
            .tempdir_in(DISK)?;
        let batch_files = disk.path().join("batch");
        fs::create_dir(&batch_files)?;
        write_files(disk.path(), FILES)?;
        write_files(&batch_files, BATCH_FILES)?;
        // Taken for a moment to find one that is free.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let configuration = configuration(disk.path(), address);
        let file = agent.folder().join("nginx.conf");
        fs::write(&file, configuration)?;
        let mut command = words([nginx.as_os_str(), "-c".as_ref()]);
        command.push(file.into());
        let mut nginx = start("nginx", &shop, &command, agent.folder(), false)?;
        let is_up = || TcpStream::connect(address).is_ok().then_some(());
        nginx.wait_until(Duration::from_secs(10), is_up)?;
        Ok(Stage {
            agent,
            shop,
            batch,
            filler,
            fixed,
            visitor,
            nginx,
            address,
            disk,
        })
    }

    /// The folder of the files that the batch work reads.
    pub(super) fn batch_files(&self) -> PathBuf {
        self.disk.path().join("batch")
    }

    /// Has the kernel forget the files of the batch work, so that they are charged to the group that reads them next.
    ///
    /// # Errors
    /// When one cannot be opened.
    pub(super) fn forget_batch_files(&self) -> anyhow::Result<()> {
        for number in 0..BATCH_FILES {
            let file = File::open(self.batch_files().join(number.to_string()))?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
        Ok(())
    }

    /// Starts a program in a group.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start(
        &self,
        name: &str,
        group: &LabGroup,
        command: &[OsString],
    ) -> anyhow::Result<Child> {
        start(name, group, command, self.agent.folder(), false)
    }

    /// Starts the visitor, which prints its downloads.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn visit(&self, time: Duration, pause_ms: &str) -> anyhow::Result<Child> {
        let mut command = vec![std::env::current_exe()?.into_os_string()];
        command.extend(words(["downloads", "--pause-ms", pause_ms]));
        for (name, value) in [
            ("--from", self.address.to_string()),
            ("--files", FILES.to_string()),
            ("--bytes", FILE_BYTES.to_string()),
            ("--seconds", time.as_secs_f64().to_string()),
        ] {
            command.extend(words([name, &value]));
        }
        start(
            "downloads",
            &self.visitor,
            &command,
            self.agent.folder(),
            true,
        )
    }

    /// Bytes that nginx has had read from the disk so far.
    ///
    /// # Errors
    /// When it is gone.
    pub(super) fn read_by_nginx(&self) -> anyhow::Result<u64> {
        let io = fs::read_to_string(format!("/proc/{}/io", self.nginx.pid()))?;
        let mut lines = io.lines();
        let read = lines.find_map(|line| line.strip_prefix("read_bytes: "));
        Ok(read.context("no read_bytes")?.trim().parse()?)
    }

    /// Processes that were killed for want of memory: of nginx, of the batch work.
    ///
    /// # Errors
    /// When the kernel does not count them.
    pub(super) fn kills(&self) -> anyhow::Result<[u64; 2]> {
        Ok([self.shop.oom_kills()?, self.batch.oom_kills()?])
    }
}

fn start(
    name: &str,
    group: &LabGroup,
    command: &[OsString],
    logs: &Path,
    piped: bool,
) -> anyhow::Result<Child> {
    let place = Confinement {
        groups: group.folders()?,
        ..Confinement::default()
    };
    let log = logs.join(format!("{name}.log"));
    Child::start(name, &place, command, &log, piped)
}

/// One process, so that what it reads from the disk can be counted.
fn configuration(folder: &Path, address: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "daemon off;\nmaster_process off;\nuser root;\npid {folder}/nginx.pid;\nerror_log stderr warn;\n\
         events {{}}\nhttp {{\n  access_log off;\n  sendfile on;\n  sendfile_max_chunk 1m;\n  keepalive_requests 1000000;\n  \
         client_body_temp_path {folder}/body;\n  proxy_temp_path {folder}/proxy;\n  fastcgi_temp_path {folder}/fastcgi;\n  \
         uwsgi_temp_path {folder}/uwsgi;\n  scgi_temp_path {folder}/scgi;\n  \
         server {{\n    listen {address};\n    root {folder};\n  }}\n}}\n"
    )
}

/// Writes the files, and has the kernel forget them: they are charged to the group that reads them first.
fn write_files(folder: &Path, files: u64) -> anyhow::Result<()> {
    // Not zeros, which some disks do not store.
    let piece: Vec<u8> = (0..MIB).map(|index| (index * 31 % 251) as u8).collect();
    for number in 0..files {
        let path = folder.join(number.to_string());
        let mut file = File::create(&path)?;
        for _ in 0..FILE_BYTES / MIB {
            file.write_all(&piece)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Memory of the machine that can be had without swapping.
fn available_bytes() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let mut lines = text.lines();
    let kib = lines.find_map(|line| line.strip_prefix("MemAvailable:")?.strip_suffix("kB"));
    Ok(kib.context("no MemAvailable")?.trim().parse::<u64>()? * 1_024)
}
