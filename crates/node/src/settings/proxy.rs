//! The data plane's settings, as written in the file. The ranges are defined here, the defaults by the data plane.

use std::thread;
use std::time::Duration;

use heddle_proxy::{Bounds, Elasticity, MAX_HEAD_BYTES, MAX_HEAD_FIELDS, Network, Timeouts};
use rustix::thread::CpuSet;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::contradiction::Contradiction;
use super::within::Within;

/// Milliseconds up to a day; 0 is no limit.
type MsWithinDay = Within<0, 86_400_000>;

/// Settings of the data plane.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Proxy {
    /// How long each kind of wait may last, in milliseconds. 0 is no limit.
    timeouts: ProxyTimeouts,
    /// Limits.
    bounds: ProxyBounds,
    /// The protocol to other nodes. `link`: many streams over one connection, which survives being cut. `http1`: each
    /// request or stream has a connection to itself. `http2`: requests share one connection, everything else is as with
    /// `http1`. A called node understands all three.
    between_nodes: BetweenNodes,
    /// Workers are the threads that carry connections. They come and go with the load.
    workers: Workers,
    /// Addresses and ranges whose own X-Forwarded-* and Forwarded fields are kept. From all other addresses they are
    /// removed and counted.
    ///
    /// Values: such as `[10.0.0.0/8]`.
    trusted_sources: Vec<TrustedSource>,
}

/// Protocol towards other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum BetweenNodes {
    #[default]
    Link,
    Http1,
    Http2,
}

/// Timeouts of the data plane.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct ProxyTimeouts {
    /// From a request's first byte to the end of its head. On a port that declares nothing this begins when the first
    /// line is complete. A connection without a complete first line after a second is passed on as bytes.
    request_head_ms: MsWithinDay,
    /// A question to the control plane about a destination that the node does not know.
    discovery_ms: Within<1, 86_400_000>,
    /// A client's connection between two requests.
    client_idle_ms: MsWithinDay,
    /// Connecting to an endpoint, for each attempt, including an opaque connection's wait for room on a link.
    connect_ms: MsWithinDay,
    /// From the end of the request to the head of the response, where no route says otherwise.
    response_head_ms: MsWithinDay,
    /// Either direction of a message without a byte moving.
    stream_idle_ms: MsWithinDay,
    /// A pooled connection to an endpoint without a request.
    upstream_idle_ms: MsWithinDay,
    /// A connection that is passed on as bytes, without a byte in either direction.
    tcp_idle_ms: MsWithinDay,
}

/// The threads that carry connections.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Workers {
    /// How many there are at least; at most max.
    min: Within<1, 1_024>,
    /// The limit of workers. Null: as many as the process has processors.
    max: Option<Within<1, 1_024>>,
    /// A worker is added when all workers together have been busy for more than this part of the time, for
    /// grow_after_ms.
    grow_above_percent: Within<1, 100>,
    /// How long that has to last, in milliseconds.
    grow_after_ms: MsWithinDay,
    /// A worker is retired when the others would have been busy for less than this part of the time, for
    /// retire_after_ms. At most nine tenths of grow_above_percent, else the setting is refused.
    retire_below_percent: Within<0, 99>,
    /// How long that has to last, in milliseconds. The connections of the worker go on at the other workers.
    retire_after_ms: MsWithinDay,
    /// Whether workers with little to do take connections from busier workers.
    steal: bool,
    /// Processors for the workers, one for each in turn. Empty: any. Commands of LocalWorkloads run on the other
    /// processors, if there are any.
    ///
    /// Values: of those that this process may run on, such as `[0, 1]`.
    cpus: Vec<Within<0, 1_023>>,
}

