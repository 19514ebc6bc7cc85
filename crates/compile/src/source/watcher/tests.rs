//! A watcher notices every way in which folders change in practice, and reports nothing else.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use heddle_model::report::{Origin, Severity};
use tempfile::TempDir;

use super::*;
use crate::registered::{Entry, Layout};

/// Ends a test that hangs.
const TOO_LONG: Duration = Duration::from_secs(60);

/// A watcher without slow looks: every change that it finds was reported by an event.
fn watch(dir: &Path) -> Watcher {
    let mut watcher = Watcher::new(dir);
    watcher.slow_look = 100 * TOO_LONG;
    watcher
}

fn service(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: 80}}]}}\n"
    )
}

fn write(path: impl AsRef<Path>, content: &str) {
    fs::write(path, content).unwrap();
}

fn names(mesh: &Mesh) -> Vec<String> {
    mesh.services
        .iter()
        .map(|service| service.name.name.to_string())
        .collect()
}

async fn next(watcher: &mut Watcher) -> (Option<Mesh>, Report) {
    timeout(TOO_LONG, watcher.next())
        .await
        .expect("the change is seen")
}

/// Asserts that the next change leads to exactly these Services.
async fn expect(watcher: &mut Watcher, services: &[&str]) {
    let (mesh, report) = next(watcher).await;
    let mesh = mesh.unwrap_or_else(|| panic!("no mesh: {:?}", report.problems));
    assert_eq!(names(&mesh), services);
}

/// A folder with one Service, followed.
async fn followed() -> (TempDir, Watcher) {
    let dir = TempDir::new().unwrap();
    write(dir.path().join("a.yaml"), &service("a"));
    let mut watcher = watch(dir.path());
    expect(&mut watcher, &["a"]).await;
    (dir, watcher)
}

#[tokio::test]
async fn a_file_written_in_place() {
    let (dir, mut watcher) = followed().await;
    write(dir.path().join("a.yaml"), &service("b"));
    expect(&mut watcher, &["b"]).await;
}

#[tokio::test]
async fn a_file_added_and_removed() {
    let (dir, mut watcher) = followed().await;
    write(
        dir.path().join("b.json"),
        r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}"#,
    );
    write(dir.path().join("c.yml"), &service("c"));
    expect(&mut watcher, &["a", "c"]).await;
    fs::remove_file(dir.path().join("a.yaml")).unwrap();
    expect(&mut watcher, &["c"]).await;
}

#[tokio::test]
async fn a_file_renamed_into_place() {
    let (dir, mut watcher) = followed().await;
    write(dir.path().join(".a.yaml.tmp"), &service("b"));
    fs::rename(dir.path().join(".a.yaml.tmp"), dir.path().join("a.yaml")).unwrap();
    expect(&mut watcher, &["b"]).await;
}

/// The way a kubelet changes a mounted ConfigMap.
#[tokio::test]
async fn a_config_map_swapped() {
    let dir = TempDir::new().unwrap();
    let version = |name: &str, content: &str| {
        let folder = dir.path().join(name);
        fs::create_dir(&folder).unwrap();
        write(folder.join("a.yaml"), content);
    };
    version("..2026_01", &service("a"));
    symlink("..2026_01", dir.path().join("..data")).unwrap();
    symlink("..data/a.yaml", dir.path().join("a.yaml")).unwrap();
    let mut watcher = watch(dir.path());
    expect(&mut watcher, &["a"]).await;

    for (version_name, name) in [("..2026_02", "b"), ("..2026_03", "c")] {
        version(version_name, &service(name));
        symlink(version_name, dir.path().join("..data_tmp")).unwrap();
        fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).unwrap();
        expect(&mut watcher, &[name]).await;
    }
}

