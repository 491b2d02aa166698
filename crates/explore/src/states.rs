//! The states that a crash may leave of a recording: every prefix of it, and for each prefix the unflushed writes that
//! may have arrived.
//!
//! For each prefix: (a) all writes, as when the process dies; (b) none, as when the power fails; (c) all except one;
//! (d) one alone; (e) the last write torn between sectors, and in seeded sets of sectors, because a disk writes sectors
//! in any order; (f) seeded sets of writes of all devices, torn or whole; (g) every set, if there are few writes. Each
//! of these comes with every prefix of the sorted state's unflushed batches. If the records lie in objects, it comes with
//! all and none of their changes, every number of changes of one object with all and with none of the others, and seeded
//! numbers.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;
use std::sync::Arc;

use oncefs_engine::kv::Put;

use crate::effect::{Effect, Pages};
use crate::image::{Images, PAGE_BYTES, Page, Part, SECTOR_BYTES};
use crate::point::Point;
use crate::tape::{Allowed, Recorded};
use oncefs_toolbox::Random;

const PAGE_SECTORS: usize = PAGE_BYTES / SECTOR_BYTES;
/// With at most this many unflushed writes, every set of them is a state.
const ALL_SETS_MAX: usize = 4;
/// A write of at most this many sectors is torn at each boundary.
const ALL_TEARS_MAX: usize = 16;

/// The number of states to explore.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Writes of each prefix that are dropped alone, and kept alone.
    pub singles_max: usize,
    /// Seeded sets of each prefix.
    pub sets: usize,
    /// Seeded sets of sectors of the last write.
    pub tears: usize,
    /// Most states of each prefix, chosen by the seed if there are more.
    pub states_max: usize,
}

impl Effort {
    /// For short recordings.
    pub const WHOLE: Self = Self { singles_max: 24, sets: 4, tears: 3, states_max: usize::MAX };
    /// For long ones.
    pub const SAMPLE: Self = Self { singles_max: 4, sets: 3, tears: 1, states_max: 8 };
    /// Within a recovery.
    pub const NESTED: Self = Self { singles_max: 4, sets: 1, tears: 1, states_max: 3 };
}

/// Identifies a state of a recording: the steps before the crash, and one of the states that it may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateId {
    /// Steps on the tape before the crash.
    pub prefix: usize,
    /// The index among the states of this prefix.
    pub choice: usize,
}

impl fmt::Display for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.prefix, self.choice)
    }
}

impl FromStr for StateId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number =
            |part: &str| part.parse().map_err(|_| format!("'{text}' is not a state: give PREFIX.CHOICE, as 12.7"));
        let (prefix, choice) = text.split_once('.').unwrap_or((text, ""));
        Ok(Self { prefix: number(prefix)?, choice: number(choice)? })
    }
}

/// A state after a crash.
pub struct Crash {
    /// Its name within the recording.
    pub id: StateId,
    /// The contents of the volume's parts.
    pub images: Images,
    /// The snapshots that it may recover to.
    pub allowed: Allowed,
    /// The crash point.
    pub point: Point,
}

/// A write without a later flush.
struct Pending {
    part: Part,
    first: u64,
    pages: Pages,
}

/// The part of a pending write that arrived.
#[derive(Clone)]
enum Kept {
    Nothing,
    Whole,
    /// By sector of the write.
    Sectors(Arc<[bool]>),
}

/// The volume between two steps: its durable state and its pending writes.
struct Moment {
    durable: Images,
    pending: Vec<Pending>,
    batches: Vec<Arc<Vec<Put>>>,
    changes: Vec<ObjectChange>,
}

/// A change of an object with records that was not awaited.
struct ObjectChange {
    object: Arc<str>,
    number: u64,
    puts: Arc<Vec<Put>>,
}

/// The part of the sorted state's pending changes that arrived.
#[derive(Clone)]
enum Arrived {
    /// So many batches.
    Batches(usize),
    /// So many changes of each object, in the order of their names.
    Changes(Arc<[usize]>),
}

