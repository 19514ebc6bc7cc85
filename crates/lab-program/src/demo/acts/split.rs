//! The first act: a route is edited, and the traffic changes with it.

use std::time::Duration;

use tokio::time::sleep;

use crate::demo::manifests::ManifestFolder;
use crate::demo::mesh::NODES;
use crate::demo::stage::DemoStage;
use crate::demo::verdict::Phase;

/// The share of readers that get reviews v2, before and after the edit.
const SHARES: [f64; 2] = [0.1, 0.5];
/// How long the old weights may still show in the shopper's pages.
const SETTLING: Duration = Duration::from_secs(1);

/// Runs the act for `length`.
///
/// # Errors
/// The edit does not take effect, or a node does not answer.
pub(in crate::demo) async fn share(
    stage: &mut DemoStage<'_>,
    manifests: &ManifestFolder,
    length: Duration,
) -> anyhow::Result<[Phase; 2]> {
    let half = length / 2;
    stage
        .screen
        .say("the shopper reads pages: 90 % with reviews v1, 10 % with v2. In the table, REFUSED and FAILED count requests of \
             the last seconds: refused by a policy, and gone wrong");
    let before = Phase {
        seen: stage.play(half).await?,
        expected: SHARES[0],
    };

    // The caller's node applies the routes.
    let generation = stage.mesh.metrics().await?.generation(NODES[0]);
    manifests.set_weights(50, 50)?;
    let effect = stage.mesh.newer_than(NODES[0], generation).await?;
    stage.screen.say(&format!(
        "route.yaml edited: 50 / 50, in effect on {} after {} ms",
        NODES[0],
        effect.as_millis()
    ));
    sleep(SETTLING.saturating_sub(effect)).await;
    let after = Phase {
        seen: stage.play(half.saturating_sub(SETTLING)).await?,
        expected: SHARES[1],
    };
    Ok([before, after])
}
