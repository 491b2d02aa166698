//! Monitor and ranker over a trace: how files were used, and which ranks that gives them in the end.
//!
//! Owns usages and queues as a mount keeps them, in memory. The decisions are those of `oncefs-dedup`. A trace knows
//! no handles, so a file has one read position.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use oncefs_dedup::{AtTail, Moment, QueuePlace, Rank, RankRule, ReadPosition, Usage, look_at};

use crate::trace::{Event, Read, Write};

/// The ranker has a turn each hour of the trace.
const TURN_SECONDS: u64 = 3_600;

/// The files of a trace with their usages.
#[derive(Default)]
pub(super) struct Queues {
    rule: RankRule,
    files: HashMap<u64, Known>,
    places: BTreeSet<QueuePlace>,
    /// Seconds of the ranker's next turn. None: nothing happened yet.
    next_turn: Option<u64>,
}

#[derive(Default)]
struct Known {
    usage: Usage,
    position: ReadPosition,
    /// The block after the last one written.
    end: u64,
}

impl Queues {
    /// No file yet.
    pub fn new(rule: RankRule) -> Self {
        Self { rule, ..Self::default() }
    }

    /// The ranker works up to the request's time; then it is taken into account.
    pub fn note(&mut self, event: &Event) {
        self.run_to(event.time());
        let now = moment(event.time());
        match event {
            Event::Write(write) => self.note_write(write, now),
            Event::Read(read) => self.note_read(read, now),
        }
    }

    fn note_write(&mut self, write: &Write, now: Moment) {
        let known = self.files.entry(write.place.file).or_default();
        let (is_new, is_rewrite) = (known.end == 0, write.place.lbn < known.end);
        let was_ranked = known.usage.rank() != Rank::New;
        known.end = known.end.max(write.place.plus(write.contents.len()).lbn);
        known.usage.written(now, is_rewrite);
        if is_new || was_ranked {
            self.places.extend(QueuePlace::of(&known.usage, write.place.file));
        }
    }

    fn note_read(&mut self, read: &Read, now: Moment) {
        let Some(known) = self.files.get_mut(&read.place.file) else { return };
        let was_cold = known.usage.rank() == Rank::Cold;
        let blocks = u32::try_from(read.blocks).unwrap_or(u32::MAX);
        known.usage.read(now, known.position.read(read.place.lbn, blocks));
        if was_cold {
            self.places.extend(QueuePlace::of(&known.usage, read.place.file));
        }
    }

    /// The ranker's turns up to this time.
    pub fn run_to(&mut self, time: Duration) {
        let next_turn = self.next_turn.get_or_insert(time.as_secs());
        while *next_turn <= time.as_secs() {
            let now = moment(Duration::from_secs(*next_turn));
            *next_turn += TURN_SECONDS;
            for queue in [Rank::Sequential, Rank::Random, Rank::New] {
                turn(queue, &mut self.places, &mut self.files, &self.rule, now);
            }
        }
    }

    /// A file's rank. A file that was never written is new.
    pub fn rank(&self, file: u64) -> Rank {
        self.files.get(&file).map_or(Rank::New, |known| known.usage.rank())
    }
}

/// Looks at the tail of one queue until what stands there has to wait.
fn turn(queue: Rank, places: &mut BTreeSet<QueuePlace>, files: &mut HashMap<u64, Known>, rule: &RankRule, now: Moment) {
    let begin = QueuePlace { rank: queue, touched: Moment(0), file: 0 };
    while let Some(place) = places.range(begin..).next().copied().filter(|place| place.rank == queue) {
        let known = files.get_mut(&place.file);
        match look_at(&place, known.as_deref().map(|known| &known.usage), rule, now) {
            AtTail::Wait { .. } => return,
            AtTail::Drop => (),
            AtTail::Move(right) => _ = places.insert(right),
            AtTail::Rank(rank) => {
                let usage = &mut known.expect("a rank is given to a file that there is").usage;
                usage.ranked(rank);
                places.extend(QueuePlace::of(usage, place.file));
            }
        }
        places.remove(&place);
    }
}

fn moment(time: Duration) -> Moment {
    Moment(u32::try_from(time.as_secs()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Content, Place};

    const DAY: u64 = 86_400;

    fn queues() -> Queues {
        Queues::new(RankRule::default())
    }

    fn write(queues: &mut Queues, day: u64, file: u64) {
        let (time, contents) = (Duration::from_secs(day * DAY), [Content::numbered(file); 200]);
        queues.note(&Event::Write(Write { time, place: Place { file, lbn: 0 }, contents: &contents }));
    }

    fn read(queues: &mut Queues, day: u64, file: u64, requests: impl IntoIterator<Item = (u64, u64)>) {
        let time = Duration::from_secs(day * DAY);
        for (lbn, blocks) in requests {
            queues.note(&Event::Read(Read { time, place: Place { file, lbn }, blocks }));
        }
    }

    fn ranks(queues: &mut Queues, day: u64) -> Vec<u8> {
        queues.run_to(Duration::from_secs(day * DAY));
        (1..=3).map(|file| queues.rank(file).number()).collect()
    }

    #[test]
    fn files_are_ranked_after_two_days_by_their_reads_and_are_cold_after_two_weeks() {
        let mut queues = queues();
        (1..=3).for_each(|file| write(&mut queues, 10, file));
        read(&mut queues, 11, 1, [(0, 200)]);
        read(&mut queues, 11, 2, (0..100).map(|n| (n * 7 % 200, 1)));
        read(&mut queues, 11, 3, [(0, 99)]);
        assert_eq!(ranks(&mut queues, 11), [0, 0, 0]);
        assert_eq!(ranks(&mut queues, 12), [1, 2, 0]);
        assert_eq!(ranks(&mut queues, 24), [1, 2, 0]);
        assert_eq!(ranks(&mut queues, 27), [3, 3, 3]);
        assert!(queues.places.is_empty(), "cold files are in no queue");
    }

    #[test]
    fn a_cold_file_that_is_read_is_judged_anew_and_a_written_one_too() {
        let mut queues = queues();
        (1..=3).for_each(|file| write(&mut queues, 10, file));
        assert_eq!(ranks(&mut queues, 30), [3, 3, 3]);
        read(&mut queues, 30, 1, [(0, 200)]);
        write(&mut queues, 30, 2);
        assert_eq!(ranks(&mut queues, 31), [0, 0, 3]);
        assert_eq!(ranks(&mut queues, 33), [1, 0, 3]);
        assert_eq!(ranks(&mut queues, 50), [3, 3, 3]);
    }

    #[test]
    fn a_file_that_is_rewritten_daily_is_never_ranked() {
        let mut queues = queues();
        for day in 10..40 {
            write(&mut queues, day, 1);
            read(&mut queues, day, 1, [(0, 200)]);
            assert_eq!(ranks(&mut queues, day)[0], 0, "day {day}");
        }
        assert_eq!(queues.places.len(), 1);
    }
}