#[tokio::test]
async fn a_folder_deleted_and_made_again() {
    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("mesh");
    fs::create_dir(&dir).unwrap();
    write(dir.join("a.yaml"), &service("a"));
    let mut watcher = watch(&dir);
    expect(&mut watcher, &["a"]).await;

    for name in ["b", "c"] {
        fs::remove_dir_all(&dir).unwrap();
        let (mesh, report) = next(&mut watcher).await;
        assert!(mesh.is_none() && report.has_errors(), "{report:?}");
        fs::create_dir(&dir).unwrap();
        write(dir.join("a.yaml"), &service(name));
        // A look between the two steps may find an empty folder.
        let mut seen = next(&mut watcher).await;
        while seen.0.as_ref().is_none_or(|mesh| mesh.services.is_empty()) {
            seen = next(&mut watcher).await;
        }
        assert_eq!(names(&seen.0.unwrap()), [name]);
    }
    // The new folder is watched like the first.
    write(dir.join("a.yaml"), &service("d"));
    expect(&mut watcher, &["d"]).await;
}

#[tokio::test]
async fn a_folder_that_does_not_exist_yet() {
    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("some/where");
    let mut watcher = watch(&dir);
    let (mesh, report) = next(&mut watcher).await;
    assert!(mesh.is_none());
    assert_eq!(report.errors(), 1);

    let staged = parent.path().join(".staged");
    fs::create_dir_all(staged.join("where")).unwrap();
    write(staged.join("where/a.yaml"), &service("a"));
    fs::rename(staged, parent.path().join("some")).unwrap();
    expect(&mut watcher, &["a"]).await;
}

#[tokio::test]
async fn a_link_to_the_folder_that_is_turned() {
    let parent = TempDir::new().unwrap();
    for name in ["v1", "v2"] {
        fs::create_dir(parent.path().join(name)).unwrap();
        write(parent.path().join(name).join("a.yaml"), &service(name));
    }
    let link = parent.path().join("current");
    symlink("v1", &link).unwrap();
    let mut watcher = watch(&link);
    expect(&mut watcher, &["v1"]).await;
    symlink("v2", parent.path().join("next")).unwrap();
    fs::rename(parent.path().join("next"), &link).unwrap();
    expect(&mut watcher, &["v2"]).await;
    write(parent.path().join("v2/a.yaml"), &service("v3"));
    expect(&mut watcher, &["v3"]).await;
}

#[tokio::test]
async fn the_target_of_a_link_to_elsewhere() {
    let (dir, mut watcher) = followed().await;
    let elsewhere = TempDir::new().unwrap();
    write(elsewhere.path().join("b"), &service("b"));
    symlink(elsewhere.path().join("b"), dir.path().join("b.yaml")).unwrap();
    expect(&mut watcher, &["a", "b"]).await;
    write(elsewhere.path().join("b"), &service("c"));
    expect(&mut watcher, &["a", "c"]).await;
}

#[tokio::test]
async fn files_in_folders_within() {
    let (dir, mut watcher) = followed().await;
    fs::create_dir_all(dir.path().join("x/y")).unwrap();
    write(dir.path().join("x/y/b.yaml"), &service("b"));
    expect(&mut watcher, &["a", "b"]).await;
    write(dir.path().join("x/y/b.yaml"), &service("c"));
    expect(&mut watcher, &["a", "c"]).await;
}

#[tokio::test]
async fn a_file_that_breaks_and_is_mended() {
    let (dir, mut watcher) = followed().await;
    let whole = service("b");
    write(dir.path().join("a.yaml"), &whole[..whole.len() - 8]);
    // What the file had before stays.
    let (mesh, report) = next(&mut watcher).await;
    assert_eq!(names(&mesh.unwrap()), ["a"]);
    assert!(report.has_errors() && !report.refused.is_empty() && !report.is_refused);
    write(dir.path().join("a.yaml"), &whole);
    expect(&mut watcher, &["b"]).await;
}

