use super::*;

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn names(manifests: &mut Manifests, kind: &str) -> Vec<String> {
    let mut names = Vec::new();
    manifests
        .each(kind, |object| {
            names.push(format!("{}/{}", object.namespace, object.name));
            Ok(())
        })
        .unwrap();
    names
}

#[test]
fn objects_are_found_in_documents_lists_and_folders_within() {
    let folder = folder(&[
        (
            "a.yaml",
            "kind: Service\nmetadata: {name: one}\n---\nkind: Other\nmetadata: {name: x}\n---\n",
        ),
        (
            "deep/b.json",
            r#"{"kind": "List", "items": [{"kind": "Service", "metadata": {"name": "two", "namespace": "n"}}]}"#,
        ),
        ("deep/c.yml", "kind: Service\nmetadata: {name: three}\n"),
        (".hidden.yaml", "kind: Service\nmetadata: {name: hidden}\n"),
        ("notes.txt", "kind: Service\nmetadata: {name: text}\n"),
    ]);
    let mut manifests = Manifests::read(folder.path()).unwrap();
    let found = names(&mut manifests, "Service");
    assert_eq!(found, ["default/one", "n/two", "default/three"]);
}

#[test]
fn what_is_written_reads_the_same() {
    let text =
        "kind: Service\nmetadata: {name: one, labels: {a: \"yes\", b: \"1.20\", c: \"#\"}}\n";
    let given = folder(&[("a.yaml", text)]);
    let manifests = Manifests::read(given.path()).unwrap();
    let copy = given.path().join("copy");
    manifests.write(&copy).unwrap();
    let again = Manifests::read(&copy).unwrap();
    assert_eq!(manifests.files[0].documents, again.files[0].documents);
}

#[test]
fn files_of_one_stem_stay_two() {
    let service = |name: &str| format!("kind: Service\nmetadata: {{name: {name}}}\n");
    let json = r#"{"kind": "Service", "metadata": {"name": "three"}}"#;
    let given = folder(&[
        ("web.yaml", &service("one")),
        ("web.yml", &service("two")),
        ("web.json", json),
    ]);
    let manifests = Manifests::read(given.path()).unwrap();
    let copy = tempfile::tempdir().unwrap();
    manifests.write(copy.path()).unwrap();
    let mut again = Manifests::read(copy.path()).unwrap();
    let mut found = names(&mut again, "Service");
    found.sort();
    assert_eq!(found, ["default/one", "default/three", "default/two"]);
}

#[test]
fn what_the_control_plane_refuses_is_said_of_the_file_that_was_given() {
    let given = folder(&[(
        "sub/a.yml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: one}\nspec: {prots: []}\n",
    )]);
    let error = Manifests::read(given.path())
        .unwrap()
        .compile()
        .unwrap_err();
    let error = error.to_string();
    let file = given.path().join("sub/a.yml");
    assert!(error.starts_with(&file.display().to_string()), "{error}");
    assert!(error.contains("spec.prots"), "{error}");
}

#[test]
fn what_is_no_yaml_is_said_of_its_file() {
    let given = folder(&[("a.yaml", "kind: [")]);
    let error = Manifests::read(given.path()).unwrap_err();
    assert!(format!("{error:#}").contains("a.yaml"), "{error:#}");
}
