//! The CPUs of the machine, and the ones that a thread runs on.

use std::fs;
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// CPUs that the machine may ever have: the kernel has a queue of requests for each. Sorted.
pub(crate) fn possible() -> io::Result<Vec<usize>> {
    listed("possible")
}

/// CPUs that are on line now. Sorted.
pub(crate) fn online() -> io::Result<Vec<usize>> {
    listed("online")
}

fn listed(name: &str) -> io::Result<Vec<usize>> {
    let text = fs::read_to_string(format!("/sys/devices/system/cpu/{name}"))?;
    parse(text.trim()).ok_or_else(|| io::Error::other(format!("the kernel lists its CPUs as {text:?}")))
}

/// A list such as `0-3,5`.
fn parse(list: &str) -> Option<Vec<usize>> {
    /// More than any kernel can have.
    const CPUS_MAX: usize = 1 << 16;
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if last >= CPUS_MAX || first > last {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// CPUs that this thread may run on: all of them, unless the process was started with an affinity.
pub(crate) fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Lets this thread run on these CPUs only. False: it may run on none of them, because they are off line or not allowed
/// for this process. Its CPUs then stay as they were.
pub(crate) fn run_on(cpus: &[usize]) -> bool {
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    sched_setaffinity(None, &set).is_ok()
}

/// The CPU that this thread runs on now.
pub(crate) fn current() -> usize {
    sched_getcpu()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse("0-1"), Some(vec![0, 1]));
        assert_eq!(parse("0,2-4,7"), Some(vec![0, 2, 3, 4, 7]));
        for wrong in ["", "a", "3-1", "0-99999999", "1,"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_thread_runs_where_it_is_told() {
        let all = online().unwrap();
        std::thread::spawn(move || {
            for cpu in all.iter().filter(|cpu| run_on(&[**cpu])) {
                assert_eq!((current(), allowed().unwrap()), (*cpu, vec![*cpu]));
            }
            assert!(run_on(&all));
            assert!(!run_on(&[]), "nowhere");
        })
        .join()
        .unwrap();
    }
}
