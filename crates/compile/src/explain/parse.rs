//! The text form of callers and destinations.

use std::fmt;
use std::str::FromStr;

use heddle_model::{ServiceAccountName, ServiceName, WorkloadName};

use super::{Caller, Destination, Unexplained};

const ANONYMOUS: &str = "anonymous";

impl FromStr for Caller {
    type Err = Unexplained;

    /// Reads `NAMESPACE/NAME` for a workload, `NAMESPACE/sa/NAME` for a service account, or `anonymous`.
    fn from_str(text: &str) -> Result<Self, Unexplained> {
        let invalid = |error: heddle_model::InvalidName| Unexplained {
            reason: error.to_string(),
            remedy: "write NAMESPACE/NAME for a workload, NAMESPACE/sa/NAME for a service \
                     account, or anonymous"
                .to_owned(),
        };
        if text == ANONYMOUS {
            return Ok(Self::Anonymous);
        }
        match text.split('/').collect::<Vec<_>>().as_slice() {
            [namespace, "sa", name] => ServiceAccountName::new(namespace, name).map(Self::Account),
            [namespace, "workload", name] => WorkloadName::new(namespace, name).map(Self::Workload),
            _ => WorkloadName::parse(text).map(Self::Workload),
        }
        .map_err(invalid)
    }
}

impl FromStr for Destination {
    type Err = Unexplained;

    /// Reads `NAMESPACE/NAME[:PORT]` for a Service (or, if there is none, a workload), and
    /// `NAMESPACE/workload/NAME[:PORT]` for a workload.
    fn from_str(text: &str) -> Result<Self, Unexplained> {
        let remedy = "write NAMESPACE/NAME[:PORT] for a Service, or \
                      NAMESPACE/workload/NAME[:PORT] for a workload";
        let unexplained = |reason: String| Unexplained {
            reason,
            remedy: remedy.to_owned(),
        };
        let (name, port) = match text.split_once(':') {
            None => (text, None),
            Some((name, port)) => {
                let number = port.parse::<u16>().ok().filter(|port| *port > 0);
                let number = number.ok_or_else(|| unexplained(format!("{port:?} is no port")))?;
                (name, Some(number))
            }
        };
        let (parsed, is_workload) = match name.split('/').collect::<Vec<_>>().as_slice() {
            [namespace, "workload", name] => (ServiceName::new(namespace, name), true),
            _ => (ServiceName::parse(name), false),
        };
        Ok(Self {
            name: parsed.map_err(|error| unexplained(error.to_string()))?,
            is_workload,
            port,
        })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServiceName { namespace, name } = &self.name;
        match self.is_workload {
            true => write!(f, "{namespace}/workload/{name}")?,
            false => write!(f, "{namespace}/{name}")?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}
