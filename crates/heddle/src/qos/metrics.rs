//! The metrics of the agent, served over TCP as a node's are.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use heddle_model::report::{InForce, Report};
use heddle_node::admin::{Answer, Ask, Question, serve_tcp};
use heddle_node::exit::Failure;
use heddle_node::serving::start;
use heddle_node::settings::Metrics;
use heddle_qos::{agent, network};
use heddle_telemetry::exposition::{self, DescriptorEncoder, counter, counters, gauge, gauges};
use heddle_telemetry::families::{process, qos};
use heddle_telemetry::process::{Probe, Usage};
use tokio::sync::mpsc::{self, Receiver};

/// Capacity of the queue of questions to the main loop.
const ASKS: usize = 4;

/// What came of questions to the kubelet.
#[derive(Debug, Default)]
pub(super) struct KubeletAnswers {
    pub(super) ok: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// Answers questions for metrics.
pub(super) struct Server {
    pub(super) questions: Receiver<Ask>,
    probe: Probe,
}

impl Server {
    /// Begins to serve, unless the setting is `none`.
    ///
    /// # Errors
    /// When the address is in use, or not one of this machine.
    pub(super) fn start(at: Metrics) -> Result<Option<Server>, Failure> {
        let Some((listener, _)) = start::metrics_listener(at)? else {
            return Ok(None);
        };
        let (asks, questions) = mpsc::channel(ASKS);
        tokio::spawn(serve_tcp(listener, asks));
        Ok(Some(Server {
            questions,
            probe: Probe::open(),
        }))
    }

    /// Answers one question. The agent is ready once it knows its pods. `look` is only called for metrics.
    pub(super) fn answer(&self, ask: Ask, is_ready: bool, look: impl FnOnce() -> Look) {
        let answer = match ask.question {
            Question::Metrics => {
                let (look, usage) = (look(), self.probe.read());
                Answer {
                    status: 200,
                    content_type: exposition::CONTENT_TYPE,
                    body: exposition::render(move |encoder| {
                        gauge(encoder, &process::READY, u64::from(is_ready))?;
                        look.encode(usage, encoder)
                    }),
                }
            }
            Question::Ready if is_ready => Answer::text(200, "ready"),
            Question::Ready => Answer::text(
                503,
                "not ready: the kubelet has not answered since the start",
            ),
            _ => Answer::text(404, "no such path"),
        };
        // The client may be gone.
        let _gone = ask.answer.send(answer);
    }
}

/// What all parts do at one moment.
pub(super) struct Look {
    pub(super) agent: agent::Snapshot,
    pub(super) network: Option<network::Snapshot>,
    pub(super) kubelet: Option<Arc<KubeletAnswers>>,
    /// `None` without a folder.
    pub(super) folder: Option<FolderStatus>,
}

/// What is in force of a folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct FolderStatus {
    generation: u64,
    is_stale: bool,
    problems: usize,
    /// Objects that are refused, by what is in force instead.
    refused: [(InForce, u64); InForce::ALL.len()],
}

impl FolderStatus {
    /// The first state of a folder, which was taken.
    pub(super) fn new(report: &Report) -> Self {
        FolderStatus {
            generation: 1,
            is_stale: false,
            problems: report.problems.len(),
            refused: report.refused_by_what_is_in_force(),
        }
    }

    /// A later state.
    pub(super) fn follow(&mut self, is_taken: bool, report: &Report) {
        self.generation += u64::from(is_taken);
        self.is_stale = !is_taken;
        self.problems = report.problems.len();
        if is_taken {
            self.refused = report.refused_by_what_is_in_force();
        }
    }

    fn encode(self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        gauge(encoder, &process::CONFIG_GENERATION, self.generation)?;
        gauge(encoder, &process::CONFIG_STALE, u64::from(self.is_stale))?;
        gauge(encoder, &process::CONFIG_PROBLEMS, self.problems as u64)?;
        let refused = self.refused.iter();
        let refused = refused.map(|(in_force, count)| ([("in_force", in_force.as_str())], *count));
        gauges(encoder, &process::CONFIG_OBJECTS_REFUSED, refused)
    }
}

impl Look {
    fn encode(&self, usage: Usage, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let version = [([("version", env!("CARGO_PKG_VERSION"))], 1_u64)];
        gauges(encoder, &process::BUILD_INFO, version)?;
        if let Some(folder) = self.folder {
            folder.encode(encoder)?;
        }
        self.work(encoder)?;
        let pods = [
            ("online", self.agent.online),
            ("offline", self.agent.offline),
        ];
        let pods = pods.map(|(class, pods)| ([("class", class)], pods));
        gauges(encoder, &qos::PODS, pods)?;
        if let Some(cores) = self.agent.turbo_cores {
            gauge(encoder, &qos::TURBO_GRANTED, cores)?;
        }
        if let Some(limit) = self.agent.memory_limit {
            gauge(encoder, &qos::OFFLINE_MEMORY_LIMIT, limit)?;
        }
        if let Some(level) = self.agent.latency_level {
            gauge(encoder, &qos::LATENCY_LEVEL, level as u64)?;
        }
        counter(encoder, &qos::EVICTIONS, self.agent.evictions)?;
        if let Some(network) = &self.network {
            let all = network.interfaces.iter();
            let limits = all
                .clone()
                .map(|one| ([("interface", one.name.as_str())], one.limit));
            gauges(encoder, &qos::OFFLINE_RATE_LIMIT, limits)?;
            let online = all.map(|one| ([("interface", one.name.as_str())], one.online));
            gauges(encoder, &qos::ONLINE_RATE, online)?;
        }
        if let Some(kubelet) = &self.kubelet {
            let results = [("ok", &kubelet.ok), ("failed", &kubelet.failed)];
            let results =
                results.map(|(result, count)| ([("result", result)], count.load(Relaxed)));
            counters(encoder, &qos::KUBELET_ANSWERS, results)?;
        }
        usage.encode(encoder)
    }

    /// What was changed and refused.
    fn work(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut changes = self.agent.changes.clone();
        let mut counts = self.agent.counts;
        if let Some(network) = &self.network {
            changes.extend(&network.changes);
            counts = counts + network.counts;
        }
        let changes = changes.into_iter();
        let changes = changes
            .map(|((class, setting), count)| ([("class", class), ("setting", setting)], count));
        gauges(encoder, &qos::CHANGES, changes)?;
        counter(encoder, &qos::WRITES, counts.writes)?;
        let refusals = [("foreign", counts.foreign), ("failed", counts.failed)];
        let refusals = refusals.map(|(reason, count)| ([("reason", reason)], count));
        counters(encoder, &qos::REFUSALS, refusals)
    }
}
