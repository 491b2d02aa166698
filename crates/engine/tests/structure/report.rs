//! Prints the measures of a checkout, for `scripts/structure`: `report DIRECTORY`.

#[path = "mod.rs"]
mod structure;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use structure::circles::{between_rooms, circles};
use structure::counts;
use structure::crate_sources::CrateSources;
use structure::module_tree::ModuleTree;

const CRATES: [&str; 7] = ["dedup", "engine", "fs", "fuse", "cli", "sim", "bench"];

/// Files in a folder that can be seen at once.
const FOLDER_FILES_MAX: usize = 12;

fn main() -> io::Result<()> {
    let checkout = std::env::args().nth(1).expect("usage: report DIRECTORY");
    let checkout = Path::new(&checkout);
    let mut out = Vec::new();
    print_crates(&mut out, checkout)?;
    print_core(&mut out, checkout)?;
    print_pages(&mut out, checkout)?;
    print_folders(&mut out, checkout)?;
    print_rooms(&mut out, checkout)?;
    print_circles(&mut out, checkout)?;
    // Nobody need read to the end.
    io::stdout().write_all(&out).or_else(|e| if e.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(e) })
}

fn sources_of(checkout: &Path, name: &str) -> CrateSources {
    CrateSources::read(&checkout.join("crates").join(name).join("src"))
}

fn print_crates(out: &mut Vec<u8>, checkout: &Path) -> io::Result<()> {
    let head = ["crate", "files", "lines", "top", "asserts", "/1000", "in circles"];
    let [name, files, lines, top, asserts, of_1000, circle] = head;
    writeln!(out, "{name:8} {files:>5} {lines:>6} {top:>4} {asserts:>8} {of_1000:>6} {circle:>11}")?;
    for name in CRATES {
        let sources = sources_of(checkout, name);
        let in_circles: usize = circles(&ModuleTree::new(&sources).imports()).iter().map(|circle| circle.len()).sum();
        let (files, lines, top) = (sources.files.len(), sources.lines(), counts::files_at_the_top(&sources));
        let (asserts, of_1000) = (counts::assertions(&sources), counts::assertions_of_1000_lines(&sources));
        writeln!(out, "{name:8} {files:5} {lines:6} {top:4} {asserts:8} {of_1000:6.1} {in_circles:11}")?;
    }
    Ok(())
}

fn print_core(out: &mut Vec<u8>, checkout: &Path) -> io::Result<()> {
    let core = sources_of(checkout, "engine").files.remove("core.rs");
    let fields = core.and_then(|core| counts::fields(&core.code, "Core"));
    writeln!(out, "fields of Core: {}", fields.map_or("none".to_owned(), |fields| fields.to_string()))
}

fn print_pages(out: &mut Vec<u8>, checkout: &Path) -> io::Result<()> {
    for page in ["README.md", "docs/life-of-a-block.md"] {
        let text = fs::read_to_string(checkout.join(page))?;
        writeln!(out, "{page}: {} words, {} lines", counts::words(&text), text.lines().count())?;
    }
    Ok(())
}

fn print_folders(out: &mut Vec<u8>, checkout: &Path) -> io::Result<()> {
    for name in CRATES {
        for (folder, files) in counts::folders_over(&sources_of(checkout, name), FOLDER_FILES_MAX) {
            writeln!(out, "folder of more than {FOLDER_FILES_MAX} files: {name}/{folder}, {files}")?;
        }
    }
    Ok(())
}

fn print_rooms(out: &mut Vec<u8>, checkout: &Path) -> io::Result<()> {
    for (room, others) in between_rooms(&ModuleTree::new(&sources_of(checkout, "engine")).imports()) {
        let others: Vec<String> = others.into_iter().collect();
        writeln!(out, "room {room} of engine imports: {}", others.join(" "))?;
    }
    Ok(())
}

fn print_circles(out: &mut Vec<u8>, checkout: &Path) -> io::Result<()> {
    for name in CRATES {
        for circle in circles(&ModuleTree::new(&sources_of(checkout, name)).imports()) {
            let files: Vec<String> = circle.into_iter().collect();
            writeln!(out, "circle of {} files in {name}: {}", files.len(), files.join(" "))?;
        }
    }
    Ok(())
}
