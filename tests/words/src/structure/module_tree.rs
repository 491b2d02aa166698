//! Which file a path leads to: through modules, re-exports and names that were imported.

use std::collections::{BTreeMap, BTreeSet};

use super::base_parts;
use super::circles::Imports;
use super::crate_sources::{CrateSources, children_of};
use super::imports::{self, Named};

/// Re-exports that are followed for one name. More is a circle among them.
const STEPS_MAX: usize = 8;

/// What is known of a file.
struct Module {
    named: Vec<Named>,
    children: Vec<String>,
    defined: BTreeSet<String>,
}

/// The modules of a crate, by file.
pub struct ModuleTree {
    modules: BTreeMap<String, Module>,
    root: String,
    /// What sources import without a path.
    of_base: Imports,
}

impl ModuleTree {
    /// Reads what all files name and define.
    pub fn new(sources: &CrateSources) -> Self {
        let module = |code: &String| Module {
            named: imports::named(code),
            children: imports::declared_modules(code),
            defined: imports::defined(code).into_iter().collect(),
        };
        let modules: BTreeMap<_, _> =
            sources.files.iter().map(|(path, source)| (path.clone(), module(&source.code))).collect();
        let root = ["lib.rs", "main.rs"].into_iter().find(|root| modules.contains_key(*root));
        Self { root: root.expect("a crate has a root").to_owned(), modules, of_base: base_parts::imports(sources) }
    }

    /// For each file the others of the crate in which what it uses is defined.
    pub fn imports(&self) -> Imports {
        let of_file = |file: &String| {
            let named = self.modules[file].named.iter().filter(|named| !named.is_handed_on);
            let mut found: BTreeSet<String> = named.filter_map(|named| self.file_of(file, &named.path, 0)).collect();
            found.extend(self.of_base.get(file).into_iter().flatten().cloned());
            found.remove(file);
            (file.clone(), found)
        };
        self.modules.keys().map(of_file).collect()
    }

    /// The file in which a path ends that is named in `file`; None outside of the crate.
    fn file_of(&self, file: &str, path: &[String], steps: usize) -> Option<String> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.below(&self.root, rest, steps),
            "self" => self.below(file, rest, steps),
            "super" => self.below(&self.parent(file)?, rest, steps),
            name if self.child(file, name).is_some() => self.below(file, path, steps),
            name => self.below(&self.imported_module(file, name)?, rest, steps),
        }
    }

    /// Follows a path from a module on.
    fn below(&self, file: &str, path: &[String], steps: usize) -> Option<String> {
        let Some((first, rest)) = path.split_first() else {
            return Some(file.to_owned());
        };
        if first == "super" {
            return self.below(&self.parent(file)?, rest, steps);
        }
        match self.child(file, first) {
            Some(child) => self.below(&child, rest, steps),
            None => self.definition(file, first, steps),
        }
    }

    /// The file that defines a name which `file` offers: itself, or what it got the name from.
    fn definition(&self, file: &str, name: &str, steps: usize) -> Option<String> {
        let module = &self.modules[file];
        if steps == STEPS_MAX || name == "*" || module.defined.contains(name) {
            return Some(file.to_owned());
        }
        let mut declared = module.named.iter().filter(|named| named.name.as_deref() == Some(name));
        if let Some(named) = declared.next() {
            // What comes from another crate is offered here.
            return self.file_of(file, &named.path, steps + 1).or_else(|| Some(file.to_owned()));
        }
        let globs = module.named.iter().filter(|named| named.name.as_deref() == Some("*"));
        let through = |named: &Named| {
            let origin = self.file_of(file, &named.path[..named.path.len() - 1], steps + 1)?;
            let found = self.definition(&origin, name, steps + 1)?;
            self.modules[&found].defined.contains(name).then_some(found)
        };
        // A variant, a macro or the like: it is the module's own.
        globs.filter_map(through).next().or_else(|| Some(file.to_owned()))
    }

    /// The module that a name stands for in a file because it was imported.
    fn imported_module(&self, file: &str, name: &str) -> Option<String> {
        let is_meant = |named: &&Named| named.name.as_deref() == Some(name) && named.path.len() > 1;
        let path = &self.modules[file].named.iter().find(is_meant)?.path;
        let (last, before) = path.split_last()?;
        let parent = match before.first()?.as_str() {
            "crate" | "self" | "super" => self.file_of(file, before, 0)?,
            first if self.child(file, first).is_some() => self.file_of(file, before, 0)?,
            _ => return None,
        };
        self.child(&parent, last)
    }

    /// The file of a child module.
    fn child(&self, file: &str, name: &str) -> Option<String> {
        if !self.modules[file].children.iter().any(|child| child == name) {
            return None;
        }
        let below = format!("{}{name}", children_of(file));
        [format!("{below}.rs"), format!("{below}/mod.rs")].into_iter().find(|path| self.modules.contains_key(path))
    }

    /// The file of the module above.
    fn parent(&self, file: &str) -> Option<String> {
        let is_parent = |parent: &&String| {
            let children = self.modules[*parent].children.iter();
            children.filter_map(|name| self.child(parent, name)).any(|child| child == file)
        };
        self.modules.keys().find(is_parent).cloned()
    }
}
