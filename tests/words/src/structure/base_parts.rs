//! The parts of the engine's `base` that a source names in `part!`: it imports their files without naming the types.

use std::collections::BTreeMap;

use super::circles::Imports;
use super::crate_sources::CrateSources;

/// The source with the parts and their types.
const BASE: &str = "base.rs";

/// For each source the files of the parts that it names.
pub fn imports(sources: &CrateSources) -> Imports {
    let files = sources.files.get(BASE).map(|base| files_of_parts(&base.code, sources)).unwrap_or_default();
    let named_in = |code: &str| {
        let parts = code.split("part! {").skip(1).filter_map(|part| part.split_once("base:"));
        let names = parts.flat_map(|(_, names)| names.split([';', '}']).next().unwrap_or_default().split(','));
        names.filter_map(|name| files.get(name.trim()).cloned()).collect()
    };
    let users = sources.files.iter().filter(|(path, _)| *path != BASE);
    users.map(|(path, source)| (path.clone(), named_in(&source.code))).collect()
}

/// The file of each part, by its name, from the lines `name: crate::room::file::Type;`.
fn files_of_parts<'a>(base: &'a str, sources: &CrateSources) -> BTreeMap<&'a str, String> {
    let lines = base.lines().filter_map(|line| line.trim().strip_suffix(';')?.split_once(": "));
    let file = |types: &str| {
        let (_, path) = types.rsplit_once("crate::")?;
        let (module, _) = path.rsplit_once("::")?;
        Some(format!("{}.rs", module.replace("::", "/"))).filter(|file| sources.files.contains_key(file))
    };
    lines.filter_map(|(name, types)| Some((name, file(types)?))).collect()
}
