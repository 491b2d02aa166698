//! The memory level whose overflow is measured: random hints come in, and leave in one of three orders.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use super::{DiskLevel, GROUP_BITS, Hint};
use crate::content::Random;
use crate::failure::Result;

/// In what order hints leave memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Single hints, as a list of least recently used ones gives them: tags at random, handed on by the thousand.
    Scattered,
    /// The group least recently added to (the paper's G-LRU), with the neighbours that are written with it.
    LeastRecent,
    /// Groups in the order of their tags, round and round, with the neighbours that are written with them.
    Sweep,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::Scattered => "single hints, by 1,000",
            Order::LeastRecent => "least recent group",
            Order::Sweep => "groups in order",
        })
    }
}

/// Hints handed on at once where single ones leave.
const SCATTERED_BATCH: usize = 1000;

/// A full memory level.
///
/// Invariant: `hints` is the sum of the groups' lengths, and every group that holds hints has an entry in `order`
/// with its time in `touched`.
pub struct MemoryLevel {
    groups: Vec<Vec<Hint>>,
    hints: usize,
    hints_max: usize,
    /// When a hint was last added to each group, in hints added so far.
    touched: Vec<u64>,
    /// Groups in the order of their touches; entries older than `touched` says are void.
    order: VecDeque<(usize, u64)>,
    clock: u64,
    /// Where the sweep goes on.
    swept: usize,
}

impl MemoryLevel {
    /// A memory level holding `hints_max` random hints.
    pub fn filled(hints_max: usize, random: &mut Random) -> MemoryLevel {
        let groups = 1 << GROUP_BITS;
        let mut level = MemoryLevel {
            groups: vec![Vec::new(); groups],
            hints: 0,
            hints_max,
            touched: vec![0; groups],
            order: VecDeque::with_capacity(2 * hints_max),
            clock: 0,
            swept: 0,
        };
        level.fill(random);
        level
    }

    /// Lets some hints go to the disk level, takes as many new ones, and returns how many went.
    pub fn overflow(&mut self, order: Order, random: &mut Random, level: &mut dyn DiskLevel) -> Result<usize> {
        let leaving = match order {
            // With random tags, what leaves a list of single hints is as random as what comes.
            Order::Scattered => (0..SCATTERED_BATCH).map(|_| Hint::draw(random)).collect(),
            Order::LeastRecent => {
                let group = self.least_recent();
                self.take(written_together(level, group))
            }
            Order::Sweep => {
                let groups = written_together(level, self.swept % self.groups.len());
                self.swept = groups.end;
                self.take(groups)
            }
        };
        level.demote(&leaving)?;
        self.fill(random);
        Ok(leaving.len())
    }

    fn fill(&mut self, random: &mut Random) {
        while self.hints < self.hints_max {
            let hint = Hint::draw(random);
            self.clock += 1;
            self.groups[hint.group()].push(hint);
            self.touched[hint.group()] = self.clock;
            self.order.push_back((hint.group(), self.clock));
            self.hints += 1;
            self.forget_void();
        }
    }

    /// Drops void entries at the front, so that the list stays as long as memory is deep.
    fn forget_void(&mut self) {
        while self.order.front().is_some_and(|(group, time)| self.touched[*group] != *time) {
            self.order.pop_front();
        }
    }

    fn least_recent(&mut self) -> usize {
        self.forget_void();
        self.order.front().map_or(0, |(group, _)| *group)
    }

    /// Empties the groups; their hints in the order of their tags.
    fn take(&mut self, groups: Range<usize>) -> Vec<Hint> {
        self.touched[groups.clone()].fill(0);
        let mut taken: Vec<Hint> = self.groups[groups].iter_mut().flat_map(std::mem::take).collect();
        taken.sort_unstable_by_key(|hint| hint.tag);
        self.hints -= taken.len();
        taken
    }
}

/// The groups that are written together with this one.
fn written_together(level: &dyn DiskLevel, group: usize) -> Range<usize> {
    let groups = 1 << GROUP_BITS.saturating_sub(level.bits_of_a_write(group));
    let first = group / groups * groups;
    first..first + groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint_wear::Traffic;

    struct Taker(u32, Vec<Vec<Hint>>);

    impl DiskLevel for Taker {
        fn demote(&mut self, hints: &[Hint]) -> Result<()> {
            self.1.push(hints.to_vec());
            Ok(())
        }

        fn bits_of_a_write(&self, _group: usize) -> u32 {
            self.0
        }

        fn settle(&mut self) -> Result<()> {
            Ok(())
        }

        fn traffic(&self) -> Traffic {
            Traffic::default()
        }

        fn bytes(&self) -> Result<u64> {
            Ok(0)
        }

        fn is_model(&self) -> bool {
            true
        }

        fn look_up(&self, _hint: Hint) -> Result<u64> {
            Ok(0)
        }
    }

    fn overflow(order: Order, bits: u32, times: usize) -> Vec<Vec<Hint>> {
        let mut random = Random::new(5);
        let mut memory = MemoryLevel::filled(100_000, &mut random);
        let mut level = Taker(bits, Vec::new());
        for _ in 0..times {
            memory.overflow(order, &mut random, &mut level).unwrap();
            assert_eq!(memory.hints, memory.groups.iter().map(Vec::len).sum::<usize>());
            assert_eq!(memory.hints, 100_000);
        }
        level.1
    }

    #[test]
    fn the_least_recent_group_leaves_as_a_whole() {
        for hints in overflow(Order::LeastRecent, GROUP_BITS, 100) {
            assert!(!hints.is_empty());
            assert!(hints.iter().all(|hint| hint.group() == hints[0].group()));
        }
    }

    #[test]
    fn a_sweep_takes_every_group_once_a_round_with_its_neighbours() {
        let batches = overflow(Order::Sweep, 10, 1 << 10);
        for (number, hints) in batches.iter().enumerate() {
            assert!(hints.iter().all(|hint| hint.group() >> 4 == number), "batch {number}");
        }
    }
}
