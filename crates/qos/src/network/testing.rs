//! For tests: network namespaces, and a network in memory that can be stopped at any step.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread;

use heddle_model::{ControlGroup, PacketMark};
use heddle_skips::skipped;
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::held::{Held, Key};
use super::kernel::{
    ClassBytes, Filter, Hook, Kernel, Limited, Link, LinkBytes, MARKER, MARKER_NAME, PRIORITY,
    Qdisc, Qdiscs, ROOT,
};
use crate::arbiter::journal::{Record, Store};

/// Runs a test in a network namespace of its own, with `commands` of `ip` and `tc` run before.
pub(crate) fn in_namespace(commands: &[&str], test: impl FnOnce() + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        return skipped("needs root");
    }
    let found = |program| {
        let version = Command::new(program)
            .arg("-V")
            .stdout(Stdio::null())
            .status();
        version.is_ok_and(|status| status.success())
    };
    if !found("ip") || !found("tc") {
        return skipped("needs ip and tc (apt-get install iproute2)");
    }
    let commands: Vec<String> = commands.iter().map(ToString::to_string).collect();
    let done = thread::spawn(move || {
        #[allow(unsafe_code, reason = "nothing else moves a thread to a new namespace")]
        // SAFETY: only the network namespace is unshared, not descriptors on which other threads rely.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("a namespace");
        // Reports of multicast groups have a part of the buffer's size as their mark: `mark` and `reserved_tailroom` are one
        // field of the kernel's packets.
        run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
        for command in &commands {
            run(command);
        }
        test();
    });
    if let Err(panic) = done.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a command of words, and returns what it prints.
pub(crate) fn run(command: &str) -> String {
    let mut words = command.split_ascii_whitespace();
    let program = words.next().expect("a program");
    let done = Command::new(program).args(words).output().expect(program);
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command}: {errors}");
    String::from_utf8(done.stdout).expect("text")
}

/// Takes one of the steps that are left before the process counts as killed.
fn step(left: Option<&Rc<Cell<u32>>>) -> io::Result<()> {
    match left {
        Some(left) if left.get() == 0 => Err(io::Error::other("killed")),
        Some(left) => {
            left.set(left.get() - 1);
            Ok(())
        }
        None => Ok(()),
    }
}

/// An interface in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FakeLink {
    pub(crate) name: String,
    pub(crate) root: Option<Qdisc>,
    /// Whether our root is complete, and its rate.
    pub(crate) filled: Option<(Limited, u64)>,
    pub(crate) ingress: Option<Qdisc>,
    pub(crate) filters: Vec<Filter>,
    pub(crate) bytes: LinkBytes,
    pub(crate) classes: ClassBytes,
}

/// A network in memory. Copies are the same network.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fake {
    pub(crate) links: Rc<RefCell<BTreeMap<u32, FakeLink>>>,
    /// The host's end of each pod's interface.
    pub(crate) pods: Rc<RefCell<BTreeMap<ControlGroup, u32>>>,
    /// Rates that were set.
    pub(crate) set: Rc<Cell<u32>>,
}

impl Fake {
    /// An interface with a root that the kernel chose.
    pub(crate) fn add(&self, index: u32, name: &str, root: Qdisc) -> Link {
        let link = FakeLink {
            name: name.to_owned(),
            root: Some(root),
            ..FakeLink::default()
        };
        self.links.borrow_mut().insert(index, link);
        Link {
            index,
            name: name.to_owned(),
        }
    }

    /// Changes an interface as another program would.
    pub(crate) fn edit<T>(&self, index: u32, edit: impl FnOnce(&mut FakeLink) -> T) -> T {
        edit(self.links.borrow_mut().get_mut(&index).expect("there"))
    }

    fn read<T>(&self, index: u32, read: impl FnOnce(&FakeLink) -> T) -> io::Result<T> {
        let links = self.links.borrow();
        links
            .get(&index)
            .map(read)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write<T>(
        &self,
        index: u32,
        write: impl FnOnce(&mut FakeLink) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut links = self.links.borrow_mut();
        write(links.get_mut(&index).ok_or(io::ErrorKind::NotFound)?)
    }
}

pub(crate) fn qdisc(kind: &str, handle: u32) -> Qdisc {
    Qdisc {
        kind: kind.to_owned(),
        handle: handle << 16,
        options: vec![],
    }
}

impl Kernel for Fake {
    fn namespace(&self) -> u64 {
        1
    }