/// Upper bounds of the data plane.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct ProxyBounds {
    /// Client connections. With too few descriptors the limit is lower (the metric heddle_connections_limit). A
    /// connection over the limit is closed at once and counted.
    connections: Within<1, 1_000_000>,
    /// Of these, how many one workload may open, how many one pod may get from outside of the mesh, and how many one
    /// workload may get from other nodes, each. Null: as many as are still free. In every case the last eighth is
    /// reserved for those with few (a 64th of all, 32 at most). One over the limit is reset and counted.
    connections_per_pod: Option<Within<1, 1_000_000>>,
    /// How many each client address (for IPv6 each network of 64 bits) may open by a listener that does not identify
    /// its caller; the same rules apply.
    connections_per_address: Option<Within<1, 1_000_000>>,
    /// Connections from other nodes that have not proven an identity yet; at the limit the oldest is evicted.
    handshakes: Within<1, 1_000_000>,
    /// Connections to each endpoint. Each worker has a share of this, rounded up, so the total may be a few more; a
    /// connection that moves to another worker takes its place with it. Callers beyond the limit wait, at most as long
    /// as connecting may take.
    connections_per_endpoint: Within<1, 1_000_000>,
    /// Of these, how many stay open while idle for longer than a second (0: none is kept at all); shared among the
    /// workers in the same way. Each caller has its own, and gets half of them if it needs them. All endpoints together
    /// have at most a quarter of `connections`, and one endpoint has at most as many as are still free.
    idle_per_endpoint: Within<0, 1_000_000>,
    /// Links to other nodes that each worker may have open; at the limit the link that has been idle longest is
    /// evicted. A worker accepts twice as many from other nodes.
    links: Within<1, 1_000_000>,
    /// Size of a client's or an endpoint's head. The maximum leaves room for what nodes add before they send it on.
    /// Other nodes have applied their own limits: from them 65535 bytes and 160 fields are accepted, whatever is set
    /// here.
    ///
    /// Values: 1024 to 61439.
    head_bytes: Within<1_024, { u64::MAX }>,
    /// Fields in such a head.
    ///
    /// Values: 8 to 128.
    head_fields: Within<8, { u64::MAX }>,
    /// Size of a buffer block.
    block_bytes: Within<64, 65_536>,
    /// Blocks of the process: usual buffers take at most block_bytes times this. Long bodies may take as much again, in
    /// larger blocks.
    blocks: Within<64, 16_777_216>,
    /// How many bytes one direction of one message may hold while the other side is slow.
    stream_window_bytes: Within<4_096, 67_108_864>,
    /// A client's connection is closed after this many requests, so that clients spread again.
    requests_per_connection: Within<1, { u64::MAX }>,
}

impl Default for ProxyTimeouts {
    fn default() -> Self {
        let default = Timeouts::default();
        let ms = |duration: Duration| Within::nearest(duration.as_millis() as u64);
        ProxyTimeouts {
            request_head_ms: ms(default.request_head),
            discovery_ms: Within::nearest(default.discovery.as_millis() as u64),
            client_idle_ms: ms(default.client_idle),
            connect_ms: ms(default.connect),
            response_head_ms: ms(default.response_head),
            stream_idle_ms: ms(default.stream_idle),
            upstream_idle_ms: ms(default.upstream_idle),
            tcp_idle_ms: ms(default.tcp_idle),
        }
    }
}

impl Default for Workers {
    fn default() -> Self {
        let default = Elasticity::default();
        let percent = |ratio: f64| (ratio * 100.0).round() as u64;
        Workers {
            min: Within::nearest(default.min as u64),
            max: None,
            grow_above_percent: Within::nearest(percent(default.grow_above)),
            retire_below_percent: Within::nearest(percent(default.retire_below)),
            grow_after_ms: Within::nearest(default.grow_after.as_millis() as u64),
            retire_after_ms: Within::nearest(default.retire_after.as_millis() as u64),
            steal: default.steal,
            cpus: Vec::new(),
        }
    }
}

impl Workers {
    fn elasticity(&self) -> Elasticity {
        // This respects CPU affinity and cgroup quotas: more threads than can run do not help.
        let processors = || thread::available_parallelism().map_or(1, usize::from);
        let min = self.min.size();
        Elasticity {
            min,
            max: self.max.map_or_else(processors, Within::size).max(min),
            grow_above: self.grow_above_percent.get() as f64 / 100.0,
            retire_below: self.retire_below_percent.get() as f64 / 100.0,
            grow_after: self.grow_after_ms.duration(),
            retire_after: self.retire_after_ms.duration(),
            steal: self.steal,
        }
    }
}

impl Default for ProxyBounds {
    fn default() -> Self {
        let default = Bounds::default();
        ProxyBounds {
            connections: Within::nearest(default.connections as u64),
            connections_per_pod: None,
            connections_per_address: None,
            handshakes: Within::nearest(default.handshakes as u64),
            connections_per_endpoint: Within::nearest(default.connections_per_endpoint as u64),
            idle_per_endpoint: Within::nearest(default.idle_per_endpoint as u64),
            links: Within::nearest(default.links as u64),
            head_bytes: Within::nearest(default.head_bytes as u64),
            head_fields: Within::nearest(default.head_fields as u64),
            block_bytes: Within::nearest(default.block_bytes as u64),
            blocks: Within::nearest(default.blocks as u64),
            stream_window_bytes: Within::nearest(default.stream_window_bytes as u64),
            requests_per_connection: Within::nearest(default.requests_per_connection),
        }
    }
}

impl ProxyBounds {
    /// Refuses limits that would admit request heads too large to send on to another node.
    fn contradiction(&self) -> Option<Contradiction> {
        let (bytes, fields) = (self.head_bytes.get(), self.head_fields.get());
        let (most_bytes, most_fields) = (MAX_HEAD_BYTES as u64, MAX_HEAD_FIELDS as u64);
        let too_much = |field, set, most, unit| Contradiction {
            fields: vec![field],
            reason: format!(
                "{set} is more than {most}: with the fields that nodes add, a head could have more {unit} than another \
                 node accepts"
            ),
            remedy: format!("set it to at most {most}"),
        };
        if bytes > most_bytes {
            let field = "proxy.bounds.head_bytes";
            return Some(too_much(field, bytes, most_bytes, "bytes"));
        }
        if fields > most_fields {
            let field = "proxy.bounds.head_fields";
            return Some(too_much(field, fields, most_fields, "fields"));
        }
        None
    }
}

