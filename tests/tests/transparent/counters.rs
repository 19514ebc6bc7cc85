//! The counters of a proxy, from its metrics.

use std::collections::BTreeMap;

/// Samples by name and labels, without the reporter label: traffic that a proxy reports for both sides counts once.
#[derive(Debug)]
pub(crate) struct Counters(BTreeMap<String, u64>);

/// The traffic carried from one pod to one Service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// HTTP requests, and connections forwarded as bytes.
    pub(crate) exchanges: u64,
    /// Bytes from the client, on connections forwarded as bytes.
    pub(crate) received: u64,
    /// Bytes to the client, on the same connections.
    pub(crate) sent: u64,
}

impl Counters {
    pub(crate) fn of(text: &str) -> Counters {
        let samples = text.lines().filter(|line| line.starts_with("heddle_"));
        let samples = samples.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            let name = name.replace("reporter=\"source\",", "");
            let name = name.replace("reporter=\"destination\",", "");
            Some((name, value.parse::<u64>().ok()?))
        });
        let mut counters = BTreeMap::new();
        for (name, value) in samples {
            let known: &mut u64 = counters.entry(name).or_default();
            *known = value.max(*known);
        }
        Counters(counters)
    }

    /// The sum of all samples whose text begins with `begins` and contains `holds`.
    pub(crate) fn sum(&self, begins: &str, holds: &str) -> u64 {
        let all = self.0.iter();
        let meant = all.filter(|(name, _)| name.starts_with(begins) && name.contains(holds));
        meant.map(|(_, value)| value).sum()
    }

    /// Every failure counter above zero, to find the cause of a failed test.
    pub(crate) fn failures(&self) -> Vec<String> {
        let all = self.0.iter().filter(|(_, value)| **value > 0);
        let failed = all.filter(|(name, _)| {
            ["fail", "reject", "refused", "retries"]
                .iter()
                .any(|part| name.contains(part))
        });
        failed
            .map(|(name, value)| format!("{name} {value}"))
            .collect()
    }

    pub(crate) fn carried(&self, from: &str, to: &str) -> Carried {
        let begins = format!("{{source=\"shop/{from}\",");
        let holds = format!(",destination_service=\"shop/{to}\",");
        let sum = |name: &str| self.sum(&format!("{name}{begins}"), &holds);
        Carried {
            exchanges: sum("heddle_http_requests_total") + sum("heddle_tcp_connections_total"),
            received: sum("heddle_tcp_received_bytes_total"),
            sent: sum("heddle_tcp_sent_bytes_total"),
        }
    }
}
