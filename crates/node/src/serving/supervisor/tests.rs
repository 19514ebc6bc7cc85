//! Tests with real processes: `sh` exists wherever Heddle runs workloads.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use heddle_model::{
    AppProtocol, Balancer, Command, Mesh, Mode, Service, ServiceAccountName, ServiceName,
    ServicePort, Workload, WorkloadName,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};
use rustix::thread::CpuSet;
use tokio::sync::mpsc;

use super::{Output, Policy, Supervisor, environment};
use crate::console::Console;
use crate::status::{ListenerKind, ListenerStatus, ProcessStatus};

const LONG: Duration = Duration::from_secs(20);

struct Lines(mpsc::Sender<String>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes).trim_end().to_owned();
        self.0.blocking_send(text).map_err(io::Error::other)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Output_ {
    lines: mpsc::Receiver<String>,
}

impl Output_ {
    async fn line(&mut self) -> String {
        tokio::time::timeout(LONG, self.lines.recv())
            .await
            .expect("a line in time")
            .expect("a line")
    }

    /// The number after the workload's name on the next line.
    async fn pid(&mut self) -> Pid {
        let line = self.line().await;
        let number = line.split(' ').nth(1).and_then(|n| n.parse().ok());
        number
            .and_then(Pid::from_raw)
            .unwrap_or_else(|| panic!("no process id in {line:?}"))
    }
}

fn supervisor(stop_grace: Duration) -> (Supervisor, Output_) {
    let (sender, lines) = mpsc::channel(64);
    let console = Console::start_on(Lines(sender), false).expect("a thread");
    let millisecond = Duration::from_millis(1);
    let policy = Policy {
        stop_grace,
        restart_min: millisecond,
        restart_max: millisecond,
        cpus: None,
    };
    let output = Output {
        stdout: console.clone(),
        stderr: console,
    };
    (Supervisor::new(policy, output), Output_ { lines })
}

fn name(text: &str) -> WorkloadName {
    WorkloadName::new("shop", text).expect("a name")
}

fn mesh(scripts: &[(&str, &str)]) -> Mesh {
    let workload = |(workload, script): &(&str, &str)| Workload {
        name: name(workload),
        labels: heddle_model::Shared::default(),
        service_account: ServiceAccountName::new("shop", "default").expect("a name"),
        address: IpAddr::from([127, 0, 0, 1]),
        uses: Vec::new(),
        more_addresses: Vec::new(),
        ports: Vec::new(),
        weight: 1,
        node: None,
        mode: Mode::Permissive,
        policies: Vec::new(),
        probes: Vec::new(),
        qos: Default::default(),
        proxy: heddle_model::Proxy::Node,
        command: Some(Command {
            argv: ["sh", "-c", script].map(str::to_owned).into(),
            env: BTreeMap::from([("OWN".into(), "mine".into())]),
            working_dir: Some("/".into()),
        }),
    };
    Mesh {
        generation: 1,
        workloads: scripts.iter().map(workload).map(Into::into).collect(),
        ..Mesh::default()
    }
}

