//! Where reads of bad blocks go: to their replacements.

use crate::format::extent_leaf::Target;
use crate::known_damage::bad_blocks::BlockLocation;
use crate::state::loading::Metadata;
use crate::{Error, Pbn, Result};

/// The error for a block whose content is lost.
pub fn damaged(pbn: Pbn) -> Error {
    Error::corrupt(format!("block {pbn} of the data area"), "its content does not have its tag (see oncefs scrub)")
}

impl Metadata {
    /// The runs with every bad block replaced by its replacement. None: no block is bad. Under the publish lock. The
    /// caller's pin keeps a replacement found there from being reused.
    pub fn around_bad(&self, runs: &[(Target, u64)]) -> Result<Option<Vec<(Target, u64)>>> {
        if !self.damage.is_any_bad() {
            return Ok(None);
        }
        let state = self.state.lock();
        let mut found: Vec<(Target, u64)> = Vec::with_capacity(runs.len());
        for (target, blocks) in runs {
            let Target::Data(first) = target else {
                found.push((*target, *blocks));
                continue;
            };
            for pbn in (0..*blocks).map(|n| first.plus(n)) {
                let BlockLocation::At(at) = state.bad.find(pbn) else { return Err(damaged(pbn)) };
                match found.last_mut() {
                    Some((Target::Data(run), blocks)) if run.plus(*blocks) == at => *blocks += 1,
                    _ => found.push((Target::Data(at), 1)),
                }
            }
        }
        Ok(Some(found))
    }
}
