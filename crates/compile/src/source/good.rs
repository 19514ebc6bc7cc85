//! The last good version of each object, and as text, so that they outlive a process.
//!
//! The text has one line of JSON for each object, with the file that it was in, and one for each policy with the
//! workloads that it selected. An object is read like any manifest: what is not valid is not used.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heddle_model::{Mesh, PolicyName, WorkloadName};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::compile::Pins;
use crate::findings::{Findings, Key};
use crate::manifest::node::Node;
use crate::manifest::{self, Object};

/// What was in force when it was valid.
#[derive(Debug, Clone, Default)]
pub(super) struct Good {
    /// The last good version of each object.
    pub(super) objects: BTreeMap<Key, Arc<Object>>,
    /// The workloads that each policy selected when it was in force as it was written. While it is not, it concerns them
    /// all the same: their labels may have changed together with what is wrong in it.
    pub(super) pins: Pins,
    /// How many words that protect something each file had.
    pub(super) words: BTreeMap<PathBuf, usize>,
}

/// A line.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Object {
        file: PathBuf,
        line: u32,
        object: Json,
    },
    Policy {
        policy: String,
        workloads: Vec<String>,
    },
    Words {
        file: PathBuf,
        words: usize,
    },
}

impl Good {
    /// These objects are in force as they are written, with this mesh. `words` are those of all files.
    pub(super) fn of(
        objects: &[Arc<Object>],
        mesh: &Mesh,
        words: BTreeMap<PathBuf, usize>,
    ) -> Self {
        let objects = objects.iter();
        let named = objects.map(|object| (object.written.key.clone(), Arc::clone(object)));
        Good {
            objects: named.collect(),
            pins: selected(mesh, |_| true),
            words,
        }
    }

    /// The next state: these are the last good versions, and these policies are not in force as they are written. `words`
    /// are those of files that can be read.
    pub(super) fn next(
        &mut self,
        objects: BTreeMap<Key, Arc<Object>>,
        held: &BTreeSet<PolicyName>,
        mesh: &Mesh,
        words: BTreeMap<PathBuf, usize>,
    ) {
        let mut pins = selected(mesh, |policy| !held.contains(policy));
        let before = std::mem::take(&mut self.pins).into_iter();
        pins.extend(before.filter(|(policy, _)| held.contains(policy)));
        let files = objects.values();
        let files: BTreeSet<&Path> = files.filter_map(|one| one.written.origin.path()).collect();
        let mut all = std::mem::take(&mut self.words);
        all.retain(|file, _| files.contains(file.as_path()));
        all.extend(words);
        *self = Good {
            objects,
            pins,
            words: all,
        };
    }

    /// The pins of these policies.
    pub(super) fn pins_of(&self, held: &BTreeSet<PolicyName>) -> Pins {
        let pins = self.pins.iter();
        let pins = pins.filter(|(policy, _)| held.contains(*policy));
        pins.map(|(policy, workloads)| (policy.clone(), workloads.clone()))
            .collect()
    }

    /// The last good versions of each file.
    pub(super) fn by_file(&self) -> BTreeMap<&Path, Vec<(&Key, &Arc<Object>)>> {
        let mut files: BTreeMap<&Path, Vec<_>> = BTreeMap::new();
        for (key, object) in &self.objects {
            if let Some(path) = object.written.origin.path() {
                files.entry(path).or_default().push((key, object));
            }
        }
        files
    }

    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// As text. Files are named relative to `dir`, which may be called otherwise the next time.
    pub(super) fn text(&self, dir: &Path) -> String {
        let objects = self.objects.values().filter_map(|object| {
            let origin = object.written.begins();
            let file = origin.path()?;
            Some(Line::Object {
                file: file.strip_prefix(dir).unwrap_or(file).to_owned(),
                line: origin.line().unwrap_or(1),
                object: serde_json::to_value(object.written.tree()).ok()?,
            })
        });
        let policies = self.pins.iter().map(|(policy, workloads)| Line::Policy {
            policy: policy.to_string(),
            workloads: workloads.iter().map(ToString::to_string).collect(),
        });
        let words = self.words.iter().map(|(file, words)| Line::Words {
            file: file.strip_prefix(dir).unwrap_or(file).to_owned(),
            words: *words,
        });
        let mut text = String::new();
        for line in objects.chain(policies).chain(words) {
            // It fails for a path that is not UTF-8 only: then a restart does not know the object.
            if let Ok(line) = serde_json::to_string(&line) {
                text.push_str(&line);
                text.push('\n');
            }
        }
        text
    }

    /// What a text has that is valid, and how many lines are not.
    pub(super) fn recall(text: &[u8], dir: &Path) -> (Self, usize) {
        let (mut good, mut wrong) = (Good::default(), 0);
        let lines = text.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(Line::Object { file, line, object }) => {
                    match read(&dir.join(file), line, object) {
                        Some(object) => {
                            let key = object.written.key.clone();
                            good.objects.insert(key, Arc::new(object));
                        }
                        None => wrong += 1,
                    }
                }
                Ok(Line::Policy { policy, workloads }) => {
                    let workloads = workloads.iter();
                    let workloads = workloads.filter_map(|name| WorkloadName::parse(name).ok());
                    if let Ok(policy) = PolicyName::parse(&policy) {
                        good.pins.insert(policy, workloads.collect());
                    }
                }
                Ok(Line::Words { file, words }) => {
                    good.words.insert(dir.join(file), words);
                }
                Err(_) => wrong += 1,
            }
        }
        (good, wrong)
    }
}

fn selected(mesh: &Mesh, is_taken: impl Fn(&PolicyName) -> bool) -> Pins {
    let mut pins = Pins::new();
    for workload in &mesh.workloads {
        for policy in workload.policies.iter().filter(|policy| is_taken(policy)) {
            let of = pins.entry(policy.clone()).or_default();
            of.insert(workload.name.clone());
        }
    }
    pins
}

fn read(file: &Path, line: u32, object: Json) -> Option<Object> {
    let mut findings = Findings::default();
    let tree = Node::from_json(object, line);
    let mut read = manifest::read_tree(file, tree, &mut findings);
    read.valid.pop()
}
