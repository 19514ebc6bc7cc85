//! The text form of an explanation, for people.

use std::fmt;

use super::{ExplainedEndpoint, Explanation, Outcome};

impl Outcome {
    /// The outcome in one or two words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
            Self::Depends => "depends",
            Self::ConnectOnly => "connect only",
            Self::Elsewhere => "elsewhere",
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}", self.from, self.to)?;
        if let Some(request) = &self.request {
            write!(f, " {} {}", request.method, request.path)?;
            if !request.query.is_empty() {
                write!(f, "?{}", request.query)?;
            }
        }
        for endpoint in &self.endpoints {
            write!(f, "\n{endpoint}")?;
        }
        if self.omitted > 0 {
            write!(f, "\n… and {} more endpoints", self.omitted)?;
        }
        for note in &self.notes {
            write!(f, "\nnote: {note}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ExplainedEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}", self.outcome.as_str())?;
        match &self.workload {
            Some(workload) => write!(f, " at {workload} ({})", self.address)?,
            None => write!(f, " at {}", self.address)?,
        }
        if let Some(node) = &self.node {
            write!(f, " on {node}")?;
        }
        write!(f, ": {}", self.reason)?;
        if let Some(would) = &self.dry_run {
            write!(f, "\n    dry run: would be {would}")?;
        }
        for advice in &self.advice {
            write!(f, "\n    {advice}")?;
        }
        Ok(())
    }
}