#[tokio::test]
async fn a_folder_emptied_by_mistake_is_refused_and_one_on_purpose_is_not() {
    let (dir, mut watcher) = followed().await;
    let file = dir.path().join("a.yaml");
    let refused = |(mesh, report): (Option<Mesh>, Report)| {
        assert!(mesh.is_none());
        assert_eq!(report.errors(), 1);
        let said = report.problems[0].to_string();
        assert!(
            said.contains("error: this folder holds no manifest"),
            "{said}"
        );
        assert!(said.contains("kind: List, items: []"), "{said}");
    };
    fs::remove_file(&file).unwrap();
    refused(next(&mut watcher).await);
    // The same content as before is a change after an error.
    write(&file, &service("a"));
    expect(&mut watcher, &["a"]).await;
    // A file without any document is no manifest either.
    write(&file, "# nothing\n---\n");
    refused(next(&mut watcher).await);
    write(&file, "{apiVersion: v1, kind: List, items: []}\n");
    expect(&mut watcher, &[]).await;
    // After an empty mesh, removing the file loses nothing, and is only a warning.
    fs::remove_file(&file).unwrap();
    let (mesh, report) = next(&mut watcher).await;
    assert!(mesh.is_some());
    assert_eq!(report.problems[0].severity, Severity::Warning);
}

#[tokio::test]
async fn a_folder_that_is_empty_at_the_start_is_a_warning() {
    let dir = TempDir::new().unwrap();
    let (mesh, report) = next(&mut watch(dir.path())).await;
    assert!(mesh.is_some());
    assert_eq!(report.problems[0].severity, Severity::Warning);
    assert_eq!(crate::load(dir.path()).1, report);
}

#[tokio::test]
async fn what_leaves_the_content_as_it_was_is_no_change() {
    let (dir, mut watcher) = followed().await;
    write(dir.path().join("a.yaml"), &service("a"));
    write(dir.path().join("notes.txt"), "nothing");
    write(dir.path().join(".a.yaml.swp"), "nothing");
    write(dir.path().join("a.yaml~"), "nothing");
    assert!(timeout(QUIET * 8, watcher.next()).await.is_err());
    // The call above was dropped half way; the next one still finds later changes.
    write(dir.path().join("a.yaml"), &service("b"));
    let (mesh, _) = next(&mut watcher).await;
    assert_eq!(mesh.unwrap().generation, 2);
}

#[tokio::test]
async fn a_dropped_call_loses_nothing() {
    let (dir, mut watcher) = followed().await;
    write(dir.path().join("a.yaml"), &service("b"));
    // Long enough to receive the event, too short to process it.
    assert!(timeout(QUIET / 2, watcher.next()).await.is_err());
    expect(&mut watcher, &["b"]).await;
}

#[tokio::test]
async fn without_the_kernels_help() {
    let dir = TempDir::new().unwrap();
    write(dir.path().join("a.yaml"), &service("a"));
    let mut watcher = watch(dir.path());
    {
        let mut eyes = watcher.eyes.lock().unwrap();
        (eyes.notify, eyes.blind) = (None, true);
    }
    expect(&mut watcher, &["a"]).await;
    write(dir.path().join("a.yaml"), &service("b"));
    expect(&mut watcher, &["b"]).await;
}

#[tokio::test]
async fn a_registry_that_always_has_news_hides_no_change_of_the_folder() {
    let dir = TempDir::new().unwrap();
    write(dir.path().join("a.yaml"), &service("a"));
    let (sender, providers) = watch::channel(Arc::new(Providers::default()));
    let news = || {
        let version = sender.borrow().version + 1;
        sender.send_replace(Arc::new(Providers {
            version,
            ..Providers::default()
        }));
    };
    let mut watcher = watch(dir.path()).beside(providers);
    {
        let mut eyes = watcher.eyes.lock().unwrap();
        (eyes.notify, eyes.blind) = (None, true);
    }
    expect(&mut watcher, &["a"]).await;
    write(dir.path().join("a.yaml"), &service("b"));
    let begun = Instant::now();
    loop {
        news();
        let (mesh, _) = next(&mut watcher).await;
        if names(&mesh.unwrap()) == ["b"] {
            break;
        }
        assert!(begun.elapsed() < TOO_LONG, "the change is not seen");
    }
}

