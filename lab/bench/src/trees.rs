//! The workloads of small files: a tree by itself, a second copy of it, and several programs with a tree each.

use std::path::PathBuf;

use crate::case::{Case, Work};
use crate::failure::Result;
use crate::measure::Latencies;
use crate::threaded::at_once;
use crate::tree::Tree;
use crate::volume::{Body, Volume};

/// Copies a tree in, reads it cold, walks it cold and again, and deletes it cold.
pub fn alone(volume: &Volume, seed: u64) -> Result<Body> {
    let tree = Tree::generate(seed, volume.tree_files);
    Ok(Box::new(move |case| {
        let root = case.path("");
        case.measure("tree-copy", copying(&tree), |latencies| tree.copy_to(&root, latencies))?;
        case.remount_cold()?;
        case.measure("tree-read-cold", reading(&tree), |latencies| tree.read_from(&root, latencies))?;
        case.remount_cold()?;
        for step in ["tree-walk-cold", "tree-walk-warm"] {
            case.measure(step, walking(&tree), |latencies| tree.walk_in(&root, latencies))?;
        }
        case.remount_cold()?;
        case.measure("tree-delete", reading(&tree), |latencies| tree.delete_from(&root, latencies))
    }))
}

/// Copies a tree in once more.
pub fn again(volume: &Volume, seed: u64) -> Result<Body> {
    let tree = Tree::generate(seed, volume.tree_files);
    Ok(Box::new(move |case| {
        case.note("copying a tree");
        tree.copy_to(&case.path(""), &mut Latencies::with_capacity(tree.files()))?;
        let root = case.path("again");
        let stored_before = case.data_area_bytes()?;
        case.measure("tree-copy-again", reading(&tree), |latencies| tree.copy_to(&root, latencies))?;
        case.remount_cold()?;
        case.note_growth(stored_before)?;
        case.note("verifying");
        tree.read_from(&root, &mut Latencies::with_capacity(tree.files()))
    }))
}

/// Each of `clients` programs copies a tree of its own in, then reads it cold.
pub fn clients(volume: &Volume, seed: u64, clients: usize) -> Result<Body> {
    let files = volume.tree_files.div_ceil(clients);
    let trees: Vec<Tree> = (0..clients).map(|client| Tree::generate(seed ^ client as u64, files)).collect();
    Ok(Box::new(move |case| {
        let roots: Vec<PathBuf> = (0..clients).map(|client| case.path(&format!("client-{client}"))).collect();
        let at_once = |case: &mut Case<'_>, name: String, work: fn(&Tree) -> Work, step: Step| {
            let work = trees.iter().map(work).reduce(joined).expect("there is a client");
            case.measure(&name, work, |latencies| {
                let ended = at_once(clients, |client| {
                    let mut own = Latencies::with_capacity(files);
                    step(&trees[client], &roots[client], &mut own).map(|()| own)
                })?;
                ended.iter().for_each(|own| latencies.join(own));
                Ok(())
            })
        };
        at_once(case, format!("tree-copy-{clients}-clients"), copying, Tree::copy_to)?;
        case.remount_cold()?;
        at_once(case, format!("tree-read-cold-{clients}-clients"), reading, Tree::read_from)
    }))
}

/// What one program does with its tree.
type Step = fn(&Tree, &std::path::Path, &mut Latencies) -> Result<()>;

fn copying(tree: &Tree) -> Work {
    let bytes = tree.bytes();
    Work { operations: tree.files(), bytes, unique_bytes: bytes, places_bytes: bytes, bound_by_bytes: false }
}

fn reading(tree: &Tree) -> Work {
    Work::reading(tree.files(), tree.bytes())
}

/// No byte of a file is read.
fn walking(tree: &Tree) -> Work {
    Work::reading(tree.files(), 0)
}

fn joined(one: Work, other: Work) -> Work {
    Work {
        operations: one.operations + other.operations,
        bytes: one.bytes + other.bytes,
        unique_bytes: one.unique_bytes + other.unique_bytes,
        places_bytes: one.places_bytes + other.places_bytes,
        bound_by_bytes: false,
    }
}
