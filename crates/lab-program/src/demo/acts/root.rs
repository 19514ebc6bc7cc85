//! The third act: one command replaces the root under load.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::READER;
use crate::demo::answers::Root;
use crate::demo::caller::{Answers, Caller, ask, told};
use crate::demo::manifests::{Extra, ManifestFolder};
use crate::demo::mesh::{Mesh, NODES};
use crate::demo::stage::DemoStage;

/// The Service that the reader calls, on the other node.
const REVIEWS: &str = "bookstore/reviews";
const PATH: &str = "/reviews/1";
/// Prefix of every identity.
const DOMAIN: &str = "spiffe://cluster.local/";
/// Suffix of the reader's identity.
const READERS_ID: &str = "/ns/bookstore/sa/reader";

/// Outcome of the rotation.
#[derive(Clone, Debug, Default)]
pub(in crate::demo) struct Rotated {
    /// The signing root before and after the rotation, from `heddle root status`.
    pub(in crate::demo) roots: [String; 2],
    /// Stage of the rotation.
    pub(in crate::demo) stage: String,
    /// Number of roots that each node trusts.
    pub(in crate::demo) trusted: Vec<usize>,
    /// The root that signed the certificate of the workload added afterwards.
    pub(in crate::demo) newcomers: Option<String>,
    /// Responses that this workload got from a workload on the other node.
    pub(in crate::demo) answers: Answers,
}

/// Runs the act for `length`.
///
/// # Errors
/// The rotation does not succeed, the reader does not arrive, or a node does not answer.
pub(in crate::demo) async fn rotate(
    stage: &mut DemoStage<'_>,
    manifests: &ManifestFolder,
    length: Duration,
) -> anyhow::Result<Rotated> {
    let began = Instant::now();
    let seen = stage.shopper.tally();
    let before = root(stage.mesh).await?;
    let rotate = ["root", "rotate", "--wait", "20s"];
    let control = &stage.mesh.control_socket;
    let said = stage.mesh.heddle.ask(&rotate, control, &[]).await?;
    let took = began.elapsed().as_millis();
    stage
        .screen
        .say(&format!("heddle root rotate took {took} ms:"));
    stage.screen.quote(&said.stderr);
    stage.screen.quote(&said.stdout);
    let after = root(stage.mesh).await?;

    manifests.add(Extra::Reader)?;
    let url = stage.mesh.arrival(NODES[0], READER, REVIEWS).await? + PATH;
    let first = ask(stage.mesh.program_of(READER)?, &url)
        .await
        .context("the reader's first request")?;
    let reader = Caller::start(stage.mesh.program_of(READER)?, &url)?;
    stage.screen.say(&format!(
        "a reader is added to {}, with a certificate of the new root, and calls reviews on {}, which has one of the old \
         root: it gets {first}",
        NODES[0], NODES[1]
    ));
    let shown = identities(stage.mesh).await?;
    stage.screen.quote(&shown);
    let mut trusted = Vec::new();
    for name in NODES {
        let trust = stage.mesh.check(name).await?.trust;
        trusted.push(trust.map_or(0, |trust| trust.roots));
    }
    let newcomers = stage.mesh.check(NODES[0]).await?;
    let newcomers = newcomers
        .account(READERS_ID)
        .and_then(|one| one.root_sha256.clone());
    stage.play_out(began, length).await?;
    let answers = reader.finish().await;
    let seen = stage.shopper.tally().since(&seen);
    stage.screen.say(&format!(
        "since the rotation began: {} pages, {} failed; the reader got {}",
        seen.versions.iter().sum::<u64>(),
        seen.failures,
        told(&answers)
    ));
    Ok(Rotated {
        roots: [before.sha256, after.sha256],
        stage: after.stage,
        trusted,
        newcomers,
        answers,
    })
}

async fn root(mesh: &Mesh) -> anyhow::Result<Root> {
    let control = &mesh.control_socket;
    mesh.heddle.answer(&["root", "status"], control, &[]).await
}

/// The identities of both nodes as a table, from `heddle check`.
///
/// # Errors
/// A node does not answer.
pub(in crate::demo) async fn identities(mesh: &Mesh) -> anyhow::Result<String> {
    let mut table = format!(
        "{:<6} {:<40} {:<8} {:<8} EXPIRES IN\n",
        "NODE",
        format!("IDENTITY IN {DOMAIN}"),
        "SERIAL",
        "ROOT"
    );
    for name in NODES {
        let check = mesh.check(name).await?;
        for one in &check.identities {
            let left = one.not_after.unwrap_or(0).saturating_sub(check.clock.now);
            let line = format!(
                "{name:<6} {:<40} {:<8} {:<8} {} min {:02} s\n",
                one.spiffe_id.strip_prefix(DOMAIN).unwrap_or(&one.spiffe_id),
                beginning(one.serial.as_deref()),
                beginning(one.root_sha256.as_deref()),
                left / 60,
                left % 60
            );
            table.push_str(&line);
        }
    }
    Ok(table)
}

/// The first 8 digits of a long number, enough to recognize it.
fn beginning(number: Option<&str>) -> &str {
    number.map_or("-", |number| number.get(..8).unwrap_or(number))
}