impl Proxy {
    /// Looks for values that are valid on their own, but contradict each other or this machine.
    pub(super) fn contradiction(&self) -> Option<Contradiction> {
        let workers = &self.workers;
        let min = workers.min.get();
        if let Some(max) = workers.max.map(Within::get)
            && min > max
        {
            return Some(Contradiction {
                fields: vec!["proxy.workers.min", "proxy.workers.max"],
                reason: format!("min is {min} and more than max, {max}"),
                remedy: "lower min, or raise max".to_owned(),
            });
        }
        let (grow, retire) = (
            workers.grow_above_percent.get(),
            workers.retire_below_percent.get(),
        );
        let most = grow * 9 / 10;
        if retire > most {
            return Some(Contradiction {
                fields: vec![
                    "proxy.workers.retire_below_percent",
                    "proxy.workers.grow_above_percent",
                ],
                reason: format!(
                    "retire_below_percent is {retire} and more than nine tenths of \
                     grow_above_percent, {grow}: workers would come and go without end"
                ),
                remedy: format!("set retire_below_percent to at most {most}"),
            });
        }
        if let Some(contradiction) = self.bounds.contradiction() {
            return Some(contradiction);
        }
        let allowed = rustix::thread::sched_getaffinity(None).ok()?;
        let mut cpus = workers.cpus.iter().map(|cpu| cpu.size());
        let cpu = cpus.find(|&cpu| cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu))?;
        let may: Vec<String> = (0..CpuSet::MAX_CPU)
            .filter(|&cpu| allowed.is_set(cpu))
            .map(|cpu| cpu.to_string())
            .collect();
        Some(Contradiction {
            fields: vec!["proxy.workers.cpus"],
            reason: format!("this process may not run on processor {cpu}"),
            remedy: format!("expected some of {}", may.join(", ")),
        })
    }

    /// Converts to the data plane's own settings.
    pub fn settings(&self) -> heddle_proxy::Settings {
        let Proxy {
            timeouts,
            bounds,
            workers,
            between_nodes,
            trusted_sources,
        } = self;
        heddle_proxy::Settings {
            timeouts: Timeouts {
                request_head: timeouts.request_head_ms.duration(),
                discovery: timeouts.discovery_ms.duration(),
                client_idle: timeouts.client_idle_ms.duration(),
                connect: timeouts.connect_ms.duration(),
                response_head: timeouts.response_head_ms.duration(),
                stream_idle: timeouts.stream_idle_ms.duration(),
                upstream_idle: timeouts.upstream_idle_ms.duration(),
                tcp_idle: timeouts.tcp_idle_ms.duration(),
            },
            between_nodes: match between_nodes {
                BetweenNodes::Link => heddle_proxy::Protocol::Link,
                BetweenNodes::Http1 => heddle_proxy::Protocol::Http1,
                BetweenNodes::Http2 => heddle_proxy::Protocol::Http2,
            },
            original_destination: heddle_proxy::OriginalDestination::default(),
            node_address: heddle_proxy::NodeAddress::default(),
            questions: None,
            accesses: None,
            workers: workers.elasticity(),
            cpus: workers.cpus.iter().map(|cpu| cpu.size()).collect(),
            bounds: Bounds {
                connections: bounds.connections.size(),
                connections_per_pod: bounds.connections_per_pod.map(Within::size),
                connections_per_address: bounds.connections_per_address.map(Within::size),
                handshakes: bounds.handshakes.size(),
                connections_per_endpoint: bounds.connections_per_endpoint.size(),
                idle_per_endpoint: bounds.idle_per_endpoint.size(),
                links: bounds.links.size(),
                head_bytes: bounds.head_bytes.size(),
                head_fields: bounds.head_fields.size(),
                block_bytes: bounds.block_bytes.size(),
                blocks: bounds.blocks.size(),
                stream_window_bytes: bounds.stream_window_bytes.size(),
                requests_per_connection: bounds.requests_per_connection.get(),
            },
            trusted_sources: trusted_sources
                .iter()
                .map(|source| source.network)
                .collect(),
        }
    }
}

/// An address, or a range in CIDR notation; serialised as it was written.
#[derive(Clone, Debug, PartialEq)]
struct TrustedSource {
    text: String,
    network: Network,
}

impl<'de> Deserialize<'de> for TrustedSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.parse() {
            Ok(network) => Ok(TrustedSource { text, network }),
            Err(reason) => Err(de::Error::custom(format!(
                "{reason}, expected an address or a range such as 10.0.0.0/8"
            ))),
        }
    }
}

impl Serialize for TrustedSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}
