//! The kubelet whose pods node QoS is for, as written in the file.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use heddle_model::ControlGroup;
use serde::{Deserialize, Serialize};

use super::super::contradiction::Contradiction;
use super::super::text::Text;
use super::super::within::Within;

#[cfg(test)]
mod tests;

/// A kubelet of this machine; none is asked without a URL.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct KubeletSettings {
    /// Where it answers. Without TLS only at a loopback address.
    ///
    /// Values: such as `https://127.0.0.1:10250`.
    url: Option<Text<KubeletUrl>>,
    /// PEM file with the kubelet's own certificate or that of its authority. By default
    /// `/var/lib/kubelet/pki/kubelet.crt`.
    pub ca: Option<PathBuf>,
    /// File with a bearer token, read for each question, so that a new one needs no restart.
    pub token_file: Option<PathBuf>,
    /// PEM file with a client certificate, instead of a token.
    pub certificate: Option<PathBuf>,
    /// PEM file with the client certificate's private key.
    pub key: Option<PathBuf>,
    /// The kubelet's `--cgroup-root`.
    pub cgroup_root: String,
    /// How often the kubelet is asked when nothing happens, in seconds.
    pub interval_s: Within<1, 3_600>,
}

impl Default for KubeletSettings {
    fn default() -> Self {
        KubeletSettings {
            url: None,
            ca: None,
            token_file: None,
            certificate: None,
            key: None,
            cgroup_root: "/".to_owned(),
            interval_s: Within::new(10),
        }
    }
}

impl KubeletSettings {
    /// URL of the kubelet, such as `https://127.0.0.1:10250`.
    pub fn url(&self) -> Option<&KubeletUrl> {
        self.url.as_deref()
    }

    /// Sets the URL.
    pub fn set_url(&mut self, url: KubeletUrl) {
        self.url = Some(Text(url));
    }

    /// Looks for values that are valid on their own, but contradict each other.
    pub(in crate::settings) fn contradiction(&self) -> Option<Contradiction> {
        self.wrong_root().or_else(|| self.wrong_secrets())
    }

    fn wrong_root(&self) -> Option<Contradiction> {
        let path = self.cgroup_root.trim_matches('/');
        let reason = ControlGroup::new(path).err().filter(|_| !path.is_empty())?;
        Some(Contradiction {
            fields: vec!["qos.kubelet.cgroup_root"],
            reason,
            remedy: "write the kubelet's --cgroup-root, such as / or /kubelet".to_owned(),
        })
    }

    fn wrong_secrets(&self) -> Option<Contradiction> {
        let secrets = [
            ("qos.kubelet.ca", self.ca.is_some()),
            ("qos.kubelet.token_file", self.token_file.is_some()),
            ("qos.kubelet.certificate", self.certificate.is_some()),
            ("qos.kubelet.key", self.key.is_some()),
        ];
        let set = secrets.iter().filter(|(_, is_set)| *is_set);
        let set: Vec<&str> = set.map(|(field, _)| *field).collect();
        let (fields, reason, remedy) = match (self.url(), &self.certificate, &self.key) {
            (_, Some(_), None) => (
                vec!["qos.kubelet.certificate"],
                "a certificate needs its key",
                "name it with --kubelet-key or qos.kubelet.key",
            ),
            (_, None, Some(_)) => (
                vec!["qos.kubelet.key"],
                "a key needs its certificate",
                "name it with --kubelet-certificate or qos.kubelet.certificate",
            ),
            (_, Some(_), Some(_)) if self.token_file.is_some() => (
                vec!["qos.kubelet.token_file", "qos.kubelet.certificate"],
                "a kubelet is asked with one of the two",
                "remove the token or the certificate",
            ),
            (None, ..) if !set.is_empty() => (
                set,
                "there is no kubelet to use it with",
                "name one with --kubelet or qos.kubelet.url",
            ),
            (Some(url), ..) if !url.is_tls && !set.is_empty() => (
                [vec!["qos.kubelet.url"], set].concat(),
                "without TLS neither certificates nor a token are used",
                "use https, or remove them",
            ),
            _ => return None,
        };
        Some(Contradiction {
            fields,
            reason: reason.to_owned(),
            remedy: remedy.to_owned(),
        })
    }
}

/// `https://HOST[:PORT]`, or `http` to a loopback address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletUrl {
    /// Whether it is `https`.
    pub is_tls: bool,
    /// A name or an address; one of IPv6 without brackets.
    pub host: String,
    /// By default 10250, or 10255 without TLS.
    pub port: u16,
}

impl KubeletUrl {
    /// Host and port, as in the header `Host` (RFC 9110 section 7.2).
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for KubeletUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

impl FromStr for KubeletUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no URL of a kubelet, such as https://127.0.0.1:10250");
        let (is_tls, rest) = match text.split_once("://").ok_or_else(wrong)? {
            ("https", rest) => (true, rest),
            ("http", rest) => (false, rest),
            _ => return Err(wrong()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
                let address: std::net::Ipv6Addr = host.parse().map_err(|_| wrong())?;
                (address.to_string(), port.strip_prefix(':'))
            }
            None => match rest.split_once(':') {
                Some((host, port)) => (host.to_owned(), Some(port)),
                None => (rest.to_owned(), None),
            },
        };
        let is_fine = |c: char| c.is_ascii_alphanumeric() || "-.:".contains(c);
        if host.is_empty() || host.len() > 253 || !host.chars().all(is_fine) {
            return Err(wrong());
        }
        let is_loopback = host
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback());
        if !is_tls && !is_loopback {
            return Err(format!(
                "{text:?} has no TLS, which is taken only at a loopback address: use https"
            ));
        }
        let port = match port {
            Some(port) => port
                .parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(wrong)?,
            None if is_tls => 10_250,
            None => 10_255,
        };
        Ok(KubeletUrl { is_tls, host, port })
    }
}