    fn link(&mut self, name: &str) -> io::Result<Link> {
        let links = self.links.borrow();
        let found = links.iter().find(|(_, link)| link.name == name);
        let found = found.map(|(index, link)| Link {
            index: *index,
            name: link.name.clone(),
        });
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn look(&mut self) -> io::Result<Qdiscs> {
        let mut found = Qdiscs::new();
        for (index, link) in self.links.borrow().iter() {
            found.extend(link.root.clone().map(|qdisc| ((*index, Hook::Root), qdisc)));
            found.extend(
                link.ingress
                    .clone()
                    .map(|qdisc| ((*index, Hook::Ingress), qdisc)),
            );
        }
        Ok(found)
    }

    fn host_ends(&mut self, pod: &ControlGroup) -> io::Result<Vec<Link>> {
        let pods = self.pods.borrow();
        let index = pods.get(pod).ok_or(io::ErrorKind::NotFound)?;
        let link = self.read(*index, |link| link.name.clone());
        Ok(link
            .map(|name| Link {
                index: *index,
                name,
            })
            .into_iter()
            .collect())
    }

    fn qdisc(&mut self, link: u32, hook: Hook) -> io::Result<Option<Qdisc>> {
        self.read(link, |link| match hook {
            Hook::Root => link.root.clone(),
            Hook::Ingress => link.ingress.clone(),
        })
    }

    fn add_root(&mut self, link: u32, _: Limited, replaces: bool) -> io::Result<()> {
        self.write(link, |link| {
            let is_chosen = link.root.as_ref().is_none_or(|root| root.handle == 0);
            if !is_chosen && !replaces {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            link.root = Some(qdisc("htb", ROOT >> 16));
            Ok(())
        })
    }

    fn fill_root(&mut self, link: u32, limited: Limited, rate: u64) -> io::Result<()> {
        self.write(link, |link| {
            assert_eq!(link.root, Some(qdisc("htb", ROOT >> 16)));
            link.filled = Some((limited, rate));
            Ok(())
        })
    }

    fn set_rate(&mut self, link: u32, rate: u64) -> io::Result<()> {
        self.set.set(self.set.get() + 1);
        self.write(link, |link| {
            let (_, old) = link.filled.as_mut().ok_or(io::ErrorKind::NotFound)?;
            *old = rate;
            Ok(())
        })
    }

    fn delete_root(&mut self, link: u32) -> io::Result<()> {
        self.write(link, |link| {
            if link.root != Some(qdisc("htb", ROOT >> 16)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            (link.root, link.filled) = (Some(qdisc("noqueue", 0)), None);
            Ok(())
        })
    }

    fn put_back_root(&mut self, link: u32, root: &Qdisc) -> io::Result<()> {
        self.write(link, |link| {
            (link.root, link.filled) = (Some(root.clone()), None);
            Ok(())
        })
    }

    fn add_clsact(&mut self, link: u32) -> io::Result<()> {
        self.write(link, |link| match link.ingress {
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
            None => {
                link.ingress = Some(qdisc("clsact", 0xffff));
                Ok(())
            }
        })
    }

    fn delete_clsact(&mut self, link: u32) -> io::Result<()> {
        self.write(link, |link| {
            link.ingress.take().ok_or(io::ErrorKind::InvalidInput)?;
            link.filters.clear();
            Ok(())
        })
    }

    fn filters(&mut self, link: u32) -> io::Result<Vec<Filter>> {
        self.read(link, |link| link.filters.clone())
    }

    fn add_marker(&mut self, link: u32, _: PacketMark) -> io::Result<()> {
        self.write(link, |link| {
            assert!(link.ingress.is_some() && !link.filters.iter().any(Filter::is_ours));
            link.filters.push(Filter {
                is_egress: false,
                kind: "bpf".to_owned(),
                priority: PRIORITY,
                handle: MARKER,
                name: MARKER_NAME.to_owned(),
            });
            Ok(())
        })
    }

    fn delete_marker(&mut self, link: u32) -> io::Result<()> {
        self.write(link, |link| {
            link.filters.retain(|filter| !filter.is_ours());
            Ok(())
        })
    }

    fn link_bytes(&mut self, link: u32) -> io::Result<LinkBytes> {
        self.read(link, |link| link.bytes)
    }

    fn class_bytes(&mut self, link: u32) -> io::Result<ClassBytes> {
        match self.read(link, |link| link.filled.map(|_| link.classes))? {
            Some(bytes) => Ok(bytes),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// A network that changes no more when its process counts as killed.
#[derive(Debug)]
pub(crate) struct Killable<K> {
    pub(crate) inner: K,
    pub(crate) steps_left: Option<Rc<Cell<u32>>>,
}

impl<K> Killable<K> {
    fn write(&mut self) -> io::Result<&mut K> {
        step(self.steps_left.as_ref())?;
        Ok(&mut self.inner)
    }
}

impl<K: Kernel> Kernel for Killable<K> {
    fn namespace(&self) -> u64 {
        self.inner.namespace()
    }

    fn link(&mut self, name: &str) -> io::Result<Link> {
        self.inner.link(name)
    }

    fn look(&mut self) -> io::Result<Qdiscs> {
        self.inner.look()
    }

    fn host_ends(&mut self, pod: &ControlGroup) -> io::Result<Vec<Link>> {
        self.inner.host_ends(pod)
    }

    fn qdisc(&mut self, link: u32, hook: Hook) -> io::Result<Option<Qdisc>> {
        self.inner.qdisc(link, hook)
    }

    fn add_root(&mut self, link: u32, limited: Limited, replaces: bool) -> io::Result<()> {
        self.write()?.add_root(link, limited, replaces)
    }

    fn fill_root(&mut self, link: u32, limited: Limited, rate: u64) -> io::Result<()> {
        self.write()?.fill_root(link, limited, rate)
    }

    fn set_rate(&mut self, link: u32, rate: u64) -> io::Result<()> {
        self.write()?.set_rate(link, rate)
    }

    fn delete_root(&mut self, link: u32) -> io::Result<()> {
        self.write()?.delete_root(link)
    }

    fn put_back_root(&mut self, link: u32, root: &Qdisc) -> io::Result<()> {
        self.write()?.put_back_root(link, root)
    }

    fn add_clsact(&mut self, link: u32) -> io::Result<()> {
        self.write()?.add_clsact(link)
    }

    fn delete_clsact(&mut self, link: u32) -> io::Result<()> {
        self.write()?.delete_clsact(link)
    }

    fn filters(&mut self, link: u32) -> io::Result<Vec<Filter>> {
        self.inner.filters(link)
    }

    fn add_marker(&mut self, link: u32, mark: PacketMark) -> io::Result<()> {
        self.write()?.add_marker(link, mark)
    }

    fn delete_marker(&mut self, link: u32) -> io::Result<()> {
        self.write()?.delete_marker(link)
    }

    fn link_bytes(&mut self, link: u32) -> io::Result<LinkBytes> {
        self.inner.link_bytes(link)
    }

    fn class_bytes(&mut self, link: u32) -> io::Result<ClassBytes> {
        self.inner.class_bytes(link)
    }
}

/// A journal in memory, which a kill stops together with the network. Copies are the same journal.
#[derive(Debug, Default, Clone)]
pub(crate) struct Records {
    all: Rc<RefCell<Vec<Record<Key, Held>>>>,
    pub(crate) steps_left: Option<Rc<Cell<u32>>>,
}

impl Records {
    pub(crate) fn held(&self) -> BTreeMap<Key, Held> {
        let mut held = BTreeMap::new();
        for record in self.all.borrow().iter().cloned() {
            match record {
                Record::Set(key, of) => drop(held.insert(key, of)),
                Record::Drop(key) => drop(held.remove(&key)),
            }
        }
        held
    }
}

impl Store<Key, Held> for Records {
    fn append(&mut self, record: &Record<Key, Held>) -> io::Result<()> {
        step(self.steps_left.as_ref())?;
        self.all.borrow_mut().push(record.clone());
        Ok(())
    }

    fn replace(&mut self, held: &BTreeMap<Key, Held>) -> io::Result<()> {
        step(self.steps_left.as_ref())?;
        let held = held.clone().into_iter();
        *self.all.borrow_mut() = held.map(|(key, of)| Record::Set(key, of)).collect();
        Ok(())
    }

    fn is_long(&self, held: usize) -> bool {
        self.all.borrow().len() > held + 5
    }
}
