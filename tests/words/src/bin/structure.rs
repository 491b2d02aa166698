//! Prints the measures of a checkout, for `scripts/structure`: `structure DIRECTORY`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use oncefs_words::structure::circles::{between_rooms, circles};
use oncefs_words::structure::counts;
use oncefs_words::structure::crate_sources::CrateSources;
use oncefs_words::structure::module_tree::ModuleTree;

/// Files in a folder that can be seen at once.
const FOLDER_FILES_MAX: usize = 12;

fn main() -> io::Result<()> {
    let checkout = PathBuf::from(std::env::args_os().nth(1).expect("usage: structure DIRECTORY"));
    let mut out = Vec::new();
    let crates = crates_of(&checkout)?;
    print_crates(&mut out, &crates)?;
    print_core(&mut out, &crates)?;
    print_folders(&mut out, &crates)?;
    print_rooms(&mut out, &crates)?;
    print_circles(&mut out, &crates)?;
    // Nobody need read to the end.
    io::stdout().write_all(&out).or_else(|e| if e.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(e) })
}

/// The sources of all crates with their names, sorted.
fn crates_of(checkout: &Path) -> io::Result<Vec<(String, CrateSources)>> {
    let mut crates = Vec::new();
    for place in ["crates", "lab"].map(|place| checkout.join(place)).into_iter().filter(|place| place.is_dir()) {
        for entry in fs::read_dir(place)? {
            let entry = entry?;
            if entry.path().join("src").is_dir() {
                let name = entry.file_name().to_string_lossy().into_owned();
                crates.push((name, CrateSources::read(&entry.path().join("src"))));
            }
        }
    }
    crates.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(crates)
}

fn print_crates(out: &mut Vec<u8>, crates: &[(String, CrateSources)]) -> io::Result<()> {
    let [name, files, lines, top, circle] = ["crate", "files", "lines", "top", "in circles"];
    writeln!(out, "{name:9} {files:>5} {lines:>6} {top:>4} {circle:>11}")?;
    for (name, sources) in crates {
        let in_circles: usize = circles(&ModuleTree::new(sources).imports()).iter().map(|circle| circle.len()).sum();
        let (files, lines, top) = (sources.files.len(), sources.lines(), counts::files_at_the_top(sources));
        writeln!(out, "{name:9} {files:5} {lines:6} {top:4} {in_circles:11}")?;
    }
    Ok(())
}

fn engine(crates: &[(String, CrateSources)]) -> impl Iterator<Item = &CrateSources> {
    crates.iter().filter(|(name, _)| name == "engine").map(|(_, sources)| sources)
}

fn print_core(out: &mut Vec<u8>, crates: &[(String, CrateSources)]) -> io::Result<()> {
    for engine in engine(crates) {
        let code = engine.files.get("volume/assembly.rs").map(|volume| &volume.code);
        let parts = code.and_then(|code| counts::listed(code, "volume!").or_else(|| counts::fields(code, "Volume")));
        writeln!(out, "parts of Volume: {}", parts.map_or("none".to_owned(), |parts| parts.to_string()))?;
    }
    Ok(())
}

fn print_folders(out: &mut Vec<u8>, crates: &[(String, CrateSources)]) -> io::Result<()> {
    for (name, sources) in crates {
        for (folder, files) in counts::folders_over(sources, FOLDER_FILES_MAX) {
            writeln!(out, "folder of more than {FOLDER_FILES_MAX} files: {name}/{folder}, {files}")?;
        }
    }
    Ok(())
}

fn print_rooms(out: &mut Vec<u8>, crates: &[(String, CrateSources)]) -> io::Result<()> {
    for engine in engine(crates) {
        for (room, others) in between_rooms(&ModuleTree::new(engine).imports()) {
            let others: Vec<String> = others.into_iter().collect();
            writeln!(out, "room {room} of engine imports: {}", others.join(" "))?;
        }
    }
    Ok(())
}

fn print_circles(out: &mut Vec<u8>, crates: &[(String, CrateSources)]) -> io::Result<()> {
    for (name, sources) in crates {
        for circle in circles(&ModuleTree::new(sources).imports()) {
            let files: Vec<String> = circle.into_iter().collect();
            writeln!(out, "circle of {} files in {name}: {}", files.len(), files.join(" "))?;
        }
    }
    Ok(())
}
