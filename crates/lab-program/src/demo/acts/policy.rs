//! The second act: a policy refuses an intruder, and the port between the nodes refuses clients without a
//! certificate.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::time::sleep;

use super::INTRUDER;
use crate::demo::caller::{Answers, Caller, ask, told};
use crate::demo::manifests::{Extra, ManifestFolder};
use crate::demo::mesh::NODES;
use crate::demo::metrics::{HANDSHAKES_REFUSED, REJECTED};
use crate::demo::stage::DemoStage;
use crate::demo::stranger::Stranger;

/// The Service that the intruder calls.
const DETAILS: &str = "bookstore/details";
const PATH: &str = "/details/1";
/// The TLS server name (SNI) of its provider.
const SERVER_NAME: &str = "details.bookstore.sa.cluster.local";
/// The reason for a request that a policy refuses.
const REASON: &str = "policy_denied";
/// How long a node may take to count a refused handshake or request.
const COUNT_LIMIT: Duration = Duration::from_secs(5);

/// Outcome of the second act.
#[derive(Clone, Debug, Default)]
pub(in crate::demo) struct Guarded {
    /// The intruder's response before there was a policy.
    pub(in crate::demo) before: String,
    /// Its responses afterwards, and how often it got each.
    pub(in crate::demo) after: Answers,
    /// Refused requests meanwhile, as counted by the node of details.
    pub(in crate::demo) counted: u64,
    /// Output of `heddle explain`.
    pub(in crate::demo) explained: String,
    pub(in crate::demo) strangers: Vec<Turned>,
}

/// Outcome of a stranger's connection.
#[derive(Clone, Debug)]
pub(in crate::demo) struct Turned {
    pub(in crate::demo) stranger: Stranger,
    /// Bytes of a response, which should be 0.
    pub(in crate::demo) answer: usize,
    /// How often the node counted its reason meanwhile.
    pub(in crate::demo) counted: u64,
}

/// Runs the act for `length`.
///
/// # Errors
/// The intruder does not arrive, the policy does not take effect, or a node does not answer.
pub(in crate::demo) async fn guard(
    stage: &mut DemoStage<'_>,
    manifests: &ManifestFolder,
    length: Duration,
) -> anyhow::Result<Guarded> {
    let began = Instant::now();
    let [front, back] = NODES;
    manifests.add(Extra::Intruder)?;
    let url = stage.mesh.arrival(front, INTRUDER, DETAILS).await? + PATH;
    let before = ask(stage.mesh.program_of(INTRUDER)?, &url)
        .await
        .context("the intruder's first request")?;
    stage.screen.say(&format!(
        "an intruder is added to {front} with its own identity, calls details, and gets {before}: no policy says otherwise yet"
    ));

    let generation = stage.mesh.metrics().await?.generation(back);
    manifests.add(Extra::Policy)?;
    let effect = stage.mesh.newer_than(back, generation).await?;
    stage.screen.say(&format!(
        "{} written: only productpage may call details, in effect on {back} after {} ms",
        Extra::Policy.file(),
        effect.as_millis()
    ));
    let refused_before = stage.mesh.metrics().await?.refused(back, REJECTED, REASON);
    let intruder = Caller::start(stage.mesh.program_of(INTRUDER)?, &url)?;

    let explain = ["explain", INTRUDER, DETAILS, "GET", PATH];
    let control = &stage.mesh.control_socket;
    let explained = stage.mesh.heddle.ask(&explain, control, &[]).await?.stdout;
    stage.screen.say("heddle explain:");
    stage.screen.quote(&explained);
    let strangers = strangers(stage).await?;
    stage.play_out(began, length).await?;

    let (after, counted) = stop(stage, intruder, refused_before).await?;
    stage.screen.say(&format!(
        "the intruder got {}; {back} counted {counted}:",
        told(&after)
    ));
    let counter = format!("{REJECTED}{{reason=\"{REASON}\"}} {counted}");
    stage.screen.quote(&counter);
    Ok(Guarded {
        before,
        after,
        counted,
        explained,
        strangers,
    })
}

/// Stops the intruder; returns its responses and the node's count of refused requests. Waits a moment for the two to
/// be equal, since counters are published with a delay.
async fn stop(
    stage: &DemoStage<'_>,
    intruder: Caller,
    refused_before: u64,
) -> anyhow::Result<(Answers, u64)> {
    let answers = intruder.finish().await;
    let asked: u64 = answers.values().sum();
    let deadline = Instant::now() + COUNT_LIMIT;
    loop {
        let refused = stage.mesh.metrics().await?;
        let counted = refused.refused(NODES[1], REJECTED, REASON) - refused_before;
        if counted >= asked || Instant::now() > deadline {
            return Ok((answers, counted));
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Connects each kind of stranger to the port on which the second node accepts connections of other nodes.
async fn strangers(stage: &mut DemoStage<'_>) -> anyhow::Result<Vec<Turned>> {
    let back = NODES[1];
    let address = stage.mesh.check(back).await?.mesh_address;
    let address = address.context("heddle check shows no mesh address of the node")?;
    let mut all = Vec::new();
    for stranger in Stranger::ALL {
        let turned = turn_away(stage, stranger, address).await?;
        let answer = match turned.answer {
            0 => "closed without an answer, on purpose".to_owned(),
            bytes => format!("an answer of {bytes} bytes"),
        };
        stage.screen.say(&format!(
            "{} to the mesh address of {back}: {answer}; {back} counts:",
            stranger.words()
        ));
        let (reason, counted) = (stranger.reason(), turned.counted);
        let counter = format!("{HANDSHAKES_REFUSED}{{reason=\"{reason}\"}} {counted}");
        stage.screen.quote(&counter);
        all.push(turned);
    }
    Ok(all)
}

async fn turn_away(
    stage: &DemoStage<'_>,
    stranger: Stranger,
    address: SocketAddr,
) -> anyhow::Result<Turned> {
    let mesh = &stage.mesh;
    let count = async || {
        let reading = mesh.metrics().await?;
        anyhow::Ok(reading.refused(NODES[1], HANDSHAKES_REFUSED, stranger.reason()))
    };
    let before = count().await?;
    let answer = stranger
        .call(mesh.connect(address).await?, SERVER_NAME)
        .await?;
    let deadline = Instant::now() + COUNT_LIMIT;
    loop {
        let counted = count().await? - before;
        if counted > 0 || Instant::now() > deadline {
            return Ok(Turned {
                stranger,
                answer,
                counted,
            });
        }
        sleep(Duration::from_millis(20)).await;
    }
}