/// Visits every state in order, until `visit` breaks. With `only`, that state alone is built.
pub fn for_each_state(
    base: &Images,
    recorded: &[Recorded],
    effort: Effort,
    seed: u64,
    only: Option<StateId>,
    visit: &mut dyn FnMut(Crash) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut moment = Moment { durable: base.clone(), pending: Vec::new(), batches: Vec::new(), changes: Vec::new() };
    for (at, step) in recorded.iter().enumerate() {
        let prefix = at + 1;
        moment.take(&step.effect);
        if only.is_some_and(|only| only.prefix != prefix) {
            continue;
        }
        let mut random = Random::new(seed ^ (prefix as u64).wrapping_mul(0x2545_f491_4f6c_dd1d));
        let is_write = matches!(step.effect, Effect::Write { .. });
        let choices = moment.choices(is_write, effort, &mut random);
        for (choice, (kept, arrived)) in choices.iter().enumerate() {
            let id = StateId { prefix, choice };
            if only.is_some_and(|only| only != id) {
                continue;
            }
            let point = Point::after(step.doing, &step.effect);
            let images = moment.images(kept, arrived);
            visit(Crash { id, images, allowed: step.allowed, point })?;
        }
    }
    ControlFlow::Continue(())
}

impl Moment {
    fn take(&mut self, effect: &Effect) {
        match effect {
            Effect::Write { part, first, pages, .. } => {
                self.pending.push(Pending { part: *part, first: *first, pages: pages.clone() });
            }
            Effect::Flush(flushed) => {
                for write in self.pending.extract_if(.., |write| write.part == *flushed) {
                    apply(&mut self.durable, &write, &Kept::Whole);
                }
            }
            Effect::Grow(part, len) => self.durable.device_mut(*part).grow(*len),
            Effect::Rot(page) => self.durable.device_mut(Part::Data).rot(*page),
            Effect::Batch(batch) => self.batches.push(batch.clone()),
            Effect::FlushRecords => self.batches.drain(..).for_each(|batch| self.durable.records.apply(&batch)),
            Effect::Keys { object, number, puts } => {
                self.changes.push(ObjectChange { object: object.clone(), number: *number, puts: puts.clone() });
            }
            Effect::KeysDurable(object, number) => {
                let is_durable = |change: &mut ObjectChange| change.object == *object && change.number <= *number;
                for change in self.changes.extract_if(.., is_durable) {
                    self.durable.records.apply(&change.puts);
                }
            }
            Effect::Mark(_) => {}
        }
    }

    /// How many changes of each object are pending.
    fn pending_of_objects(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        self.changes.iter().for_each(|change| *counts.entry(&*change.object).or_default() += 1);
        counts
    }

    /// The choices of arrived changes of the sorted state. All and none come first.
    fn records(&self, effort: Effort, random: &mut Random) -> Vec<Arrived> {
        if self.changes.is_empty() {
            return (0..=self.batches.len()).rev().map(Arrived::Batches).collect();
        }
        let whole: Vec<usize> = self.pending_of_objects().into_values().collect();
        let mut all = vec![whole.clone(), vec![0; whole.len()]];
        for one in singles(whole.len(), effort.singles_max, random) {
            for kept in 0..=whole[one] {
                for others in [&whole, &vec![0; whole.len()]] {
                    let mut counts = others.clone();
                    counts[one] = kept;
                    all.push(counts);
                }
            }
        }
        let mut seeded = || whole.iter().map(|count| random.below(*count as u64 + 1) as usize).collect();
        all.extend((0..effort.sets).map(|_| seeded()));
        all.into_iter().map(|counts| Arrived::Changes(counts.into())).collect()
    }

    fn images(&self, kept: &[Kept], arrived: &Arrived) -> Images {
        let mut images = self.durable.clone();
        self.pending.iter().zip(kept).for_each(|(write, kept)| apply(&mut images, write, kept));
        match arrived {
            Arrived::Batches(count) => self.batches[..*count].iter().for_each(|batch| images.records.apply(batch)),
            Arrived::Changes(counts) => {
                let mut left: BTreeMap<&str, usize> =
                    self.pending_of_objects().into_keys().zip(counts.iter().copied()).collect();
                for change in &self.changes {
                    let left = left.entry(&*change.object).or_default();
                    if *left > 0 {
                        *left -= 1;
                        images.records.apply(&change.puts);
                    }
                }
            }
        }
        images
    }

