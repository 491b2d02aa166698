//! Asks the kernel about the machine and its processes: CPU time, memory, caches, identity.

use std::fs;

use crate::failure::{During, Failure, Result};

/// Fails unless this process may mount file systems and FUSE exists.
pub fn require_root_and_fuse() -> Result<()> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Err(Failure::new("mounting file systems and loop devices needs root: run the benchmark as root"));
    }
    if !std::path::Path::new("/dev/fuse").exists() {
        return Err(Failure::new("there is no /dev/fuse: load the kernel's fuse module (modprobe fuse) and try again"));
    }
    Ok(())
}

/// Empties page, dentry and inode caches of what is clean, as everything unmounted is.
pub fn drop_caches() -> Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "3").during(|| "cannot drop the kernel's caches")
}

fn tick_seconds() -> f64 {
    // SAFETY: sysconf has no preconditions; _SC_CLK_TCK is always defined on Linux.
    1.0 / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
}

/// CPU seconds that all processors have worked since boot (user, nice, system, interrupts).
pub fn cpu_seconds_machine() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat").during(|| "cannot read /proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    parse_cpu_line(line)
        .map(|ticks| ticks as f64 * tick_seconds())
        .ok_or_else(|| Failure::new("/proc/stat has no cpu line"))
}

fn parse_cpu_line(line: &str) -> Option<u64> {
    let fields: Vec<u64> =
        line.strip_prefix("cpu ")?.split_whitespace().map_while(|field| field.parse().ok()).collect();
    match fields[..] {
        [user, nice, system, _idle, _iowait, irq, softirq, ..] => Some(user + nice + system + irq + softirq),
        _ => None,
    }
}

/// CPU seconds (user and system) that one process has used.
pub fn cpu_seconds_process(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).during(|| format!("cannot read {path}"))?;
    parse_process_stat(&text)
        .map(|ticks| ticks as f64 * tick_seconds())
        .ok_or_else(|| Failure::new(format!("cannot parse {path}")))
}

fn parse_process_stat(text: &str) -> Option<u64> {
    // The command's name is in brackets and may itself hold brackets and blanks; fields count from the last one.
    let after_name = &text[text.rfind(')')? + 1..];
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Forgets a process's peak memory, so that the next reading covers only what follows.
pub fn reset_peak_memory(pid: u32) -> Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
        .during(|| format!("cannot reset the peak memory of process {pid}"))
}

/// Peak resident bytes of a process since the last reset (VmHWM).
pub fn peak_memory_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).during(|| format!("cannot read {path}"))?;
    kib_field(&text, "VmHWM:").ok_or_else(|| Failure::new(format!("{path} has no VmHWM")))
}

/// Bytes in use on the file system that holds `path`, as df counts them.
pub fn used_bytes(path: &std::path::Path) -> Result<u64> {
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).during(|| "a path holds a NUL byte")?;
    // SAFETY: statvfs is plain old data, for which all zeros is a value.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `name` is NUL-terminated, `found` is writable, both outlive the call.
    if unsafe { libc::statvfs(name.as_ptr(), &mut found) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(Failure::new(format!("cannot read the free space of {}: {error}", path.display())));
    }
    Ok((found.f_blocks - found.f_bfree) * found.f_frsize)
}

/// Bytes of memory available without swapping.
pub fn memory_available_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").during(|| "cannot read /proc/meminfo")?;
    kib_field(&text, "MemAvailable:").ok_or_else(|| Failure::new("/proc/meminfo has no MemAvailable"))
}

fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// One line about kernel, processors and memory for the head of a report.
pub fn describe() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown");
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory_gib = kib_field(&meminfo, "MemTotal:").unwrap_or_default() as f64 / f64::from(1u32 << 30);
    let model = model.trim_start_matches([' ', '\t', ':']);
    format!("kernel {}, {cores} x {model}, {memory_gib:.0} GiB", kernel.trim())
}

/// How many tasks ran or waited for a processor on average in the last minute.
pub fn load_average() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().next().unwrap_or("unknown").to_owned()
}

/// One line about whether the machine was left alone while it measured.
pub fn load_line() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<&str> = load.split_whitespace().take(3).collect();
    format!("load averages of the last 1, 5 and 15 minutes at the end: {}", averages.join(", "))
}

/// The process whose program is `program` and that has `argument` among its arguments.
pub fn find_process(program: &std::path::Path, argument: &std::path::Path) -> Result<Option<u32>> {
    let entries = fs::read_dir("/proc").during(|| "cannot list /proc")?;
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // Processes may end while they are looked at; those are simply not the one.
        let same_program = fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program);
        let command_line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let wanted = argument.as_os_str().as_encoded_bytes();
        if same_program && command_line.split(|byte| *byte == 0).any(|word| word == wanted) {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}

/// Waits until a process has ended and let go of its files. One that nobody has reaped yet has.
pub fn wait_for_end(process: u32) -> Result<()> {
    while !has_ended(process) {
        crate::signal::check()?;
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(())
}

fn has_ended(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The state follows the name, which may have brackets.
    let is_over = status.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']));
    // Other threads may hold the files for longer.
    let threads = fs::read_dir(format!("/proc/{process}/task")).map_or(0, Iterator::count);
    is_over && threads <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_process_has_ended_before_it_is_reaped() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        assert!(!has_ended(child.id()));
        child.kill().unwrap();
        wait_for_end(child.id()).unwrap();
        child.wait().unwrap();
        assert!(has_ended(child.id()));
    }

    #[test]
    fn the_machine_s_cpu_time_leaves_out_idle_and_waiting() {
        assert_eq!(parse_cpu_line("cpu  1 2 4 1000 2000 8 16 0 0 0"), Some(31));
        assert_eq!(parse_cpu_line("intr 5"), None);
    }

    #[test]
    fn a_process_s_cpu_time_is_found_behind_a_name_with_blanks_and_brackets() {
        let text = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0";
        assert_eq!(parse_process_stat(text), Some(42));
    }

    #[test]
    fn peak_memory_is_given_in_bytes() {
        assert_eq!(kib_field("VmPeak:\t 9 kB\nVmHWM:\t  3 kB\n", "VmHWM:"), Some(3072));
    }
}
