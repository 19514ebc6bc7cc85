use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::pods::tests::{name, namespace, pods};
use super::*;
use crate::request::{PodState, PodStatus, Reply, Request};
use crate::{Exclude, Fate};

/// A holder that has no proxy and does not start one.
pub(super) fn holder(memory: &Path) -> Option<RunningHolder> {
    Some(RunningHolder {
        program: PathBuf::new(),
        arguments: Vec::new(),
        pods: pods()?,
        memory: Memory::open(memory.to_owned()).unwrap(),
        claim: Claim::take(memory.to_owned()).unwrap(),
        proxy: None,
        proxy_timeout: Some(5),
        next_start: None,
        wait: Duration::ZERO,
        has_worked: true,
        stopping: false,
        is_news: false,
        full: FullSeen::default(),
        each_turn: EachTurn(Box::new(|_| {})),
    })
}

pub(super) fn enroll(
    holder: &mut RunningHolder,
    workload: &str,
    netns: File,
    path: PathBuf,
) -> Vec<Reply> {
    let request = Request::Enroll {
        workload: name(workload),
        netns: path,
        exclude: Exclude::default(),
    };
    holder.answer(request, Some(netns.into()))
}

pub(super) fn list(holder: &mut RunningHolder) -> Vec<PodStatus> {
    let replies = holder.answer(Request::List, None);
    let pods = replies.into_iter().filter_map(|reply| match reply {
        Reply::Pod(pod) => Some(pod),
        _ => None,
    });
    pods.collect()
}

#[test]
fn who_is_enrolled_and_cannot_be_remembered_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let memory = folder.path().join("nowhere/node.pods.json");
    std::fs::create_dir(memory.parent().unwrap()).unwrap();
    let Some(mut holder) = holder(&memory) else {
        return;
    };
    std::fs::remove_dir_all(memory.parent().unwrap()).unwrap();
    let (netns, path) = namespace(&["10.0.0.2"]);
    let replies = enroll(
        &mut holder,
        "vault",
        netns.try_clone().unwrap(),
        path.clone(),
    );
    let [Reply::Warning(warning), Reply::Done] = &replies[..] else {
        panic!("{replies:?}");
    };
    let expected = format!("cannot write {}: ", memory.display());
    assert!(warning.starts_with(&expected), "{warning}");
    assert!(warning.ends_with("will not know all its pods"), "{warning}");
    assert_eq!(list(&mut holder).len(), 1);
    // Asking again gives the same warning as long as the cause persists.
    let again = enroll(
        &mut holder,
        "vault",
        netns.try_clone().unwrap(),
        path.clone(),
    );
    assert_eq!(again, replies);
    std::fs::create_dir(memory.parent().unwrap()).unwrap();
    assert_eq!(enroll(&mut holder, "vault", netns, path), [Reply::Done]);
    // A request without a namespace, and a release of an unknown pod.
    let request = Request::Enroll {
        workload: name("vault"),
        netns: PathBuf::new(),
        exclude: Exclude::default(),
    };
    let why = "the pod's network namespace is missing".to_owned();
    assert_eq!(holder.answer(request, None), [Reply::Refused(why)]);
    let workload = name("stranger");
    let why = "shop/stranger is not enrolled here: these are: shop/vault".to_owned();
    assert_eq!(
        holder.answer(Request::Unenroll { workload }, None),
        [Reply::Refused(why)]
    );
}

/// The path of the only pod, checked to be the same in the list and in the stored file.
fn found_at(holder: &mut RunningHolder, memory: &Path) -> PathBuf {
    let [pod] = &list(holder)[..] else {
        panic!("one pod is enrolled")
    };
    let remembered = std::fs::read_to_string(memory).unwrap();
    let written = format!("{:?}", pod.netns.display().to_string());
    assert!(remembered.contains(&written), "{remembered}");
    assert_eq!(pod.state, PodState::Unserved);
    pod.netns.clone()
}

#[test]
fn a_pod_that_is_enrolled_again_by_a_path_that_lasts_is_found_by_that() {
    let folder = tempfile::tempdir().unwrap();
    let memory = folder.path().join("node.pods.json");
    let Some(mut holder) = holder(&memory) else {
        return;
    };
    // Given a pod that was enrolled with a path that ends with a process …
    let (netns, vanishing) = namespace(&["10.0.0.2"]);
    let netns = || netns.try_clone().unwrap();
    let enroll = |holder: &mut RunningHolder, path: &Path| {
        let replies = enroll(holder, "vault", netns(), path.to_owned());
        let place = found_at(holder, &memory);
        (replies, place)
    };
    let done = || vec![Reply::Done];
    assert_eq!(enroll(&mut holder, &vanishing), (done(), vanishing.clone()));
    let id = holder.pods.of(&name("vault")).unwrap().id;
    // … when it is enrolled again with a path that lasts, that path is stored …
    let lasting = folder.path().join("vault");
    symlink(&vanishing, &lasting).unwrap();
    assert_eq!(enroll(&mut holder, &lasting), (done(), lasting.clone()));
    // … and a worse path (one that ends with a process, or leads nowhere) is refused with a warning …
    for worse in [&vanishing, &folder.path().join("nowhere")] {
        let (replies, place) = enroll(&mut holder, worse);
        let [Reply::Warning(warning), Reply::Done] = &replies[..] else {
            panic!("{replies:?}");
        };
        let still = format!("still looks for it at {}", lasting.display());
        assert!(warning.contains(&still), "{warning}");
        assert_eq!(place, lasting);
    }
    // … as long as the stored path works. After that another is taken, and the pod stays enrolled all the time.
    std::fs::remove_file(&lasting).unwrap();
    assert_eq!(enroll(&mut holder, &vanishing), (done(), vanishing.clone()));
    assert_eq!(holder.pods.of(&name("vault")).unwrap().id, id);
}

