//! Lists of keys and values, and changes of keys, as librados takes them.

use std::ffi::c_char;

use crate::key_change::KeyChange;
use crate::key_text;
use crate::librados::{Handle, Library};

/// Texts as librados takes them: their places and their lengths.
pub struct Texts {
    /// Where each begins.
    pub places: Vec<*const c_char>,
    /// How long each is.
    pub lens: Vec<usize>,
}

impl Texts {
    /// Valid as long as the texts.
    pub fn of<'a>(texts: impl Iterator<Item = &'a [u8]>) -> Self {
        let (places, lens) = texts.map(|text| (text.as_ptr().cast(), text.len())).unzip();
        Self { places, lens }
    }
}

/// Adds changes of keys to a write operation.
pub fn add_changes(library: &Library, operation: Handle, changes: &[KeyChange<'_>]) {
    for alike in changes.chunk_by(|a, b| std::mem::discriminant(a) == std::mem::discriminant(b)) {
        match alike[0] {
            KeyChange::RemoveRange { .. } => alike.iter().for_each(|change| remove_range(library, operation, change)),
            _ => set_or_remove(library, operation, alike),
        }
    }
}

fn remove_range(library: &Library, operation: Handle, change: &KeyChange<'_>) {
    let KeyChange::RemoveRange { from, to } = change else { return };
    let (from, to) = (key_text::before(from), key_text::before(to));
    // SAFETY: the operation is valid; librados copies both keys, which have these lengths.
    unsafe {
        let remove = library.rados_write_op_omap_rm_range2;
        remove(operation, from.as_ptr().cast(), from.len(), to.as_ptr().cast(), to.len());
    }
}

/// Adds changes that all set keys, or all remove some.
fn set_or_remove(library: &Library, operation: Handle, changes: &[KeyChange<'_>]) {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for change in changes {
        match change {
            KeyChange::Set { key, value } => {
                keys.push(key_text::encode(key));
                values.push(*value);
            }
            KeyChange::Remove { key } => keys.push(key_text::encode(key)),
            KeyChange::RemoveRange { .. } => {}
        }
    }
    let names = Texts::of(keys.iter().map(Vec::as_slice));
    if values.is_empty() {
        // SAFETY: the operation is valid; librados copies the keys, whose places and lengths are in these lists.
        unsafe {
            let remove = library.rados_write_op_omap_rm_keys2;
            remove(operation, names.places.as_ptr(), names.lens.as_ptr(), keys.len());
        }
        return;
    }
    let contents = Texts::of(values.iter().copied());
    // SAFETY: as above, and each key has a value.
    unsafe {
        let set = library.rados_write_op_omap_set2;
        let (places, lens) = (contents.places.as_ptr(), contents.lens.as_ptr());
        set(operation, names.places.as_ptr(), places, names.lens.as_ptr(), lens, keys.len());
    }
}
