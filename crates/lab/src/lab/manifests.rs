//! Manifests as trees: the lab adds to its own copy what a cluster would add, addresses and nodes. The control plane
//! decides whether they are valid.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use heddle_compile::{Options, Placement, load_with};
use heddle_model::report::Severity;
use heddle_model::{Mesh, Namespace};
use serde_json::{Map, Value};

#[cfg(test)]
mod tests;

/// Limit of files in one folder.
const MAX_FILES: usize = 10_000;
/// Limit of all files together.
const MAX_BYTES: u64 = 64 << 20;
/// Limit of nested folders.
const MAX_DEPTH: usize = 16;
/// The namespace of objects that specify none.
const DEFAULT_NAMESPACE: &str = "default";

/// A folder of manifests in memory.
#[derive(Debug, Clone)]
pub(super) struct Manifests {
    folder: PathBuf,
    files: Vec<ManifestFile>,
}

#[derive(Debug, Clone)]
struct ManifestFile {
    /// Relative to the folder of the manifests.
    path: PathBuf,
    documents: Vec<Value>,
}

/// An object of one of the manifests.
pub(super) struct Object<'m> {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The folder of its file, for relative paths in it.
    pub(super) folder: PathBuf,
    pub(super) tree: &'m mut Map<String, Value>,
}

impl Object<'_> {
    /// Its `spec`, which is added if it is missing.
    pub(super) fn spec(&mut self) -> anyhow::Result<&mut Map<String, Value>> {
        let empty = || Value::Object(Map::new());
        let (namespace, name) = (&self.namespace, &self.name);
        let spec = self.tree.entry("spec").or_insert_with(empty);
        spec.as_object_mut()
            .with_context(|| format!("{namespace}/{name}: spec: this is not a mapping"))
    }

    /// A mapping of strings to strings below `metadata` or `spec`; empty if it is missing.
    pub(super) fn texts(&self, path: [&str; 2]) -> Vec<(String, String)> {
        let found = self.tree.get(path[0]).and_then(|part| part.get(path[1]));
        let entries = found.and_then(Value::as_object).into_iter().flatten();
        entries
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect()
    }
}

impl Manifests {
    /// Reads every file that the control plane would read.
    ///
    /// # Errors
    /// A file cannot be read or is not YAML.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        let paths = files(folder)?;
        let mut bytes_left = MAX_BYTES;
        let files = paths
            .into_iter()
            .map(|path| {
                let size = fs::metadata(&path)?.len();
                bytes_left = bytes_left.checked_sub(size).with_context(|| {
                    format!("{}: more than {MAX_BYTES} bytes in all", path.display())
                })?;
                ManifestFile::read(folder, &path)
            })
            .collect::<anyhow::Result<_>>()?;
        let folder = folder.to_owned();
        Ok(Self { folder, files })
    }

    /// Calls `work` with every object of a kind, including those in lists.
    ///
    /// # Errors
    /// An object has no name.
    pub(super) fn each<'m>(
        &'m mut self,
        kind: &str,
        mut work: impl FnMut(Object<'m>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for file in &mut self.files {
            let path = self.folder.join(&file.path);
            for document in &mut file.documents {
                visit(document, kind, &path, &mut work)
                    .with_context(|| path.display().to_string())?;
            }
        }
        Ok(())
    }

    /// Writes all of them to a folder, creating it if necessary.
    ///
    /// # Errors
    /// It cannot be written to.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        for (path, text) in self.texts()? {
            let path = folder.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    /// Makes a folder that the control plane watches contain exactly these manifests. Each file is replaced
    /// atomically. Returns whether anything changed.
    ///
    /// # Errors
    /// It cannot be read or written to.
    pub(super) fn replace(&self, folder: &Path) -> anyhow::Result<bool> {
        let texts = self.texts()?;
        let mut is_new = false;
        for (path, text) in &texts {
            let path = folder.join(path);
            if fs::read_to_string(&path).is_ok_and(|there| there == *text) {
                continue;
            }
            let shown = || path.display().to_string();
            let name = path.file_name().context("a file has a name")?;
            // Hidden files are not read as manifests.
            let mut hidden = OsString::from(".");
            hidden.push(name);
            let next = path.with_file_name(hidden);
            let parent = path.parent().unwrap_or(folder);
            fs::create_dir_all(parent).with_context(shown)?;
            let written = fs::write(&next, text).and_then(|()| fs::rename(&next, &path));
            written.with_context(shown)?;
            is_new = true;
        }
        for path in files(folder)? {
            let is_one = path
                .strip_prefix(folder)
                .is_ok_and(|own| texts.contains_key(own));
            if !is_one {
                fs::remove_file(&path).with_context(|| path.display().to_string())?;
                is_new = true;
            }
        }
        Ok(is_new)
    }

    /// The text of each written file, by its path below the folder.
    fn texts(&self) -> anyhow::Result<BTreeMap<PathBuf, String>> {
        let texts = self.files.iter().map(|file| {
            let mut text = String::new();
            for document in &file.documents {
                text.push_str("---\n");
                // JSON is valid YAML, and its quotes keep every string a string.
                text.push_str(&serde_json::to_string_pretty(document)?);
                text.push('\n');
            }
            // Written as YAML: a JSON file could hold only one document.
            Ok((written(&file.path), text))
        });
        texts.collect()
    }

    /// Compiles them as the control plane does; returns the mesh and the warnings.
    ///
    /// # Errors The manifests are invalid; the error lists every reason with the original file.
    pub(super) fn compile(&self) -> anyhow::Result<(Mesh, Vec<String>)> {
        let scratch = tempfile::tempdir().context("cannot make a folder for the manifests")?;
        self.write(scratch.path())?;
        let options = Options {
            placement: Placement::ByNode,
            ..Options::default()
        };
        let (mesh, report) = load_with(scratch.path(), &options);
        let said = |severity: Severity| {
            let problems = report.problems.iter();
            problems
                .filter(move |problem| problem.severity == severity)
                .map(|problem| {
                    let path = problem.origin.path().unwrap_or(Path::new(""));
                    let file = self.original(path.strip_prefix(scratch.path()).unwrap_or(path));
                    let object = problem.object.as_deref().unwrap_or_default();
                    let (field, reason) = (&problem.field, &problem.reason);
                    let remedy = match problem.remedy.is_empty() {
                        true => String::new(),
                        false => format!(" ({})", problem.remedy),
                    };
                    format!("{}: {object} {field}: {reason}{remedy}", file.display())
                })
        };
        match mesh {
            Some(mesh) => Ok((mesh, said(Severity::Warning).collect())),
            None => bail!("{}", said(Severity::Error).collect::<Vec<_>>().join("\n")),
        }
    }

    /// The original path of a written file.
    fn original(&self, written: &Path) -> PathBuf {
        let given = self.files.iter().map(|file| &file.path);
        let mut given = given.filter(|path| self::written(path) == written);
        self.folder
            .join(given.next().map_or(written, |path| path.as_path()))
    }
}

