//! The sources of one crate without its tests, by path below `src`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::code;

/// A file: what is in it, and what of that is compiled without tests.
pub struct Source {
    /// Lines of it that are no test's, with comments and empty ones.
    pub lines: usize,
    /// Code without comments, literals and tests.
    pub code: String,
}

/// Files by path below `src`, as `write/batch.rs`.
pub struct CrateSources {
    /// Files of tests are left out.
    pub files: BTreeMap<String, Source>,
}

impl CrateSources {
    /// Reads a crate's `src`.
    pub fn read(src: &Path) -> Self {
        let mut texts = BTreeMap::new();
        collect(src, "", &mut texts);
        assert!(!texts.is_empty(), "there are no sources in {}", src.display());
        Self::of(texts)
    }

    /// Of texts by path.
    pub fn of(texts: BTreeMap<String, String>) -> Self {
        let mut files = BTreeMap::new();
        let mut tests = Vec::new();
        for (path, text) in texts {
            let (code, modules) = code::without_tests(&code::without_text(&text));
            tests.extend(modules.iter().map(|name| format!("{}{name}", children_of(&path))));
            // What is left out of the code are whole items, and their lines.
            files.insert(path, Source { lines: code.lines().count(), code });
        }
        let is_test = |path: &str| {
            let below = |module: &String| {
                path.strip_prefix(module.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            };
            tests.iter().any(below)
        };
        files.retain(|path, _| !is_test(path));
        Self { files }
    }

    /// Lines of all files that are no test's.
    pub fn lines(&self) -> usize {
        self.files.values().map(|source| source.lines).sum()
    }
}

/// Where the child modules of a file are, with a slash at the end.
pub fn children_of(path: &str) -> String {
    let (dir, name) = path.rsplit_once('/').map_or(("", path), |(dir, name)| (dir, name));
    let dir = if dir.is_empty() { String::new() } else { format!("{dir}/") };
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => dir,
        _ => format!("{}/", path.trim_end_matches(".rs")),
    }
}

fn collect(dir: &Path, below: &str, texts: &mut BTreeMap<String, String>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.map(|entry| entry.expect("a directory that is read")) {
        let name = entry.file_name().into_string().expect("names of sources are ASCII");
        let path = format!("{below}{name}");
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{path}/"), texts);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(entry.path()).expect("a source can be read");
            texts.insert(path, text);
        }
    }
}