#[test]
fn a_lost_pod_is_listed_with_its_reason_and_comes_back_or_is_released() {
    let folder = tempfile::tempdir().unwrap();
    let memory = folder.path().join("node.pods.json");
    let Some(mut before) = holder(&memory) else {
        return;
    };
    // Given two pods whose namespaces a new holder does not find …
    let at = |pod: &str| folder.path().join(pod);
    let (vault, till) = (namespace(&["10.0.0.2"]), namespace(&["10.0.0.3"]));
    for (pod, (netns, _)) in [("vault", &vault), ("till", &till)] {
        let replies = enroll(&mut before, pod, netns.try_clone().unwrap(), at(pod));
        assert_eq!(replies, [Reply::Done]);
    }
    drop(before);
    let Some(mut holder) = holder(&memory) else {
        return;
    };
    holder.recall(None).unwrap();
    // … then they are lost, and still stored for the next holder …
    let lost = list(&mut holder);
    assert_eq!(lost.len(), 2);
    for pod in &lost {
        let reason = pod.reason.as_deref().unwrap();
        assert!(reason.contains("No such file"), "{reason}");
        assert_eq!(
            (pod.state, pod.pod, pod.fate),
            (PodState::Lost, None, Fate::Refuse)
        );
    }
    let remembered = std::fs::read_to_string(&memory).unwrap();
    assert!(remembered.contains("shop/vault") && remembered.contains("shop/till"));
    // … and when the namespace of one is back, it is enrolled at the next retry …
    assert!(holder.memory.due().is_some());
    symlink(&vault.1, at("vault")).unwrap();
    while holder.pods.all().count() == 0 {
        let due = holder.memory.due().unwrap();
        holder.try_lost(due);
    }
    let states: Vec<_> = list(&mut holder).into_iter().collect();
    let states = states
        .iter()
        .map(|pod| (pod.workload.to_string(), pod.state));
    assert_eq!(
        states.collect::<Vec<_>>(),
        [
            ("shop/vault".to_owned(), PodState::Unserved),
            ("shop/till".to_owned(), PodState::Lost)
        ]
    );
    // … and the other is forgotten when an operator releases it, with a warning about its guard.
    let workload = name("till");
    let replies = holder.answer(Request::Unenroll { workload }, None);
    let [Reply::Warning(warning), Reply::Done] = &replies[..] else {
        panic!("{replies:?}");
    };
    assert!(warning.contains("the guard still refuses it"), "{warning}");
    assert_eq!(list(&mut holder).len(), 1);
    assert_eq!(holder.memory.due(), None);
    let remembered = std::fs::read_to_string(&memory).unwrap();
    assert!(!remembered.contains("shop/till"), "{remembered}");
}

#[test]
fn a_proxy_that_does_not_answer_is_said_to_and_ended() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut holder) = holder(&folder.path().join("node.pods.json")) else {
        return;
    };
    let (netns, path) = namespace(&["10.0.0.2"]);
    enroll(&mut holder, "vault", netns, path);
    let arguments = ["-c", "exec sleep 600"].map(OsString::from);
    let mut proxy = Proxy::start(Path::new("/bin/sh"), &arguments).unwrap();
    // A proxy that has not reported that it works is not pinged.
    assert_eq!(proxy.due(), None);
    let mut now = Instant::now();
    proxy.works(Some(5), now);
    holder.proxy = Some(proxy);
    let mut states = Vec::new();
    for _ in 0..6 {
        let proxy = holder.proxy.as_mut().unwrap();
        now = proxy.due().unwrap();
        proxy.feel(now);
        proxy.flush(&holder.pods);
        states.push(list(&mut holder)[0].state);
    }
    let (held, late) = (PodState::Held, PodState::Unresponsive);
    assert_eq!(states, [held, held, held, late, late, late]);
    // It was killed; otherwise this would wait until its sleep ends.
    let how = holder.proxy.take().unwrap().reap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&how), Some(9));
}
