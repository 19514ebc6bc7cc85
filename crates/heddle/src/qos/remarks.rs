//! What the agent has to say, for `heddle qos status`.

use std::path::PathBuf;

use heddle_qos::remarks::Remarks;

/// Writes remarks when they change.
pub(super) struct Teller {
    /// The folder of the journal; none in a dry run, which changes nothing and has its log.
    folder: Option<PathBuf>,
    told: Option<Remarks>,
    is_failing: bool,
}

impl Teller {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Teller {
            folder,
            told: None,
            is_failing: false,
        }
    }

    /// Tells it, unless that was done.
    pub(super) fn tell(&mut self, remarks: Remarks) {
        let Some(folder) = &self.folder else { return };
        if self.told.as_ref() == Some(&remarks) {
            return;
        }
        match remarks.write(folder) {
            Ok(()) => {
                self.told = Some(remarks);
                self.is_failing = false;
            }
            Err(error) => {
                // It is tried again every second.
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!("heddle qos status does not show what the agent says: {error}");
                }
            }
        }
    }

    /// The agent ends.
    pub(super) fn end(&self) {
        if let Some(folder) = &self.folder
            && let Err(error) = Remarks::remove(folder)
        {
            tracing::warn!("what the agent said stays: {error}");
        }
    }
}
