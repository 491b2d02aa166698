//! Prints the measures of a checkout, for `scripts/structure`: `report DIRECTORY`.

#[path = "mod.rs"]
mod structure;

use std::fs;
use std::path::Path;

use structure::circles::circles;
use structure::counts;
use structure::crate_sources::CrateSources;
use structure::module_tree::ModuleTree;

const CRATES: [&str; 7] = ["dedup", "engine", "fs", "fuse", "cli", "sim", "bench"];

fn main() {
    let checkout = std::env::args().nth(1).expect("usage: report DIRECTORY");
    let checkout = Path::new(&checkout);
    println!(
        "{:8} {:>5} {:>6} {:>4} {:>8} {:>6} {:>16}",
        "crate", "files", "lines", "top", "asserts", "/1000", "largest circle"
    );
    let mut circles_found = Vec::new();
    for name in CRATES {
        let sources = CrateSources::read(&checkout.join("crates").join(name).join("src"));
        let found = circles(&ModuleTree::new(&sources).imports());
        print_crate(name, &sources, found.first().map_or(0, |circle| circle.len()));
        circles_found.extend(found.into_iter().map(|circle| (name, circle)));
    }
    println!();
    print_core(checkout);
    for page in ["README.md", "docs/life-of-a-block.md"] {
        let text = fs::read_to_string(checkout.join(page)).expect("a page of the checkout");
        println!("{page}: {} words, {} lines", counts::words(&text), text.lines().count());
    }
    for (name, circle) in circles_found {
        let files: Vec<String> = circle.into_iter().collect();
        println!("circle in {name}, {} files: {}", files.len(), files.join(" "));
    }
}

fn print_crate(name: &str, sources: &CrateSources, largest_circle: usize) {
    println!(
        "{name:8} {:5} {:6} {:4} {:8} {:6.1} {largest_circle:16}",
        sources.files.len(),
        sources.lines(),
        counts::files_at_the_top(sources),
        counts::assertions(sources),
        counts::assertions_of_1000_lines(sources),
    );
}

fn print_core(checkout: &Path) {
    let core = CrateSources::read(&checkout.join("crates/engine/src")).files.remove("core.rs");
    let fields = core.and_then(|core| counts::fields(&core.code, "Core"));
    println!("fields of Core: {}", fields.map_or("none".to_owned(), |fields| fields.to_string()));
}