#[tokio::test]
async fn a_registry_rests_after_a_compilation_and_the_folder_does_not() {
    let dir = TempDir::new().unwrap();
    write(dir.path().join("a.yaml"), &service("a"));
    let (sender, providers) = watch::channel(Arc::new(Providers::default()));
    let mut watcher = watch(dir.path()).beside(providers);
    expect(&mut watcher, &["a"]).await;
    let news = |version| {
        let providers = Providers {
            version,
            ..Providers::default()
        };
        sender.send_replace(Arc::new(providers));
    };
    let before = watcher.registry_at;
    news(1);
    let _beside = next(&mut watcher).await;
    let rests = before + Duration::from_nanos(1)..=Instant::now() + LONGEST_REST;
    assert!(rests.contains(&watcher.registry_at), "no rest, or too long");

    watcher.registry_at = Instant::now() + TOO_LONG * 10;
    news(2);
    write(dir.path().join("a.yaml"), &service("b"));
    expect(&mut watcher, &["b"]).await;
    let rests_until = Instant::now() + QUIET * 3;
    watcher.registry_at = rests_until;
    news(3);
    let _beside = next(&mut watcher).await;
    assert!(Instant::now() >= rests_until, "the registry did not rest");

    let worked = QUIET * 3;
    watcher.registry_since = Some(Instant::now() - worked);
    let asked = Instant::now();
    news(4);
    let _beside = next(&mut watcher).await;
    assert!(
        asked.elapsed() >= worked,
        "what the owner did was not counted"
    );
}

#[tokio::test]
async fn a_quiet_folder_is_let_be() {
    let (dir, mut watcher) = followed().await;
    let _beside = TempDir::new_in(dir.path().parent().unwrap()).unwrap();
    let mut wakes = 0;
    let quiet = async {
        loop {
            watcher.events.recv().await;
            wakes += 1;
        }
    };
    assert!(timeout(QUIET * 5, quiet).await.is_err());
    // At most the event caused by the setup itself; none caused by others beside the folder.
    assert!(wakes <= 1, "{wakes} events in an idle folder");
}

#[tokio::test]
async fn who_could_not_be_tried_is_tried_though_nothing_changes() {
    let dir = TempDir::new().unwrap();
    // A rule on requests cannot be enforced where only bytes are forwarded: a provider to which it applies does not
    // fit.
    write(
        dir.path().join("a.yaml"),
        "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n\
         spec: {selector: {app: web}, ports: [{name: tcp-web, port: 80, targetPort: http}]}\n---\n\
         apiVersion: heddle.dev/v1alpha1\nkind: AuthorizationPolicy\n\
         metadata: {name: no-admin, namespace: shop}\n\
         spec:\n  targetRefs: [{kind: Pod, selector: {matchLabels: {is: guarded}}}]\n  action: DENY\n  \
         rules: [{httpAttributes: {paths: [{type: PathPrefix, value: /admin}]}}]\n",
    );
    let web = |n: u16, labels: &str| {
        let key = format!("/heddle/v1/providers/shop/web/p{n}");
        let value = format!(
            "{{apiVersion: heddle.dev/v1alpha1, kind: LocalWorkload, metadata: {{labels: {labels}}}, \
             spec: {{address: 10.0.0.7, ports: [{{name: http, port: {}}}]}}}}",
            9000 + n
        );
        Arc::new(Entry {
            origin: Origin::etcd(key.as_str()),
            key: Layout::default().provider(key.as_bytes()).unwrap(),
            value: value.into_bytes(),
            created: n.into(),
        })
    };
    let guarded = "{app: web, is: guarded}";
    let mut entries: Vec<Arc<Entry>> = (0..40).map(|n| web(n, guarded)).collect();
    entries.push(web(100, "{app: web}"));
    let (sender, providers) = watch::channel(Arc::new(Providers {
        entries: entries.into(),
        version: 1,
        ..Providers::default()
    }));
    let mut watcher = watch(dir.path()).beside(providers);
    let mut looks = 0;
    loop {
        looks += 1;
        let (mesh, _) = next(&mut watcher).await;
        if !mesh.unwrap().services[0].ports[0].endpoints.is_empty() {
            break;
        }
    }
    assert!(looks > 1, "there were too many to be tried at once");
    drop(sender);
}
