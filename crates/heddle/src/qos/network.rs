//! The network part of `heddle qos run`: a thread of its own beside the agent, with a journal of its own under the same
//! lock.

use std::collections::BTreeMap;

use anyhow::Context;
use heddle_node::exit::Failure;
use heddle_node::settings::QosNetworkSettings;
use heddle_node::table::count;
use heddle_qos::arbiter::journal::{Nowhere, StateFolder};
use heddle_qos::cgroup;
use heddle_qos::controllers::bandwidth;
use heddle_qos::network::held::{Held, Key};
use heddle_qos::network::system::TrafficControl;
use heddle_qos::network::{Journal, Network, Settings, Thread};

/// Puts back what a killed agent has left, and starts the thread if the settings ask for it.
///
/// # Errors
/// The journal cannot be read or written, or the kernel does not answer.
pub(super) fn start(
    settings: &QosNetworkSettings,
    mounts: cgroup::Mounts,
    folder: &StateFolder,
) -> Result<Option<Thread>, Failure> {
    let opened = Journal::open(folder);
    let (journal, held): (Journal, BTreeMap<Key, Held>) =
        opened.map_err(|error| super::unreadable(&error))?;
    let left = held.len();
    if left == 0 && !settings.enabled {
        return Ok(None);
    }
    let mut network = Network::new(wanted(settings), open(mounts)?, journal, held);
    if left > 0 {
        let what = count(left, "setting");
        tracing::warn!(
            "an agent was killed before it had put back {what} of the network: that is done first"
        );
        network.restore();
    }
    match settings.enabled {
        true => Ok(Some(
            Thread::start(network).context("cannot start a thread")?,
        )),
        false => Ok(None),
    }
}

/// Says what would be done, and changes nothing.
///
/// # Errors
/// The kernel does not answer.
pub(super) fn rehearse(
    settings: &QosNetworkSettings,
    mounts: cgroup::Mounts,
) -> Result<Option<Thread>, Failure> {
    if !settings.enabled {
        return Ok(None);
    }
    let mut network = Network::new(wanted(settings), open(mounts)?, Nowhere, BTreeMap::new());
    network.rehearse();
    Ok(Some(
        Thread::start(network).context("cannot start a thread")?,
    ))
}

fn open(mounts: cgroup::Mounts) -> Result<TrafficControl, Failure> {
    let groups = cgroup::System::new(mounts);
    Ok(TrafficControl::open(groups).context("cannot speak to the kernel about the network")?)
}

fn wanted(settings: &QosNetworkSettings) -> Settings {
    Settings {
        interfaces: settings.interfaces.clone(),
        rates: bandwidth::Settings {
            waterline: settings.waterline_bytes_per_s.get(),
            low: settings.low_bytes_per_s.get(),
            high: settings.high_bytes_per_s.get(),
            link: settings.link_bytes_per_s.map(|rate| rate.get()),
        },
        mark: settings.mark,
        replace: settings.replace.iter().cloned().collect(),
    }
}
