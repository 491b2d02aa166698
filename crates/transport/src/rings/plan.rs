//! The numbers of threads and entries, and the queues that each thread serves. Pure arithmetic, except for reading the
//! CPUs.

use std::io;

use super::buffers::{ENTRY_OVERHEAD_BYTES, entry_bytes};
use crate::cpus;

/// Preferred entries of a queue, each with a thread of its own: the best number measured (docs/decisions/0039).
const ENTRIES_BEST: usize = 4;
/// With fewer, a request would wait for one that waits for a device.
const ENTRIES_MIN: usize = 2;
/// Most threads, unless `ENTRIES_MIN` for each CPU are more.
const THREADS_MAX: usize = 64;
/// Spare entries may take one part in this many of the memory that is left.
const SPARES_SHARE: usize = 8;
/// More than this many for each CPU gain nothing.
const SPARES_OF_QUEUE: usize = 32;

/// Threads, their queues and their buffers. The kernel has a queue for each CPU that the machine may have, and every
/// queue needs an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// By thread: the CPU whose queue it serves with one entry. That CPU is on line.
    pub threads: Vec<u16>,
    /// CPUs that are off line. One more thread serves their queues, with one entry in each.
    pub parked: Vec<u16>,
    /// Further entries for all threads together, which replace entries with late replies.
    pub spares: usize,
    /// Bytes of a payload.
    pub payload_bytes: usize,
}

impl Plan {
    /// A plan within `bytes_max` of memory. None: too few entries fit.
    pub fn of(online: &[usize], possible: &[usize], payload_bytes: usize, bytes_max: u64) -> Option<Self> {
        let number = |cpu: &usize| u16::try_from(*cpu).ok();
        let threads_max = THREADS_MAX.max(ENTRIES_MIN * online.len());
        let plan = |entries: usize| {
            let cpus = online.iter().flat_map(|cpu| std::iter::repeat_n(cpu, entries));
            let off_line = possible.iter().filter(|cpu| !online.contains(cpu));
            let (threads, parked) =
                (cpus.map(number).collect::<Option<_>>()?, off_line.map(number).collect::<Option<_>>()?);
            Some(Self { threads, parked, spares: 0, payload_bytes })
        };
        let plans = (ENTRIES_MIN..=ENTRIES_BEST).rev().filter(|entries| entries * online.len() <= threads_max);
        let mut plan = plans.filter_map(plan).find(|plan| plan.bytes() <= bytes_max)?;
        let fit = usize::try_from((bytes_max - plan.bytes()) / plan.entry_bytes()).unwrap_or(usize::MAX);
        // One for each queue lets as many requests wait as a block device has under way at least.
        plan.spares = (fit / SPARES_SHARE).max(online.len()).min(fit).min(SPARES_OF_QUEUE * online.len());
        Some(plan)
    }

    /// A plan for the CPUs of this machine.
    ///
    /// # Errors
    /// The kernel does not list them.
    pub fn of_machine(payload_bytes: usize, bytes_max: u64) -> io::Result<Option<Self>> {
        Ok(Self::of(&cpus::online()?, &cpus::possible()?, payload_bytes, bytes_max))
    }

    /// Spares that one queue may take: its part, or what there is.
    pub(crate) fn spares_of_queue(&self) -> usize {
        self.part_of_spares().max(self.spares.min(1))
    }

    /// Requests that can wait for others at a time, even if all of them come on one CPU
    /// ([`may_be_late`](crate::may_be_late)): all entries of a queue but one, and its spares.
    pub fn late_max(&self) -> usize {
        self.entries_of_queue().saturating_sub(1) + self.part_of_spares()
    }

    fn part_of_spares(&self) -> usize {
        self.spares * self.entries_of_queue() / self.threads.len().max(1)
    }

    fn entries_of_queue(&self) -> usize {
        self.threads.first().map_or(0, |queue| self.threads.iter().filter(|of| *of == queue).count())
    }

    fn entry_bytes(&self) -> u64 {
        entry_bytes(self.payload_bytes) as u64
    }

    /// Most bytes that all buffers take. A CPU that is off line counts only its headers, because no request comes from
    /// it. If it comes on line later, its payload comes on top.
    pub fn bytes(&self) -> u64 {
        (self.threads.len() + self.spares) as u64 * self.entry_bytes()
            + (self.parked.len() * ENTRY_OVERHEAD_BYTES) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn plan(online: usize, possible: usize, bytes_max: u64) -> Option<Plan> {
        let cpus = |count: usize| (0..count).collect::<Vec<_>>();
        Plan::of(&cpus(online), &cpus(possible), MIB, bytes_max)
    }

    #[test]
    fn few_cpus_have_four_threads_each() {
        let plan = plan(2, 2, 16 << 20).unwrap();
        assert_eq!(plan.threads, [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!((plan.parked.len(), plan.spares), (0, 2));
        assert_eq!(plan.bytes(), 10 * (MIB as u64 + 8192));
        assert_eq!((plan.late_max(), plan.spares_of_queue()), (4, 1));
    }

    #[test]
    fn cpus_that_are_not_there_cost_no_threads_and_next_to_no_memory() {
        let plan = plan(2, 128, 16 << 20).unwrap();
        assert_eq!((plan.threads.len(), plan.parked.len()), (8, 126));
        assert_eq!(plan.parked, (2..128).collect::<Vec<_>>());
        assert!(plan.bytes() < 12 << 20, "{}", plan.bytes());
    }

    #[test]
    fn where_a_cpu_would_have_one_thread_there_are_no_rings() {
        assert_eq!(plan(2, 2, 3 << 20), None);
        assert_eq!(plan(2, 2, 5 << 20).unwrap().threads, [0, 0, 1, 1]);
    }

    #[test]
    fn every_queue_has_an_entry_and_no_plan_is_larger_than_allowed() {
        for (online, possible) in [(1, 1), (2, 2), (3, 8), (16, 16), (17, 17), (64, 100), (128, 128), (1000, 1024)] {
            for bytes_max in [1 << 20, 40 << 20, 1 << 30, 1 << 40] {
                let Some(plan) = plan(online, possible, bytes_max) else {
                    assert!((online * 2 * MIB) as u64 + (3 << 20) > bytes_max, "{online} CPUs in {bytes_max} bytes");
                    continue;
                };
                assert!(plan.bytes() <= bytes_max, "{online} CPUs: {} of {bytes_max} bytes", plan.bytes());
                assert!(plan.threads.len() <= THREADS_MAX.max(2 * online), "{online} CPUs: {}", plan.threads.len());
                let entries = |cpu: u16| plan.threads.iter().filter(|queue| **queue == cpu).count();
                assert!((0..online as u16).all(|cpu| (2..=4).contains(&entries(cpu))));
                assert_eq!(plan.parked, (online as u16..possible as u16).collect::<Vec<_>>());
                assert!(plan.spares <= SPARES_OF_QUEUE * online);
                assert!(plan.part_of_spares() * online <= plan.spares, "each queue gets its part");
            }
        }
    }
}
