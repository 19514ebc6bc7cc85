//! The parts of the results: the experiments, and what a reader has to know about each.

mod qos;

use crate::install::{self, Peers};
use crate::systems::{ProxyKind, System};

/// An experiment whose figures are published.
pub(super) struct Part {
    /// The name of its file, and the prefix of references to its figures.
    pub(super) name: &'static str,
    /// Arguments of `heddle-lab bench`.
    pub(super) arguments: &'static [&'static str],
    pub(super) title: &'static str,
    /// Minutes that the full experiment is expected to take, while no earlier run is on record.
    pub(super) minutes: u32,
    pub(super) needs_root: bool,
    /// Whether it takes `--quick`.
    pub(super) has_quick: bool,
    /// Whether `PUBLISHED=1` makes its windows as long as in the publication.
    pub(super) has_published: bool,
    pub(super) peers: &'static [ProxyKind],
    /// What the figures include, and what they leave out.
    pub(super) counted: &'static str,
    /// The configuration of the peers.
    pub(super) settings: &'static str,
    pub(super) picture: Picture,
}

/// The source of a picture.
pub(super) enum Picture {
    /// The experiment draws it.
    Own,
    /// Bars of figures by name.
    Bars(&'static [Panel]),
}

/// A panel of bars: its title, and the label and the figure of each bar.
pub(super) type Panel = (&'static str, &'static [(&'static str, &'static str)]);

/// Minutes that a part takes whose windows are as long as in the publication that it repeats.
pub(super) const PUBLISHED_MINUTES: u64 = 390;

const PROXIES: &[ProxyKind] = &[ProxyKind::Envoy, ProxyKind::Haproxy, ProxyKind::Nginx];
const ENVOY: &[ProxyKind] = &[ProxyKind::Envoy];
const ONE_WORKER: &str = "One worker or thread for each proxy, access logs off, statistics on, the same timeouts; \
    the templates are in crates/bench/peers. HAProxy 2.6 and nginx 1.22 are those of Debian 12; newer ones exist.";
const ENVOY_PAIRS: &str = "Two pairs of Envoys, with HTTP/1.1 and with HTTP/2 between them over mutual TLS 1.3, one worker \
    each, access logs off: the better one of each figure counts.";
const ON_A_NODE: &str = "An Envoy in each pod with one worker, static configuration, HTTP/1.1 and mutual TLS between them, \
    without filters for authorization and telemetry and without an agent beside it. On one node a request passes two of them, \
    encrypted between them, and Heddle's proxy once, unencrypted; so it does one Envoy for the node (shared), which knows \
    neither identity nor policy.";
const ON_A_NODE_COUNTED: &str = "All proxies of the system, a node's holder included. Not counted: the control plane and \
    the lab's own processes. Holder, control plane and BPF hooks are stated by themselves with the CPU of a node. A veth pair \
    for each pod is there in every system; between pods of a node all but Heddle's node proxy send through it.";

/// Every part, in the order in which they are measured.
pub(super) const PARTS: [Part; 24] = [
    Part {
        name: "proxy",
        arguments: &["proxy"],
        title: "One proxied request",
        minutes: 17,
        needs_root: false,
        has_quick: true,
        has_published: false,
        peers: PROXIES,
        counted: "CPU time of the proxy's process tree, with what the kernel does for it. Load generator and upstream \
            are not in it.",
        settings: ONE_WORKER,
        picture: Picture::Own,
    },
    Part {
        name: "opaque",
        arguments: &["proxy", "--opaque"],
        title: "Connections that no proxy parses",
        minutes: 10,
        needs_root: false,
        has_quick: true,
        has_published: false,
        peers: PROXIES,
        counted: "As for one proxied request.",
        settings: "Envoy's tcp_proxy, HAProxy in mode tcp, nginx, where it is among them, with its module stream, which counts \
            nothing; otherwise as for one proxied request. HAProxy 2.6 and nginx 1.22 are those of Debian 12; newer ones exist.",
        picture: Picture::Own,
    },
    Part {
        name: "cost",
        arguments: &["cost"],
        title: "Costs that hardly depend on the machine",
        minutes: 3,
        needs_root: false,
        has_quick: false,
        has_published: false,
        peers: &[],
        counted: "User instructions, system calls and memory of Heddle's proxy alone, of a release build; by_link is \
            the sum over both nodes.",
        settings: "No peers.",
        picture: Picture::Bars(&[(
            "user instructions of a request",
            &[
                ("one node", "user_instructions_per_request"),
                ("with policy", "user_instructions_with_policy"),
                ("by link", "user_instructions_by_link"),
            ],
        )]),
    },
    Part {
        name: "mtls",
        arguments: &["mtls"],
        title: "A request between two nodes",
        minutes: 11,
        needs_root: false,
        has_quick: true,
        has_published: false,
        peers: ENVOY,
        counted: "CPU time and memory of both proxies of a pair together. Heddle's control plane is not in it.",
        settings: ENVOY_PAIRS,
        picture: Picture::Own,
    },
    Part {
        name: "grpc",
        arguments: &["grpc"],
        title: "Calls of gRPC through the crate h2",
        minutes: 9,
        needs_root: false,
        has_quick: true,
        has_published: false,
        peers: &[ProxyKind::Envoy, ProxyKind::Haproxy],
        counted: "CPU time of a forwarder made of the crate h2, beside the peers. Heddle itself is not in it.",
        settings: "One worker, one route or backend, statistics and access logs off. HAProxy 2.6 is that of Debian 12; newer \
            ones exist.",
        picture: Picture::Own,
    },
    Part {
        name: "link",
        arguments: &["link"],
        title: "Traffic between two nodes",
        minutes: 26,
        needs_root: false,
        has_quick: true,
        has_published: false,
        peers: ENVOY,
        counted: "Bytes both ways, below TLS as the programs count them and on the socket as the kernel does, and CPU \
            time of both proxies. TCP's own heads are not in the bytes; the control plane is not in the CPU time.",
        settings: ENVOY_PAIRS,
        picture: Picture::Bars(&[
            (
                "bytes of an exchange below TLS",
                &[
                    ("HTTP/1.1", "http1_mtls_bytes"),
                    ("link", "link_mtls_bytes"),
                    ("Envoy HTTP/2", "envoy_http2_bytes"),
                ],
            ),
            (
                "CPU of both per request (µs)",
                &[
                    ("HTTP/1.1", "http1_mtls_cpu_us"),
                    ("HTTP/2", "http2_mtls_cpu_us"),
                    ("link", "link_mtls_cpu_us"),
                    ("Envoy HTTP/1.1", "envoy_http1_cpu_us"),
                    ("Envoy HTTP/2", "envoy_http2_cpu_us"),
                ],
            ),
        ]),
    },
    Part {
        name: "identities",
        arguments: &["identities"],
        title: "Many identities",
        minutes: 3,
        needs_root: false,
        has_quick: true,
        has_published: false,
        peers: &[],
        counted: "Resident and private memory of each node's proxy, links between them, user space only: the kernel's \
            sockets are not in it. Latency of the requests beside the handshakes.",
        settings: "No peers. For the memory, two bounds of both nodes are raised: proxy.bounds.links to 4096 and \
            proxy.bounds.connections to 8192.",
        picture: Picture::Bars(&[
            (
                "memory of 2,025 pairs (MiB)",
                &[("the node that grew more", "identities_mib")],
            ),
            (
                "p99 with 500 handshakes/s ÷ without",
                &[("storm", "storm_p99_vs_calm")],
            ),
        ]),
    },
    Part {
        name: "discovery",
        arguments: &["discovery"],
        title: "A node that knows only what it uses",
        minutes: 18,
        needs_root: false,
        has_quick: true,
        has_published: false,
        peers: &[],
        counted: "Private memory of the node; the time until the answer of the first request to a Service, at the client. \
            The control plane is not in the memory, and answers on the same two cores.",
        settings: "No peers. The node has no listeners for single Services, as a node with pods has none, and forgets after \
            ten seconds without use instead of ten minutes.",
        picture: Picture::Bars(&[
            (
                "memory of the node (MiB)",
                &[
                    ("100 Services", "node_memory_mib_small"),
                    ("10,000", "node_memory_mib_large"),
                    ("10,000, all told", "node_memory_mib_large_eager"),
                ],
            ),
            (
                "p50 of requests (ms)",
                &[("first", "first_request_ms"), ("next", "next_request_ms")],
            ),
        ]),
    },
    Part {
        name: "lazy",
        arguments: &["lazy"],
        title: "Lazy Envoys",
        minutes: 6,
        needs_root: true,
        has_quick: true,
        has_published: false,
        peers: ENVOY,
        counted: "Private memory of one Envoy, and of a node's proxy with its holder; messages with clusters while load comes; \
            times at a client in the pod, a new connection for each request. Control plane, gateways and all proxies share two cores.",
        settings: "Envoys with the bootstrap that `heddle envoy bootstrap` prints, one worker each: without statistics for single \
            clusters, the lazy ones and those that know everything alike.",
        picture: Picture::Bars(&[
            (
                "private memory in a mesh of 10,000 pods (MiB)",
                &[
                    ("Envoy, empty", "envoy_empty_mib_10000"),
                    ("lazy", "envoy_lazy_mib_10000"),
                    ("full", "envoy_full_mib_10000"),
                    ("node, on demand", "node_on_demand_mib_10000"),
                    ("node, all told", "node_eager_mib_10000"),
                ],
            ),
            (
                "requests of a lazy Envoy, median (ms)",
                &[
                    ("first", "lazy_first_request_ms"),
                    ("later", "lazy_later_request_ms"),
                ],
            ),
        ]),
    },
    Part {
        name: "control-scale",
        arguments: &["control-scale"],
        title: "The control plane as its mesh grows",
        minutes: 30,
        needs_root: false,
        has_quick: true,
        has_published: false,
        peers: &[],
        counted: "The time from when a change was due until the last node that uses the Service has it; bytes of messages as \
            protobuf; private memory and CPU time of the control plane alone. etcd, the API server beside istiod, the simulated \
            nodes and the writer of changes share its two cores.",
        settings: "The mesh's pods are registered in etcd. Istiod (commit eed52ebb66ad) follows kube-apiserver 1.36.3 with the same \
            pods; its nodes are what ztunnels are, without TLS; it gathers changes for 10 ms with 100 pods, 40 ms with \
            1,000, and with 10,000 for 100 ms on demand and 300 ms eager, the times with the least p99.",
        picture: Picture::Own,
    },
    Part {
        name: "elastic",
        arguments: &["elastic"],
        title: "Workers that come and go",
        minutes: 5,
        needs_root: false,
        has_quick: true,
        has_published: false,
        peers: &[],
        counted: "Times from the beginning of a phase of load, and CPU time of Workers and Manager for a move.",
        settings: "No peers. For steps and skew Heddle's control group has the highest weight, load generator and \
            upstream have none; moves are those of the proxy's library inside the lab's program, without a group.",
        picture: Picture::Own,
    },
    Part {
        name: "elastic-between-nodes",
        arguments: &["elastic-between-nodes"],
        title: "The second Worker of a called node",
        minutes: 6,
        needs_root: false,
        has_quick: true,
        has_published: false,
        peers: &[],
        counted: "CPU time of the far node's Workers, and requests per second through both nodes.",
        settings: "No peer is in it: links are held against HTTP/1.1 of the same Heddle. The far node runs at nice 12 on \
            two cores that it shares with all else, so that its requests per second are of the CPU that is left over.",
        picture: Picture::Bars(&[
            (
                "CPU time of the busiest Worker ÷ the least busy one",
                &[
                    ("links", "busy_max_vs_min"),
                    ("HTTP/1.1", "http1_busy_max_vs_min"),
                ],
            ),
            (
                "requests/s over links ÷ over HTTP/1.1",
                &[
                    ("20 callers", "qps_two_workers_vs_http1"),
                    ("1 caller", "qps_two_workers_vs_http1_one_caller"),
                ],
            ),
        ]),
    },
    Part {
        name: "concurrency",
        arguments: &["concurrency"],
        title: "Many requests at once, and unequal providers",
        minutes: 42,
        needs_root: false,
        has_quick: true,
        has_published: true,
        peers: ENVOY,
        counted: "Requests whose answer and hash are right, over all providers. Neither core is in use for more than \
            60 %; registry and control plane share them, and are in no figure but that.",
        settings: "Configurations of Envoy are screened for each setting; the best in requests/s, in p99 and in maximum \
            run in full, and each ratio is against the one of them that leaves Heddle least. Providers have processor \
            time as 1 : 2 : 3, by quotas that bind: the small one's is 90 % of what a third of all answers takes with \
            512 connections.",
        picture: Picture::Bars(&[
            (
                "requests/s at 512 connections ÷ the ceiling",
                &[
                    ("Heddle", "qps_vs_ceiling"),
                    ("with room", "qps_vs_ceiling_room"),
                ],
            ),
            (
                "p99 at 512 connections ÷ the best Envoy",
                &[
                    ("as published", "p99_vs_envoy_best_512"),
                    ("with room", "p99_vs_envoy_best_512_room"),
                ],
            ),
        ]),
    },
    Part {
        name: "node-memory",
        arguments: &["node-memory"],
        title: "Memory of all proxies of a node",
        minutes: 6,
        needs_root: true,
        has_quick: true,
        has_published: false,
        peers: ENVOY,
        counted: "What the proxies hold of their own, the holder included, the pages of their program once, and what the \
            kernel keeps for their control group, maps and programs of BPF included. The control plane is not counted: \
            control_mib, with the CPU of a node, says what it holds.",
        settings: ON_A_NODE,
        picture: Picture::Own,
    },
    Part {
        name: "node-cpu",
        arguments: &["node-cpu"],
        title: "CPU of all proxies of a node",
        minutes: 7,
        needs_root: true,
        has_quick: true,
        has_published: false,
        peers: ENVOY,
        counted: ON_A_NODE_COUNTED,
        settings: ON_A_NODE,
        picture: Picture::Own,
    },
    Part {
        name: "node-qps",
        arguments: &["node-qps"],
        title: "Throughput of a pod within its CPU quota",
        minutes: 5,
        needs_root: true,
        has_quick: true,
        has_published: false,
        peers: ENVOY,
        counted: "Requests per second of one pod whose total is fixed. A proxy in the pod lives on the pod's share (where each \
            container has a limit of its own, a sidecar does not take from the application's); the node's proxy has \
            processor time of its own. It is not charged to the pod in qps_node_…, and all of it is in qps_per_cpu_…, the \
            client's side that it serves too.",
        settings: ON_A_NODE,
        picture: Picture::Own,
    },
    Part {
        name: "node-latency",
        arguments: &["node-latency"],
        title: "Latency on one node and between two",
        minutes: 12,
        needs_root: true,
        has_quick: true,
        has_published: false,
        peers: ENVOY,
        counted: "The time from when a request was due until its answer was complete.",
        settings: ON_A_NODE,
        picture: Picture::Own,
    },
    Part {
        name: "crash",
        arguments: &["crash"],
        title: "A proxy that is killed under load",
        minutes: 2,
        needs_root: true,
        has_quick: true,
        has_published: false,
        peers: &[],
        counted: "The time from SIGKILL until the next proxy has answered a request of any of 16 clients, the longest time that \
            a request took, and the requests that had no right answer. All pods of a node wait; about one request is in flight \
            at a time, as answers take less than a millisecond and each client asks every 10 ms.",
        settings: "No peers.",
        picture: Picture::Own,
    },
    qos::CPU,
    qos::BURST,
    qos::MEMORY,
    qos::NETWORK,
    qos::PROXY,
    qos::AGENT,
];

impl Part {
    /// Names and versions of the peers.
    ///
    /// # Errors
    /// When one is missing and cannot be installed.
    pub(super) fn versions(&self) -> anyhow::Result<Vec<(String, String)>> {
        if self.peers.is_empty() {
            return Ok(Vec::new());
        }
        let Peers {
            envoy,
            haproxy,
            nginx,
        } = install::peers()?;
        let version = |kind: &ProxyKind| {
            let (name, program) = match kind {
                ProxyKind::Haproxy => ("HAProxy", &haproxy),
                ProxyKind::Nginx => ("nginx", &nginx),
                ProxyKind::Envoy | ProxyKind::Heddle | ProxyKind::H2 => ("Envoy", &envoy),
            };
            Ok((name.to_owned(), System::new(name, *kind, program)?.version))
        };
        self.peers.iter().map(version).collect()
    }
}
