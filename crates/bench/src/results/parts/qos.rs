//! The parts of node QoS.

use super::{Part, Picture};

/// What all of them have in common.
const QOS: Part = Part {
    name: "",
    arguments: &[],
    title: "",
    minutes: 0,
    needs_root: true,
    has_quick: true,
    has_published: false,
    peers: &[],
    counted: "",
    settings: "No peers. Alone, off and on are measured in turn within each round.",
    picture: Picture::Own,
};

pub(super) const CPU: Part = Part {
    name: "qos-cpu",
    arguments: &["qos-cpu"],
    title: "A web service beside batch work that takes every processor",
    minutes: 6,
    counted: "The time from when a request was due until its answer was complete, through the node's proxy. A round counts only \
        if its p99 without node QoS is three times that alone or more. The picture is of one run after the rounds.",
    ..QOS
};

pub(super) const BURST: Part = Part {
    name: "qos-burst",
    arguments: &["qos-burst"],
    title: "A pod whose bursts go beyond its CPU limit",
    minutes: 15,
    counted: "The time from when a request was due until it was done, of the requests within bursts, once the first bursts \
        are over; and the periods of the quota in which the pod was stopped meanwhile, which the kernel counts.",
    settings: "No peers. Without a limit, with one and without node QoS, and with both are measured in turn within each round.",
    ..QOS
};

pub(super) const MEMORY: Part = Part {
    name: "qos-memory",
    arguments: &["qos-memory"],
    title: "Downloads beside batch work that takes memory",
    minutes: 16,
    counted: "The mean time of a download of 16 MiB from nginx, once memory has settled: with node QoS that takes half a minute. \
        Fixed is the same batch work in an idle group with a limit of its own from the start, without an agent: what is left then \
        no control group gives back. The picture shows the time before, too.",
    ..QOS
};

pub(super) const NETWORK: Part = Part {
    name: "qos-network",
    arguments: &["qos-network"],
    title: "Two pods that share a node's link",
    minutes: 14,
    counted: "The time from the first bytes of the flow that starts until online has 95 % of its rate alone again, the longer \
        one of both changes; and the rate of offline from a second after online has stopped, as a part of what online leaves. The \
        bottleneck of 400 Mbit/s is behind the node, and bytes are counted behind it.",
    settings: "No peers. Off, with two rates and a waterline, and with what online leaves of a declared link are measured in turn \
        within each round, each direct and through the proxy.",
    ..QOS
};

pub(super) const PROXY: Part = Part {
    name: "qos-proxy",
    arguments: &["qos-proxy"],
    title: "An offline pod that floods through the proxy it shares",
    minutes: 16,
    counted: "As beside batch work that takes every processor; a round counts only if the p99 without classes is twice that alone \
        or more.",
    picture: Picture::Bars(&[
        (
            "p99 ÷ alone, a flood of requests",
            &[
                ("class off", "proxy_requests_p99_off_vs_alone"),
                ("class on", "proxy_requests_p99_on_vs_alone"),
            ],
        ),
        (
            "p99 ÷ alone, a flood of bytes",
            &[
                ("class off", "proxy_bytes_p99_off_vs_alone"),
                ("class on", "proxy_bytes_p99_on_vs_alone"),
            ],
        ),
        (
            "p99 ÷ alone, a flood of handshakes",
            &[
                ("class off", "proxy_handshakes_p99_off_vs_alone"),
                ("class on", "proxy_handshakes_p99_on_vs_alone"),
            ],
        ),
    ]),
    ..QOS
};

pub(super) const AGENT: Part = Part {
    name: "qos-agent",
    arguments: &["qos-agent"],
    title: "The agent of node QoS itself",
    minutes: 7,
    counted: "All threads of `heddle qos run` at rest, with the pages of its program. Writes are those to the groups of its pods \
        and to its journal.",
    settings: "No peers. 100 pods of one container each, 20 of them with turbo, 20 offline; nothing runs in them.",
    picture: Picture::Bars(&[
        (
            "percent of a processor",
            &[
                ("no pods", "agent_cpu_percent_no_pods"),
                ("100 pods", "agent_cpu_percent"),
            ],
        ),
        (
            "resident memory (MiB)",
            &[("no pods", "agent_mib_no_pods"), ("100 pods", "agent_mib")],
        ),
    ]),
    ..QOS
};
