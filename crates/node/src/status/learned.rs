//! What a node has learned of the mesh that knows only what it uses.

use serde::{Deserialize, Serialize};

/// How a node finds out about the mesh that knows only what it uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct DiscoveryStatus {
    /// What it has learned, by name.
    pub learned: Vec<LearnedStatus>,
    /// How many names it has sent to the control plane since it was started, ...
    pub asked: u64,
    /// ... and how many it has forgotten.
    pub forgotten: u64,
}

impl DiscoveryStatus {
    /// Numbers of what is learned, by state.
    pub(crate) fn counts(&self) -> [(&'static str, u64); 4] {
        let states = [
            ("asked", LearnedState::Asked),
            ("there", LearnedState::There),
            ("absent", LearnedState::Absent),
            ("unreadable", LearnedState::Unreadable),
        ];
        states.map(|(name, state)| {
            let learned = self.learned.iter();
            let in_state = learned.filter(|one| one.state == state).count();
            (name, in_state as u64)
        })
    }
}

/// Something that the node has named to the control plane, because a workload of it has called it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct LearnedStatus {
    /// A Service, as NAMESPACE/NAME, or an address.
    pub name: String,
    /// What is known of it.
    pub state: LearnedState,
    /// The workload that called it first; absent if that was before the last start.
    #[serde(default)]
    pub by: Option<String>,
    /// Since when it is learned, in seconds.
    pub for_s: u64,
    /// How long it was not used, in seconds; up to 10 s too much.
    pub unused_s: u64,
    /// Services that the node has because of it, and others perhaps, ...
    pub services: usize,
    /// ... and their endpoints.
    pub endpoints: usize,
}

/// What is known of something that was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LearnedState {
    /// The control plane has not answered yet.
    Asked,
    /// The mesh has it.
    There,
    /// Nothing in the mesh has that name, or that address.
    Absent,
    /// This node cannot read what the control plane says of it.
    Unreadable,
}
