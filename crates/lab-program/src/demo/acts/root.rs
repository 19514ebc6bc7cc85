//! The third act: the root is replaced under load, by one command.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::READER;
use crate::demo::answers::Root;
use crate::demo::caller::{Answers, Caller, ask, told};
use crate::demo::manifests::{Extra, ManifestFolder};
use crate::demo::mesh::{Mesh, NODES};
use crate::demo::stage::DemoStage;

/// What the reader calls, on the other node.
const REVIEWS: &str = "bookstore/reviews";
const PATH: &str = "/reviews/1";
/// What every identity begins with.
const DOMAIN: &str = "spiffe://cluster.local/";
/// As the reader's identity ends.
const READERS_ID: &str = "/ns/bookstore/sa/reader";

/// What was seen of the new root.
#[derive(Clone, Debug, Default)]
pub(in crate::demo) struct Rotated {
    /// Which root signed before and signs now, as `heddle root status` has it.
    pub(in crate::demo) roots: [String; 2],
    /// How far the rotation is.
    pub(in crate::demo) stage: String,
    /// How many roots each node trusts.
    pub(in crate::demo) trusted: Vec<usize>,
    /// Which root signed for the workload that came afterwards.
    pub(in crate::demo) newcomers: Option<String>,
    /// What that workload was told by one on the other node.
    pub(in crate::demo) answers: Answers,
}

/// Plays it for `length`.
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
        .say(&format!("heddle root rotate, which took {took} ms:"));
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
        "a reader comes to {}, and asks reviews on {}, whose certificate is of the old root: {first}",
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
        "since the rotation began {} pages, {} failed; the reader was told {}",
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

/// What `heddle check` says of the identities of both nodes, in short.
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

/// Enough of a long number to tell it from another.
fn beginning(number: Option<&str>) -> &str {
    number.map_or("-", |number| number.get(..8).unwrap_or(number))
}
