//! Compression and its undoing on request (`oncefs compress`, `oncefs expand`): a portion of one map or of all maps at
//! a time, at full speed and whatever the worker's hours are.

use oncefs_dedup::Compress;

use crate::base::part;
use crate::commit::change_room::ChangeRoom;
use crate::format::keys::LeafKey;
use crate::layout::referrers::MapCursor;
use crate::policy::effective::FilePolicies;
use crate::sync::{LockRank, Mutex};
use crate::worker::compress::BlockCompressor;
use crate::worker::expand::{BlockExpander, Measured, Moved};
use crate::worker::status::{Conversion, Converted};
use crate::worker::worklist::Worklist;
use crate::{Error, MapId, Result};

/// Leaves that are looked at together, and how often for a portion: small files have a leaf each.
const STEP_LEAVES: usize = 4;
const STEPS_MAX: usize = 128;
/// Most blocks of a portion: 4 MiB of data.
const PORTION_BLOCKS: u64 = 1_024;

part! {
    /// Compresses and expands on request.
    pub struct Converter {
        base: tuning, stored;
        file_policies: FilePolicies, change_room: ChangeRoom, worklist: Worklist, compressor: BlockCompressor,
        expander: BlockExpander
    } own {
        /// The blocks of shared fragments that were expanded.
        moved: Mutex<Moved> = Mutex::new(LockRank::Leaf, Moved::default()),
        /// The shared fragments that were measured.
        measured: Mutex<Measured> = Mutex::new(LockRank::Leaf, Measured::new())
    }
}

impl Converter {
    /// See [`crate::Store::convert`].
    pub fn convert(&self, what: Conversion, only: Option<MapId>, from: MapCursor) -> Result<Converted> {
        let compress = match only {
            Some(map) => self.file_policies.compress(map),
            None => self.tuning.with(|settings| settings.compress),
        };
        match what {
            Conversion::Compress if !self.stored.has_fragments() => {
                let why = "the volume is not made for compressed blocks: mount it with -o compress=later once";
                Err(Error::Invalid(why.to_owned()))
            }
            Conversion::Expand | Conversion::MeasureExpand { .. } if compress != Compress::Off => {
                let why = match only {
                    None => "the mount compresses what is expanded: mount it with -o compress=off first",
                    Some(_) => {
                        "it is compressed again by its policy: oncefs policy set PATH compress=off, or mount with \
                         -o compress=off first"
                    }
                };
                Err(Error::Invalid(why.to_owned()))
            }
            what => self.convert_portion(what, only, from, PORTION_BLOCKS),
        }
    }

    /// The same, whatever the settings are, for about this many blocks.
    pub fn convert_portion(
        &self,
        what: Conversion,
        only: Option<MapId>,
        from: MapCursor,
        blocks_max: u64,
    ) -> Result<Converted> {
        self.change_room.usable()?;
        if what == Conversion::BeginExpand {
            self.moved.lock().clear();
            return Ok(Converted::default());
        }
        self.change_room.wait_for_background_room();
        let first = LeafKey { map: only.unwrap_or(MapId(from.map)), leaf: from.leaf };
        let (mut places, mut next) = (Vec::new(), Some(first));
        for _ in 0..STEPS_MAX {
            let Some(from) = next.filter(|_| (places.len() as u64) < blocks_max) else { break };
            next = match only {
                None => self.worklist.add_leaves_from(from, STEP_LEAVES, |_| true, &mut places)?,
                Some(map) => {
                    let next = self.worklist.add_leaves_of_map(map, from.leaf, STEP_LEAVES, &mut places)?;
                    next.map(|leaf| LeafKey { map, leaf })
                }
            };
        }
        let mut done = Converted { blocks: places.len() as u64, ..Converted::default() };
        match what {
            Conversion::Compress => self.compressor.compress_asked(&places)?,
            Conversion::Expand => {
                let mut moved = std::mem::take(&mut *self.moved.lock());
                if first == (LeafKey { map: MapId(0), leaf: 0 }) {
                    moved.clear();
                }
                let expanded = self.expander.expand_places(&places, &mut moved, &mut done);
                *self.moved.lock() = moved;
                expanded?;
            }
            Conversion::BeginExpand => {}
            Conversion::MeasureExpand { is_first } => {
                let mut measured = match is_first {
                    true => Measured::new(),
                    false => std::mem::take(&mut *self.measured.lock()),
                };
                done.room = self.expander.room_for(&places, &mut measured);
                *self.measured.lock() = measured;
            }
        }
        done.next = next.map(|next| MapCursor { map: next.map.0, leaf: next.leaf });
        Ok(done)
    }

    /// Lets a pass remember fewer shared fragments.
    #[cfg(all(test, not(feature = "schedules")))]
    pub fn remember_at_most(&self, fragments: usize) {
        self.moved.lock().most = fragments;
    }

    /// One pass over all maps. True: it moved something.
    #[cfg(any(test, feature = "testing"))]
    pub fn expand_all(&self, blocks_max: u64) -> Result<bool> {
        let (mut next, mut converted) = (Some(MapCursor { map: 0, leaf: 0 }), 0);
        while let Some(from) = next {
            let done = self.convert_portion(Conversion::Expand, None, from, blocks_max)?;
            converted += done.converted;
            next = done.next;
        }
        Ok(converted > 0)
    }
}