    /// The choices of arrived data: the part of each pending write, and that of the sorted state's changes.
    fn choices(&self, is_write: bool, effort: Effort, random: &mut Random) -> Vec<(Vec<Kept>, Arrived)> {
        let sets = self.sets(is_write, effort, random);
        let records = self.records(effort, random);
        let all = sets.iter().flat_map(|set| records.iter().map(move |arrived| (set.clone(), arrived.clone())));
        let mut all: Vec<(Vec<Kept>, Arrived)> = all.collect();
        // The first choices, with all writes or none, always stay.
        let always = (2 * records.len()).min(effort.states_max);
        while all.len() > effort.states_max {
            let out = always + random.below((all.len() - always) as u64) as usize;
            all.swap_remove(out);
        }
        all
    }

    fn sets(&self, is_write: bool, effort: Effort, random: &mut Random) -> Vec<Vec<Kept>> {
        let count = self.pending.len();
        let mut sets = vec![vec![Kept::Whole; count], vec![Kept::Nothing; count]];
        if count == 0 {
            return sets;
        }
        for one in singles(count, effort.singles_max, random) {
            for (others, this) in [(Kept::Whole, Kept::Nothing), (Kept::Nothing, Kept::Whole)] {
                sets.push(with(count, &others, one, this));
            }
        }
        if is_write {
            let last = count - 1;
            for torn in tears(self.pending[last].sectors(), effort.tears, random) {
                sets.push(with(count, &Kept::Whole, last, Kept::Sectors(torn.clone())));
                sets.push(with(count, &Kept::Nothing, last, Kept::Sectors(torn)));
            }
        }
        if (3..=ALL_SETS_MAX).contains(&count) {
            let kept = |set: u32, n: usize| if set >> n & 1 == 1 { Kept::Whole } else { Kept::Nothing };
            sets.extend((0..1u32 << count).map(|set| (0..count).map(|n| kept(set, n)).collect()));
        }
        if count > 1 {
            sets.extend((0..effort.sets).map(|_| self.random_set(random)));
        }
        sets
    }

    fn random_set(&self, random: &mut Random) -> Vec<Kept> {
        let share = 1 + random.below(3);
        let mut kept = |write: &Pending| match (random.below(4) < share, random.one_in(6)) {
            (_, true) => Kept::Sectors((0..write.sectors()).map(|_| random.below(4) < share).collect()),
            (true, _) => Kept::Whole,
            (false, _) => Kept::Nothing,
        };
        self.pending.iter().map(&mut kept).collect()
    }
}

impl Pending {
    fn sectors(&self) -> usize {
        self.pages.len() * PAGE_SECTORS
    }
}

/// A choice with `this` for one write, and `others` for all others.
fn with(count: usize, others: &Kept, one: usize, this: Kept) -> Vec<Kept> {
    let mut kept = vec![others.clone(); count];
    kept[one] = this;
    kept
}

/// Indices of the writes that are explored one by one: the last, and seeded others if there are too many.
fn singles(count: usize, max: usize, random: &mut Random) -> Vec<usize> {
    if count <= max {
        return (0..count).collect();
    }
    let mut chosen: Vec<usize> = (1..max).map(|_| random.below(count as u64) as usize).collect();
    chosen.push(count - 1);
    chosen
}

/// The parts that may be stored of a write that the crash tore.
fn tears(sectors: usize, sets: usize, random: &mut Random) -> Vec<Arc<[bool]>> {
    let boundaries: Vec<usize> = if sectors <= ALL_TEARS_MAX {
        (1..sectors).collect()
    } else {
        let seeded = || random.below(sectors as u64 - 1) as usize + 1;
        let middle = sectors / 2;
        let mut some = vec![1, 2, PAGE_SECTORS, middle, sectors - PAGE_SECTORS, sectors - 1];
        some.extend(std::iter::repeat_with(seeded).take(4));
        some
    };
    let mut torn: Vec<Arc<[bool]>> =
        boundaries.iter().map(|boundary| (0..sectors).map(|sector| sector < *boundary).collect()).collect();
    torn.extend((0..sets).map(|_| (0..sectors).map(|_| random.one_in(2)).collect()));
    torn
}

fn apply(images: &mut Images, write: &Pending, kept: &Kept) {
    let device = images.device_mut(write.part);
    for (at, (page, number)) in write.pages.iter().zip(write.first..).enumerate() {
        match kept {
            Kept::Nothing => {}
            Kept::Whole => device.set_page(number, page.clone()),
            Kept::Sectors(kept) => {
                let kept = &kept[at * PAGE_SECTORS..(at + 1) * PAGE_SECTORS];
                let torn = torn_page(device.page(number), page.as_ref(), kept);
                device.set_page(number, torn);
            }
        }
    }
}

