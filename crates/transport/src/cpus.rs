//! On which CPUs threads run.

use std::fs;
use std::io;

/// CPUs that the machine may ever have: the kernel has a queue of requests for each. Sorted.
pub(crate) fn possible() -> io::Result<Vec<usize>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible")?;
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

/// Lets this thread run on these CPUs only. False: on none of them it may (they are off line, or not for this process);
/// then it runs where it did.
pub(crate) fn run_on(cpus: &[usize]) -> bool {
    // SAFETY: a set of CPUs is plain old data, for which all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus.iter().filter(|cpu| **cpu < libc::CPU_SETSIZE as usize) {
        // SAFETY: the number is within the set, as the filter says.
        unsafe { libc::CPU_SET(*cpu, &mut set) };
    }
    // SAFETY: reads the set, during the call. 0 is the calling thread.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0 }
}

/// Where this thread runs now.
pub(crate) fn current() -> Option<usize> {
    // SAFETY: takes nothing.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
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
        let all = possible().unwrap();
        std::thread::spawn(move || {
            for cpu in all.iter().filter(|cpu| run_on(&[**cpu])) {
                assert_eq!(current(), Some(*cpu));
            }
            assert!(run_on(&all));
            assert!(!run_on(&[]), "nowhere");
        })
        .join()
        .unwrap();
    }
}
