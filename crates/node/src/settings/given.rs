//! Settings from a file, and flags that override it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::SettingsError;
use super::contradiction::{self, Contradiction};
use super::file::Settings;
use super::source::Sources;

/// Largest settings file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Merged values of a file and flags, with the source of each. Flags may complete a file, so contradictions are checked
/// only at the end, by [`GivenSettings::checked`].
#[derive(Debug, Default)]
pub struct GivenSettings {
    settings: Settings,
    sources: Sources,
}

impl GivenSettings {
    /// Reads a file; without one, all values are the defaults.
    ///
    /// # Errors
    /// When the file cannot be read, is not YAML, has an unknown field, or a value out of range.
    pub fn read(file: Option<&Path>) -> Result<Self, SettingsError> {
        match file {
            Some(file) => Self::parse(file, read(file)?),
            None => Ok(Self::default()),
        }
    }

    /// Like [`GivenSettings::read`], for a node of a mesh: settings that its control plane decides are refused.
    ///
    /// # Errors
    /// As for [`GivenSettings::read`], and when the file sets something of the mesh.
    pub fn read_for_node(file: Option<&Path>) -> Result<Self, SettingsError> {
        let given = Self::read(file)?;
        match contradiction::not_a_nodes(&given.sources) {
            Some(error) => Err(error),
            None => Ok(given),
        }
    }

    pub(super) fn parse(file: &Path, text: String) -> Result<Self, SettingsError> {
        let mut field = String::new();
        let settings = serde_saphyr::with_deserializer_from_str(&text, |deserializer| {
            serde_path_to_error::deserialize(deserializer).map_err(|error| {
                field = error.path().to_string();
                error.into_inner()
            })
        });
        let settings = settings.map_err(|error| SettingsError::parse(file, &field, &error))?;
        Ok(GivenSettings {
            settings,
            sources: Sources::of_file(file, text),
        })
    }

    /// Overrides a field by a flag, if the flag was given.
    pub fn flag<T>(
        &mut self,
        flag: &'static str,
        field: &'static str,
        said: Option<T>,
        put: impl FnOnce(&mut Settings, T),
    ) {
        if let Some(said) = said {
            self.sources.flag(flag, field);
            put(&mut self.settings, said);
        }
    }

    /// The final settings, after all flags.
    ///
    /// # Errors
    /// When values contradict each other or this machine.
    pub fn checked(self) -> Result<Settings, SettingsError> {
        match self.settings.contradiction() {
            Some(contradiction) => Err(contradiction.at(&self.sources)),
            None => Ok(self.settings),
        }
    }

    /// Like [`GivenSettings::checked`], for a node: only `node.run` says whether it runs commands, which come over the
    /// network there.
    ///
    /// # Errors
    /// As for [`GivenSettings::checked`], when metrics would use the address at which other nodes connect, and when the agent of
    /// node QoS lacks something.
    pub(crate) fn checked_for_node(mut self) -> Result<Settings, SettingsError> {
        self.settings.workloads.run = self.settings.node.run;
        let (metrics, listen) = (self.settings.admin.metrics, self.settings.node.listen);
        if let Some(listen) = listen.filter(|listen| metrics.is_in_the_way_of(*listen)) {
            let contradiction = Contradiction {
                fields: vec!["admin.metrics", "node.listen"],
                reason: format!(
                    "metrics at {metrics} and other nodes at {listen} cannot be served at one port"
                ),
                remedy: "give one of them another port".to_owned(),
            };
            return Err(contradiction.at(&self.sources));
        }
        let admin = self.settings.admin.metrics;
        if let Some(contradiction) = self.settings.qos.contradiction_in_node(admin) {
            return Err(contradiction.at(&self.sources));
        }
        self.checked()
    }
}

fn read(file: &Path) -> Result<String, SettingsError> {
    let mut text = String::new();
    let read = File::open(file).and_then(|opened| {
        let read = opened.take(MAX_BYTES + 1).read_to_string(&mut text)?;
        match read as u64 > MAX_BYTES {
            true => Err(io::Error::other("it has more than 1 MiB")),
            false => Ok(()),
        }
    });
    read.map_err(|error| SettingsError::unreadable(file, &error))?;
    Ok(text)
}
