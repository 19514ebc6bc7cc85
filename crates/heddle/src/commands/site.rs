//! `heddle site`.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use heddle_authority::{
    Authority, AuthorityError, CertificateRequest, UnixTime, request_site, site_request_pem,
};
use heddle_model::TrustDomain;
use heddle_model::calendar::utc;
use heddle_node::exit::{Exit, Failure};
use heddle_node::hygiene;
use heddle_node::settings::GivenSettings;
use heddle_node::state_folder;
use heddle_node::time;

use super::Asked;
use crate::order::{Order, SiteSigned};
use crate::settings;

/// Longest request that is read, in bytes.
const MAX_REQUEST_BYTES: u64 = 64 * 1024;

/// Let a site live through days offline: give it an authority of its own
///
/// A site with its own control plane signs with an intermediate certificate: the root's key stays where it
/// is. The key of the site never leaves the site.
#[derive(Debug, clap::Args)]
#[command(after_help = "In this order:
  at the site         heddle site request --trust-domain prod.example.org > site.csr
  where the root is   heddle site sign site.csr --ttl 30d --into site
  at the site         put site/intermediate.pem and site/root.pem into the state folder and
                      start, or restart, its `heddle control`")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: SiteCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SiteCommand {
    /// Make the site's key and print a request for its certificate
    ///
    /// The key stays in the state folder. Called again, for the renewal, the same key is used again, and the
    /// site's control plane may run meanwhile.
    #[command(after_help = "Exit codes:
  0  made
  1  failed, or the folder is another authority's
  2  wrong command line
  3  settings refused
  5  a control plane has the state folder")]
    Request {
        /// The site's state folder [default: as for `heddle control`]
        #[arg(long, value_name = "FOLDER")]
        state: Option<PathBuf>,
        /// The trust domain of the mesh [default: cluster.local]
        #[arg(long, value_name = "NAME", value_parser = super::control::trust_domain)]
        trust_domain: Option<TrustDomain>,
        /// Settings of the process, as for `heddle control`
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Sign a site's request, by the running control plane or by one that does not run
    #[command(after_help = "Examples:
  heddle site sign site.csr --ttl 30d --into site
  heddle site sign site.csr --ttl 30d --into site --state /var/lib/heddle/control

Exit codes:
  0  signed
  1  failed, or the authority refuses
  2  wrong command line
  3  settings refused
  4  no running heddle answers on the admin socket
  5  a control plane has the state folder: leave --state out")]
    Sign {
        /// What `heddle site request` printed, or `-` for standard input
        #[arg(value_name = "FILE")]
        request: PathBuf,
        /// How long the site should be able to live alone: 1h to 366d
        #[arg(long, alias = "life", value_name = "DURATION", value_parser = time::parse)]
        ttl: Duration,
        /// The folder that intermediate.pem and root.pem are written to; it is made if need be
        #[arg(long, value_name = "FOLDER")]
        into: PathBuf,
        /// The state folder of a control plane that does not run, to sign without a running one
        #[arg(long, value_name = "FOLDER", conflicts_with = "socket")]
        state: Option<PathBuf>,
        /// With --state: settings of the process, as for `heddle control`
        #[arg(long, value_name = "FILE", requires = "state")]
        config: Option<PathBuf>,
        #[command(flatten)]
        asked: Asked,
    },
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    hygiene::keep_memory_to_ourselves().context("cannot keep keys out of core files")?;
    match args.command {
        SiteCommand::Request {
            state,
            trust_domain,
            config,
        } => request(state, trust_domain, config.as_deref()),
        SiteCommand::Sign {
            request,
            ttl,
            into,
            state,
            config,
            asked,
        } => {
            let request = read(&request)?;
            let signed = match state {
                Some(state) => sign_offline(&state, config.as_deref(), &request, ttl)?,
                None => asked.order(&Order::SiteSign {
                    request,
                    ttl_s: ttl.as_secs(),
                })?,
            };
            write_into(&into, &signed)?;
            asked.show(&signed, |signed| {
                format!(
                    "the site can sign until {}: put intermediate.pem and root.pem from {} into its state \
                     folder, and restart its control plane\n",
                    utc(signed.not_after),
                    into.display()
                )
            })
        }
    }?;
    Ok(Exit::Ok)
}

fn request(
    state: Option<PathBuf>,
    trust_domain: Option<TrustDomain>,
    config: Option<&Path>,
) -> Result<(), Failure> {
    let settings = GivenSettings::read(config)?.checked()?;
    let folder = state_folder::folder(state.or(settings.control.state), "control")?;
    let domain = trust_domain.unwrap_or(settings.mesh.trust_domain);
    let made = request_site(&folder, &domain).map_err(refused)?;
    super::print(&site_request_pem(&made))
}

fn read(file: &Path) -> Result<String, Failure> {
    let name = file.display();
    let reader: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(std::io::stdin().lock()),
        false => {
            let file = std::fs::File::open(file);
            Box::new(file.with_context(|| format!("cannot open {name}"))?)
        }
    };
    let mut text = String::new();
    let length = reader.take(MAX_REQUEST_BYTES + 1).read_to_string(&mut text);
    let length = length.with_context(|| format!("cannot read {name}"))?;
    if length as u64 > MAX_REQUEST_BYTES {
        return Err(anyhow!(
            "{name} is longer than any request (name what `heddle site request` printed)"
        )
        .into());
    }
    Ok(text)
}

fn sign_offline(
    state: &Path,
    config: Option<&Path>,
    request: &str,
    ttl: Duration,
) -> Result<SiteSigned, Failure> {
    let settings = GivenSettings::read(config)?.checked()?;
    // Checked first: `Authority::open` would create an authority in an empty folder.
    let is_there = ["state.json", "root.pem"].map(|file| state.join(file).exists());
    if !is_there.contains(&true) {
        let folder = state.display();
        return Err(anyhow!(
            "{folder} holds no authority (name the state folder of a control plane)"
        )
        .into());
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let now = UnixTime::since_unix_epoch(now);
    let (domain, lives) = (
        &settings.mesh.trust_domain,
        settings::lifetimes(&settings.control),
    );
    let authority = Authority::open(state, domain, lives, now).map_err(refused)?;
    let request = CertificateRequest::parse_pem(request.as_bytes())
        .map_err(|fault| anyhow!("{fault} (name what `heddle site request` printed)"))?;
    let signed = authority.sign_site(&request, ttl, now);
    let signed = signed.map_err(|error| anyhow!("{error}"))?;
    Ok(SiteSigned {
        intermediate_pem: signed.intermediate_pem,
        roots_pem: signed.roots_pem,
        not_after: signed.not_after,
    })
}

fn refused(error: AuthorityError) -> Failure {
    let exit = match &error {
        AuthorityError::Folder(folder) if folder.is_busy() => Exit::Busy,
        _ => Exit::Failed,
    };
    Failure::new(exit, error)
}

/// Nothing in these files is secret, but the site accepts them only if no other user can write them.
fn write_into(folder: &Path, signed: &SiteSigned) -> Result<(), Failure> {
    let made = std::fs::create_dir_all(folder);
    made.with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, text) in [
        ("intermediate.pem", &signed.intermediate_pem),
        ("root.pem", &signed.roots_pem),
    ] {
        let path = folder.join(name);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
