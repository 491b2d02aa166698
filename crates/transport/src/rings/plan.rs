//! How many threads and entries there are, and which queues a thread serves. Arithmetic, but for the number of CPUs.

use std::io;

use crate::cpus;

/// Entries that a queue has at best, each with a thread of its own: measured best (docs/decisions/0039).
const ENTRIES_OF_QUEUE: usize = 4;
/// Threads that serve rings, at most: with more queues than that a thread serves several.
const THREADS_MAX: usize = 64;
/// Bytes of an entry besides its payload: a page for its headers, one where the message is put together.
pub const ENTRY_OVERHEAD_BYTES: usize = 2 * 4096;

/// The queues of each thread. In each of them the thread has one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// By thread: numbers of queues, which are numbers of CPUs.
    pub threads: Vec<Vec<u16>>,
    /// Bytes of a payload.
    pub payload_bytes: usize,
}

impl Plan {
    /// For queues of these CPUs, within that much memory. None: not even one entry for each queue fits.
    pub fn of(cpus: &[usize], payload_bytes: usize, bytes_max: u64) -> Option<Self> {
        let cpus = cpus.iter().map(|cpu| u16::try_from(*cpu).ok()).collect::<Option<Vec<u16>>>()?;
        let fits = |entries: &usize| bytes_of(cpus.len() * entries, payload_bytes) <= bytes_max;
        let entries = (1..=ENTRIES_OF_QUEUE).rev().find(fits)?;
        let queues_of_thread = (cpus.len() * entries).div_ceil(THREADS_MAX).max(1);
        let groups = cpus.chunks(queues_of_thread).map(<[u16]>::to_vec);
        let threads = groups.flat_map(|group| vec![group; entries]).collect();
        Some(Self { threads, payload_bytes })
    }

    /// For the CPUs that this machine may have.
    ///
    /// # Errors
    /// The kernel does not list them.
    pub fn of_machine(payload_bytes: usize, bytes_max: u64) -> io::Result<Option<Self>> {
        Ok(Self::of(&cpus::possible()?, payload_bytes, bytes_max))
    }

    /// Whether each thread has another one of the scheduler's lowest class beside it, which answers where nobody else
    /// wants the CPU. Of no use on one CPU. Where a thread serves several CPUs, it would have to wait for the other ones.
    pub fn has_low(&self) -> bool {
        self.threads.iter().all(|queues| queues.len() == 1)
            && self.threads.iter().any(|queues| *queues != self.threads[0])
    }

    /// Entries of all threads.
    pub fn entries(&self) -> usize {
        self.threads.iter().map(Vec::len).sum()
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        bytes_of(self.entries(), self.payload_bytes)
    }
}

fn bytes_of(entries: usize, payload_bytes: usize) -> u64 {
    entries as u64 * (payload_bytes + ENTRY_OVERHEAD_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn cpus(count: usize) -> Vec<usize> {
        (0..count).collect()
    }

    #[test]
    fn few_cpus_have_four_threads_each() {
        let plan = Plan::of(&cpus(2), MIB, 16 << 20).unwrap();
        assert_eq!(plan.threads, [[0]; 4].into_iter().chain([[1]; 4]).map(Vec::from).collect::<Vec<_>>());
        assert_eq!(plan.bytes(), 8 * (MIB as u64 + 8192));
    }

    #[test]
    fn low_threads_are_there_where_several_cpus_have_threads_of_their_own() {
        let has_low = |count| Plan::of(&cpus(count), MIB, 1 << 40).unwrap().has_low();
        assert_eq!([1, 2, 16, 17].map(has_low), [false, true, true, false]);
    }

    #[test]
    fn every_queue_has_entries_and_no_plan_is_larger_than_allowed() {
        for count in [1, 2, 3, 16, 17, 64, 65, 100, 128, 1000] {
            for bytes_max in [1 << 20, 40 << 20, 1 << 30, 1 << 40] {
                let Some(plan) = Plan::of(&cpus(count), MIB, bytes_max) else {
                    assert!(bytes_of(count, MIB) > bytes_max, "{count} CPUs in {bytes_max} bytes");
                    continue;
                };
                assert!(plan.bytes() <= bytes_max, "{count} CPUs: {} of {bytes_max} bytes", plan.bytes());
                assert!(plan.threads.len() <= THREADS_MAX + ENTRIES_OF_QUEUE, "{count} CPUs: {}", plan.threads.len());
                let entries = |cpu: u16| plan.threads.iter().flatten().filter(|queue| **queue == cpu).count();
                assert!((0..count as u16).all(|cpu| (1..=4).contains(&entries(cpu))));
            }
        }
    }
}