fn is_alive(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

#[tokio::test]
async fn output_has_the_workloads_name_and_the_environment_is_there() {
    let (mut supervisor, mut output) = supervisor(LONG);
    let script = "printf unfinished >&2; echo $HEDDLE_WORKLOAD $OWN $PWD; exec sleep 1000";
    supervisor.follow(&mesh(&[("web", script)]), &[]);
    assert_eq!(output.line().await, "[shop/web] shop/web mine /");
    supervisor.stop().await;
    assert_eq!(output.line().await, "[shop/web] unfinished");
}

#[tokio::test]
async fn commands_stay_on_the_processors_that_they_are_given() {
    let allowed = rustix::thread::sched_getaffinity(None).expect("an affinity");
    let last = (0..CpuSet::MAX_CPU).rfind(|&cpu| allowed.is_set(cpu));
    let last = last.expect("a processor");
    let mut only = CpuSet::new();
    only.set(last);
    let (mut supervisor, mut output) = supervisor(LONG);
    supervisor.policy.cpus = Some(only);
    let script = "grep Cpus_allowed_list: /proc/self/status | tr '\\t' ' '; exec sleep 1000";
    supervisor.follow(&mesh(&[("web", script)]), &[]);
    let expected = format!("[shop/web] Cpus_allowed_list: {last}");
    assert_eq!(output.line().await, expected);
    supervisor.stop().await;
}

#[tokio::test]
async fn a_process_that_ends_is_started_again() {
    let (mut supervisor, mut output) = supervisor(LONG);
    supervisor.follow(&mesh(&[("web", "echo run; exit 3")]), &[]);
    for _ in 0..3 {
        assert_eq!(output.line().await, "[shop/web] run");
    }
    let status = supervisor.status(&name("web")).expect("a command");
    assert!(status.restarts >= 2, "{status:?}");
    assert_eq!(status.last_exit.as_deref(), Some("exit code 3"));
    supervisor.stop().await;
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_said_and_tried_again() {
    let (mut supervisor, _output) = supervisor(LONG);
    let mut mesh = mesh(&[("web", "")]);
    if let Some(command) = &mut mesh.workloads[0].command {
        command.argv = vec!["/no/such/program".into()];
    }
    supervisor.follow(&mesh, &[]);
    let status = tried_again(&supervisor).await;
    assert_eq!((status.pid, status.restarts), (None, 0));
    let last = status.last_exit.unwrap_or_default();
    assert!(
        last.contains("/no/such/program") && last.contains("No such file"),
        "{last}"
    );
    supervisor.stop().await;
}

#[tokio::test]
async fn a_working_directory_that_does_not_exist_is_named() {
    let (mut supervisor, _output) = supervisor(LONG);
    let mut mesh = mesh(&[("web", "")]);
    if let Some(command) = &mut mesh.workloads[0].command {
        command.working_dir = Some("/no/such/folder".into());
    }
    supervisor.follow(&mesh, &[]);
    let last = tried_again(&supervisor).await.last_exit.unwrap_or_default();
    assert!(
        last.contains("\"sh\"") && last.contains("workingDir /no/such/folder is no directory"),
        "{last}"
    );
    supervisor.stop().await;
}

/// Waits until the process of `web` has failed to start twice.
async fn tried_again(supervisor: &Supervisor) -> ProcessStatus {
    let mut status = supervisor.jobs[&name("web")].status.clone();
    let tried_again = status.wait_for(|status| status.failed_starts >= 2);
    let status = tokio::time::timeout(LONG, tried_again)
        .await
        .expect("it is tried again");
    status.expect("the job runs").clone()
}

#[tokio::test]
async fn a_changed_command_replaces_the_old_one_and_others_stay() {
    let (mut supervisor, mut output) = supervisor(LONG);
    let script = "echo $$ first; exec sleep 1000";
    supervisor.follow(&mesh(&[("a", script)]), &[]);
    let first = output.pid().await;
    supervisor.follow(&mesh(&[("a", script), ("b", script)]), &[]);
    let other = output.pid().await;
    supervisor.follow(
        &mesh(&[("a", "echo $$ second; exec sleep 1000"), ("b", script)]),
        &[],
    );
    let line = output.line().await;
    assert!(
        line.starts_with("[shop/a] ") && line.ends_with(" second"),
        "{line}"
    );
    assert!(
        !is_alive(first),
        "the old one ends before the new one starts"
    );
    assert!(is_alive(other));
    supervisor.stop().await;
    assert!(!is_alive(other));
}

#[tokio::test]
async fn a_workload_that_is_gone_is_stopped_with_all_its_processes() {
    let (mut supervisor, mut output) = supervisor(LONG);
    let script = "sleep 1000 & echo $! child; echo $$ self; wait";
    supervisor.follow(&mesh(&[("web", script)]), &[]);
    let (child, leader) = (output.pid().await, output.pid().await);
    supervisor.follow(&mesh(&[]), &[]);
    assert_eq!(supervisor.status(&name("web")), None);
    supervisor.stop().await;
    assert!(!is_alive(leader));
    wait_until_gone(child).await;
}

#[tokio::test]
async fn who_ignores_sigterm_is_killed_after_the_grace() {
    let (mut supervisor, mut output) = supervisor(Duration::from_millis(50));
    let script = "trap '' TERM; echo $$ deaf; while :; do sleep 1000; done";
    supervisor.follow(&mesh(&[("web", script)]), &[]);
    let pid = output.pid().await;
    supervisor.stop().await;
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn a_line_without_end_is_broken_not_collected() {
    let (mut supervisor, mut output) = supervisor(LONG);
    let script = "head -c 100000 /dev/zero | tr '\\0' x; exec sleep 1000";
    supervisor.follow(&mesh(&[("web", script)]), &[]);
    let mut seen = 0;
    while seen < 80_000 {
        let line = output.line().await;
        assert!(line.len() < 32 * 1024, "{} bytes", line.len());
        seen += line.len() - "[shop/web] ".len();
    }
    supervisor.stop().await;
}

/// Waits for the end of a process that is not our child.
async fn wait_until_gone(pid: Pid) {
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(error) => return assert_eq!(error, Errno::SRCH),
    };
    let ended = tokio::task::spawn_blocking(move || {
        let long = Timespec::try_from(LONG).expect("in range");
        poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&long))
    });
    let ended = ended.await.expect("no panic").expect("polled");
    assert_eq!(ended, 1, "it is killed with its group");
}