/// The name of the written file: `.yaml` is added to any other extension, so `a.json` and `a.yaml` stay two files.
fn written(path: &Path) -> PathBuf {
    match path
        .extension()
        .is_some_and(|extension| extension == "yaml")
    {
        true => path.to_owned(),
        false => path.with_added_extension("yaml"),
    }
}

impl ManifestFile {
    fn read(folder: &Path, path: &Path) -> anyhow::Result<Self> {
        let shown = || path.display().to_string();
        let text = fs::read_to_string(path).with_context(shown)?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
            .map_err(|error| anyhow::anyhow!("{}", error.without_snippet()))
            .with_context(shown)?;
        Ok(Self {
            path: path.strip_prefix(folder).unwrap_or(path).to_owned(),
            documents,
        })
    }
}

/// The files of a folder that hold manifests.
///
/// # Errors
/// It cannot be read, or holds too many.
pub(super) fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    collect(folder, 0, &mut paths)?;
    paths.sort();
    Ok(paths)
}

fn collect(folder: &Path, depth: usize, paths: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let shown = || folder.display().to_string();
    ensure!(depth < MAX_DEPTH, "{}: too many folders within", shown());
    for entry in fs::read_dir(folder).with_context(shown)? {
        let path = entry.with_context(shown)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_none_or(|name| name.starts_with('.')) {
            continue;
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.is_dir() {
            collect(&path, depth + 1, paths)?;
        } else if matches!(extension, Some("yaml" | "yml" | "json")) {
            ensure!(
                paths.len() < MAX_FILES,
                "{}: more than {MAX_FILES} files",
                shown()
            );
            paths.push(path);
        }
    }
    Ok(())
}

fn visit<'m>(
    document: &'m mut Value,
    kind: &str,
    path: &Path,
    work: &mut impl FnMut(Object<'m>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let Some(tree) = document.as_object_mut() else {
        return Ok(());
    };
    let text = |tree: &Map<String, Value>, field: &str| {
        let value = tree.get("metadata")?.get(field)?;
        Some(value.as_str()?.to_owned())
    };
    let found = tree.get("kind").and_then(Value::as_str).unwrap_or_default();
    if found == kind {
        let namespace = text(tree, "namespace").filter(|text| !text.is_empty());
        let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        Namespace::parse(&namespace)?;
        let name = text(tree, "name");
        let name = name.with_context(|| format!("{kind}: metadata.name: there is none"))?;
        let folder = path.parent().unwrap_or(path).to_owned();
        return work(Object {
            namespace,
            name,
            folder,
            tree,
        });
    }
    let is_list = found.ends_with("List");
    match tree.get_mut("items").and_then(Value::as_array_mut) {
        Some(items) if is_list => items
            .iter_mut()
            .try_for_each(|item| visit(item, kind, path, work)),
        _ => Ok(()),
    }
}
