//! Compression and its undoing on request (`oncefs compress`, `oncefs expand`): a portion of one map or of all maps at
//! a time, at full speed and whatever the worker's hours are.

use std::time::Duration;

use oncefs_dedup::Compress;

use crate::base::part;
use crate::commit::change_room::ChangeRoom;
use crate::format::keys::LeafKey;
use crate::layout::referrers::MapCursor;
use crate::policy::effective::FilePolicies;
use crate::sync::{LockRank, Mutex};
use crate::worker::compress::BlockCompressor;
use crate::worker::convert_command::{ConvertCommand, IDLE_MAX};
use crate::worker::expand::{BlockExpander, Measured, Moved};
use crate::worker::status::{Conversion, Converted};
use crate::worker::worklist::Worklist;
use crate::write::visit::Place;
use crate::{Error, MapId, Result};

/// Leaves that are looked at together, and how often for a portion: small files have a leaf each.
const STEP_LEAVES: usize = 4;
const STEPS_MAX: usize = 128;
/// Most blocks of a portion: 4 MiB of data.
const PORTION_BLOCKS: u64 = 1_024;

part! {
    /// Compresses and expands on request.
    pub struct Converter {
        base: tuning, stored, foreground;
        file_policies: FilePolicies, change_room: ChangeRoom, worklist: Worklist, compressor: BlockCompressor,
        expander: BlockExpander
    } own {
        /// The command under way. Held for a portion of it.
        command: Mutex<ConvertCommand> = Mutex::new(LockRank::Converting, ConvertCommand::default())
    }
}

impl Converter {
    /// See [`crate::Store::convert`].
    pub fn convert(&self, what: Conversion, only: Option<MapId>, from: MapCursor) -> Result<Converted> {
        self.convert_by(&|| self.foreground.now(), what, only, from)
    }

    /// The same, by this clock.
    pub fn convert_by(
        &self,
        clock: &dyn Fn() -> Duration,
        what: Conversion,
        only: Option<MapId>,
        from: MapCursor,
    ) -> Result<Converted> {
        self.change_room.usable()?;
        match what {
            Conversion::BeginCompress { command: None } => {
                self.refuse_if_never_compressed()?;
                let command = self.begin(clock)?;
                let begun = self.compressor.begin_asked();
                self.compressor.begin_asked_pass();
                begun.inspect_err(|_| self.command.lock().end(command))?;
                Ok(Converted { command, ..Converted::default() })
            }
            Conversion::BeginCompress { command: Some(command) } => self.if_under_way(command, clock, |_| {
                self.compressor.begin_asked_pass();
                Ok(Converted::default())
            }),
            Conversion::Compress { command } => {
                self.refuse_if_never_compressed()?;
                self.if_under_way(command, clock, |_| {
                    self.portion(only, from, PORTION_BLOCKS, |places, done| {
                        self.compressor.compress_asked(places, done)
                    })
                })
            }
            Conversion::Expand { command } => {
                self.refuse_if_compressed_again(only)?;
                let expand = |now: &mut ConvertCommand| self.expand_portion(only, from, PORTION_BLOCKS, &mut now.moved);
                self.if_under_way(command, clock, expand)
            }
            Conversion::MeasureExpand { command } => {
                self.refuse_if_compressed_again(only)?;
                let measure =
                    |now: &mut ConvertCommand| self.measure_portion(only, from, PORTION_BLOCKS, &mut now.measured);
                self.if_under_way(command, clock, measure)
            }
            Conversion::BeginExpand { command: None } => {
                Ok(Converted { command: self.begin(clock)?, ..Converted::default() })
            }
            Conversion::BeginExpand { command: Some(command) } => self.if_under_way(command, clock, |now| {
                now.moved.clear();
                Ok(Converted::default())
            }),
            Conversion::End { command } => {
                self.command.lock().end(command);
                if self.tuning.with(|settings| settings.compress) == Compress::Off {
                    // No worker compresses, which would look there too.
                    self.compressor.begin_asked_pass();
                }
                Ok(Converted::default())
            }
        }
    }

    /// A command begins. Returns its number.
    fn begin(&self, clock: &dyn Fn() -> Duration) -> Result<u64> {
        let begun = self.command.try_lock().and_then(|mut command| command.begin(clock()));
        begun.ok_or_else(|| {
            let idle = IDLE_MAX.as_secs();
            let why =
                "another oncefs compress or oncefs expand is under way in this volume: try again when it has ended";
            Error::Invalid(format!("{why}, or {idle} seconds after it was killed"))
        })
    }

    fn refuse_if_never_compressed(&self) -> Result<()> {
        if self.stored.has_fragments() {
            return Ok(());
        }
        let why = "the volume is not made for compressed blocks: mount it with -o compress=later once";
        Err(Error::Invalid(why.to_owned()))
    }

    fn refuse_if_compressed_again(&self, only: Option<MapId>) -> Result<()> {
        let compress = match only {
            Some(map) => self.file_policies.compress(map),
            None => self.tuning.with(|settings| settings.compress),
        };
        if compress == Compress::Off {
            return Ok(());
        }
        let why = match only {
            None => "the mount compresses what is expanded: mount it with -o compress=off first",
            Some(_) => {
                "it is compressed again by its policy: oncefs policy set PATH compress=off, or mount with \
                 -o compress=off first"
            }
        };
        Err(Error::Invalid(why.to_owned()))
    }

    /// Works for this command, and says so if another one has begun since.
    fn if_under_way(
        &self,
        command: u64,
        clock: &dyn Fn() -> Duration,
        work: impl FnOnce(&mut ConvertCommand) -> Result<Converted>,
    ) -> Result<Converted> {
        let mut under_way = self.command.lock();
        if !under_way.is(command) {
            return Ok(Converted { is_overtaken: true, ..Converted::default() });
        }
        let done = work(&mut under_way);
        under_way.note_used(clock());
        done
    }

    /// Expands about this many blocks, whatever the settings are.
    pub fn expand_portion(
        &self,
        only: Option<MapId>,
        from: MapCursor,
        blocks_max: u64,
        moved: &mut Moved,
    ) -> Result<Converted> {
        self.portion(only, from, blocks_max, |places, done| self.expander.expand_places(places, moved, done))
    }

    /// Says how much room that takes at most.
    pub fn measure_portion(
        &self,
        only: Option<MapId>,
        from: MapCursor,
        blocks_max: u64,
        measured: &mut Measured,
    ) -> Result<Converted> {
        self.portion(only, from, blocks_max, |places, done| {
            done.room = self.expander.room_for(places, measured);
            Ok(())
        })
    }

    /// Works on the places of about this many blocks.
    fn portion(
        &self,
        only: Option<MapId>,
        from: MapCursor,
        blocks_max: u64,
        work: impl FnOnce(&[Place], &mut Converted) -> Result<()>,
    ) -> Result<Converted> {
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
        work(&places, &mut done)?;
        done.next = next.map(|next| MapCursor { map: next.map.0, leaf: next.leaf });
        Ok(done)
    }

    /// One pass over all maps. True: it moved something.
    #[cfg(any(test, feature = "testing"))]
    pub fn expand_all(&self, blocks_max: u64) -> Result<bool> {
        self.change_room.usable()?;
        let (mut next, mut converted, mut moved) = (Some(MapCursor { map: 0, leaf: 0 }), 0, Moved::default());
        while let Some(from) = next {
            let done = self.expand_portion(None, from, blocks_max, &mut moved)?;
            converted += done.converted;
            next = done.next;
        }
        Ok(converted > 0)
    }
}