#[test]
fn the_environment_is_that_of_a_pod_with_this_callers_addresses() {
    let port = |port, name: &str| ServicePort {
        name: Some(name.into()),
        port,
        protocol: AppProtocol::Http,
        endpoints: Vec::new(),
        routes: None,
        consumer_routes: BTreeMap::new(),
    };
    let service = |namespace, name, ports| Service {
        name: ServiceName::new(namespace, name).expect("a name"),
        headless: false,
        addresses: Vec::new(),
        balancer: Balancer::default(),
        balancing: heddle_model::Balancing::default(),
        ports,
    };
    let mut mesh = mesh(&[("web", "")]);
    mesh.services = vec![
        service("other", "far", vec![port(80, "http")]).into(),
        service(
            "shop",
            "rating-db",
            vec![port(80, "http"), port(9090, "admin-v2")],
        )
        .into(),
    ];
    let listener =
        |service: Option<&str>, port, caller: Option<&str>, address: [u8; 4], at| ListenerStatus {
            service: service.map(str::to_owned),
            port,
            caller: caller.map(str::to_owned),
            kind: if service.is_some() {
                ListenerKind::Service
            } else {
                ListenerKind::ForwardProxy
            },
            protocol: "http".to_owned(),
            address: SocketAddr::from((address, at)),
        };
    let listeners = [
        listener(Some("shop/rating-db"), 80, None, [127, 64, 0, 1], 80),
        listener(
            Some("shop/rating-db"),
            80,
            Some("shop/web"),
            [127, 64, 0, 2],
            10_080,
        ),
        listener(
            Some("shop/rating-db"),
            9090,
            Some("shop/web"),
            [127, 64, 0, 2],
            9_090,
        ),
        listener(
            Some("other/far"),
            80,
            Some("shop/web"),
            [127, 64, 0, 3],
            10_080,
        ),
        listener(None, 3_128, Some("shop/api"), [127, 64, 0, 4], 3_128),
        listener(None, 3_128, Some("shop/web"), [127, 64, 0, 5], 3_128),
    ];
    let variables = environment(&name("web"), &mesh, &listeners);
    let expected = [
        ("HEDDLE_WORKLOAD", "shop/web"),
        ("RATING_DB_SERVICE_HOST", "127.64.0.2"),
        ("RATING_DB_SERVICE_PORT", "10080"),
        ("RATING_DB_SERVICE_PORT_ADMIN_V2", "9090"),
        ("RATING_DB_SERVICE_PORT_HTTP", "10080"),
        ("http_proxy", "http://127.64.0.5:3128"),
        ("no_proxy", "localhost,127.0.0.0/8,::1"),
    ];
    assert_eq!(
        variables,
        expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into()
    );
}