fn torn_page(old: Option<&Arc<Page>>, new: Option<&Arc<Page>>, kept: &[bool]) -> Option<Arc<Page>> {
    let content = |page: Option<&Arc<Page>>| page.map_or([0; PAGE_BYTES], |page| *page.bytes());
    let (mut bytes, new) = (content(old), content(new));
    for sector in (0..PAGE_SECTORS).filter(|sector| kept[*sector]) {
        let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
        bytes[range.clone()].copy_from_slice(&new[range]);
    }
    Page::new(&bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::image::DeviceImage;
    use crate::point::Doing;

    fn write(part: Part, first: u64, bytes: &[u8]) -> Effect {
        Effect::Write {
            part,
            first,
            pages: bytes.iter().map(|byte| Page::new(&[*byte; PAGE_BYTES])).collect(),
            is_punch: false,
        }
    }

    /// Data page 0, the first and the last sector of table page 0, and the number of records, of each state of the
    /// last prefix.
    fn left(effects: Vec<Effect>) -> BTreeSet<(u8, [u8; 2], usize)> {
        let mut base = Images::default();
        [Part::Data, Part::Table].into_iter().for_each(|part| *base.device_mut(part) = DeviceImage::new(1 << 20));
        let step = |effect| Recorded { effect, doing: Doing::Change, allowed: Allowed::default() };
        let recorded: Vec<Recorded> = effects.into_iter().map(step).collect();
        let mut found = BTreeSet::new();
        let _ = for_each_state(&base, &recorded, Effort::WHOLE, 1, None, &mut |crash| {
            let byte = |part, at| {
                let mut byte = [0];
                crash.images.device(part).read(&mut byte, at);
                byte[0]
            };
            let table = [byte(Part::Table, 0), byte(Part::Table, PAGE_BYTES as u64 - 1)];
            if crash.id.prefix == recorded.len() {
                found.insert((byte(Part::Data, 0), table, crash.images.records.records().len()));
            }
            ControlFlow::Continue(())
        });
        found
    }

    #[test]
    fn of_unflushed_writes_any_may_be_there_and_the_last_one_torn() {
        let found = left(vec![write(Part::Data, 0, &[1]), write(Part::Table, 0, &[2])]);
        let table = [[0, 0], [2, 0], [0, 2], [2, 2]];
        let all: BTreeSet<_> = [0, 1].into_iter().flat_map(|data| table.map(|table| (data, table, 0))).collect();
        // Only the last sector depends on the seed.
        assert!(found.is_subset(&all) && found.len() >= 6, "{found:?}");
    }

    #[test]
    fn what_was_flushed_is_there_and_what_another_device_holds_may_not_be() {
        let found = left(vec![write(Part::Data, 0, &[1]), write(Part::Table, 0, &[2]), Effect::Flush(Part::Data)]);
        assert_eq!(found, BTreeSet::from([(1, [0, 0], 0), (1, [2, 2], 0)]));
    }

    #[test]
    fn records_are_at_a_batch_boundary_since_their_flush() {
        let batch = |key| Effect::Batch(Arc::new(vec![(vec![key], Some(vec![1])), (vec![key, 1], Some(vec![1]))]));
        let found = left(vec![batch(1), Effect::FlushRecords, batch(2), batch(3)]);
        assert_eq!(found.iter().map(|(_, _, records)| *records).collect::<Vec<_>>(), [2, 4, 6]);
    }

    #[test]
    fn of_unawaited_changes_of_objects_any_number_of_each_may_be_there() {
        let change = |object: &str, number, key: u8| Effect::Keys {
            object: object.into(),
            number,
            puts: Arc::new(vec![(vec![key], Some(vec![1])), (vec![key, 1], Some(vec![1]))]),
        };
        let durable = Effect::KeysDurable("a".into(), 1);
        let found = left(vec![change("a", 1, 1), durable, change("a", 2, 2), change("b", 3, 3)]);
        assert_eq!(found.iter().map(|(_, _, records)| *records).collect::<Vec<_>>(), [2, 4, 6]);
        let found = left(vec![change("a", 1, 1), change("b", 2, 2), Effect::KeysDurable("b".into(), 2)]);
        assert_eq!(found.iter().map(|(_, _, records)| *records).collect::<Vec<_>>(), [2, 4]);
    }
}
