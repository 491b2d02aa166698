//! The scheduler's lowest class, and how long a thread in it had to wait for its CPU.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Turn of a low thread on the CPU. The scheduler counts its time some 340 times in that class, so a long turn on a CPU
/// that others want too would be followed by a wait of seconds.
const TURN: Duration = Duration::from_micros(100);

/// Puts this thread into the lowest class: where others of its group want the CPU, they go first. Its turns become
/// short, and its requests to devices stay like any other's: by default they would become the lowest too, which some
/// queues hold back for ten seconds.
///
/// # Errors
/// The kernel refuses.
pub(super) fn lower() -> io::Result<()> {
    /// `struct sched_attr`, first version.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    const WHO_PROCESS: libc::c_int = 1;
    /// Class "best effort", level 4: what a thread of normal priority has.
    const BEST_EFFORT: libc::c_int = 2 << 13 | 4;
    // SAFETY: takes three numbers. 0 is the calling thread.
    told(unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, BEST_EFFORT) })?;
    let mut attributes = Attributes { size: size_of::<Attributes>() as u32, ..Attributes::default() };
    // SAFETY: writes as many bytes as are said, all numbers, during the call.
    told(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, attributes.size, 0) })?;
    attributes.runtime_ns = TURN.as_nanos() as u64;
    // SAFETY: reads the structure, whose size it has, during the call. Before Linux 6.12 the runtime has no meaning here.
    told(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) })?;
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: reads the parameters, during the call. It leaves the turn as it is.
    told(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) }.into())
}

fn told(result: libc::c_long) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What a thread waited for its CPU, looked at when it costs little: after a long time, or after many rounds.
pub(super) struct Delays {
    /// `/proc/thread-self/schedstat`: time on the CPU, time in wait of one, how often it ran.
    file: File,
    delay: Duration,
    /// When the last round ended, and the last look was taken.
    round_at: Instant,
    look_at: Instant,
    rounds: u32,
    debt: Debt,
}

impl Delays {
    /// A round that took less hides no wait worth knowing.
    const ROUND_LONG: Duration = Duration::from_micros(200);
    const ROUNDS_MAX: u32 = 64;

    /// Those of the thread that calls this.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub(super) fn new(now: Instant) -> io::Result<Self> {
        let file = File::open("/proc/thread-self/schedstat")?;
        let delay = read(&file)?;
        Ok(Self { file, delay, round_at: now, look_at: now, rounds: 0, debt: Debt::default() })
    }

    /// Ends a round of work and waiting. Returns whether the thread has had to wait for its CPU too long; for how long,
    /// since the last look.
    pub(super) fn end_round(&mut self, now: Instant) -> Option<Duration> {
        let took = now.saturating_duration_since(std::mem::replace(&mut self.round_at, now));
        self.rounds += 1;
        if took < Self::ROUND_LONG && self.rounds < Self::ROUNDS_MAX {
            return None;
        }
        // If the kernel tells no longer, nothing is known: as if the CPU were wanted.
        let delay = read(&self.file).unwrap_or(Duration::MAX);
        let waited = delay.saturating_sub(std::mem::replace(&mut self.delay, delay));
        let within = now.saturating_duration_since(std::mem::replace(&mut self.look_at, now));
        self.debt.add(waited, std::mem::take(&mut self.rounds), within).then_some(waited)
    }
}

/// What was waited beyond what may be.
#[derive(Default)]
struct Debt(Duration);

impl Debt {
    /// About a turn of the scheduler: one wait may be that long.
    const MAX: Duration = Duration::from_millis(3);
    /// The program that asks may still be on its way out.
    const FREE_OF_ROUND: Duration = Duration::from_micros(20);
    /// Of all time that part may be waited: answering in another class costs more.
    const SHARE: u32 = 10;
    /// Rest pays no more than that: who asks seldom is not to wait long each time.
    const WITHIN_MAX: Duration = Duration::from_millis(30);

    /// Returns whether it is too much. Then it begins anew.
    fn add(&mut self, waited: Duration, rounds: u32, within: Duration) -> bool {
        let paid = Self::FREE_OF_ROUND * rounds + within.min(Self::WITHIN_MAX) / Self::SHARE;
        self.0 = self.0.saturating_add(waited).saturating_sub(paid);
        let is_too_much = self.0 > Self::MAX;
        if is_too_much {
            self.0 = Duration::ZERO;
        }
        is_too_much
    }
}

fn read(file: &File) -> io::Result<Duration> {
    let mut bytes = [0; 64];
    let len = file.read_at(&mut bytes, 0)?;
    let unknown = || io::Error::other("the kernel does not tell how long threads wait for a CPU");
    let text = std::str::from_utf8(&bytes[..len]).map_err(|_| unknown())?;
    parse(text).ok_or_else(unknown)
}

/// The time in wait of a CPU. A kernel that does not count says that the thread never ran.
fn parse(text: &str) -> Option<Duration> {
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    let (_on_cpu_ns, waited_ns, times) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
    (times > 0).then(|| Duration::from_nanos(waited_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_line_is_read_and_no_other() {
        assert_eq!(parse("595163729 13908831 210\n"), Some(Duration::from_nanos(13_908_831)));
        for wrong in ["", "1 2", "1 x 3", "0 0 0\n"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn short_waits_are_free_and_long_ones_add_up() {
        let (us, ms) = (Duration::from_micros, Duration::from_millis);
        let mut debt = Debt::default();
        assert!((0..1000).all(|_| !debt.add(us(1200), 64, us(6000))), "19 us for each of 64 rounds");
        assert!(!debt.add(ms(3), 1, ms(4)), "a turn of somebody else");
        assert!(debt.add(ms(3), 1, ms(4)), "and another one");
        assert!(!debt.add(ms(3), 1, ms(4)), "it begins anew");
        assert!(!debt.add(ms(0), 1, ms(40)) && !debt.add(ms(3), 1, ms(4)), "time pays");
        assert!(debt.add(ms(7), 1, ms(60_000)), "rest pays little");
    }

    #[test]
    fn a_thread_of_the_lowest_class_notices_that_others_want_its_cpu() {
        let cpu = crate::cpus::current().unwrap();
        let busy = std::sync::atomic::AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                crate::cpus::run_on(&[cpu]);
                while busy.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            scope.spawn(|| {
                crate::cpus::run_on(&[cpu]);
                lower().unwrap();
                let mut delays = Delays::new(Instant::now()).unwrap();
                let until = Instant::now() + Duration::from_secs(120);
                let mut round = || {
                    std::thread::sleep(Duration::from_millis(1));
                    delays.end_round(Instant::now()).is_some()
                };
                let mut is_noticed = round();
                while !is_noticed && Instant::now() < until {
                    is_noticed = round();
                }
                // Before the assertion: the other thread ends in either case.
                busy.store(false, std::sync::atomic::Ordering::Relaxed);
                assert!(is_noticed, "nobody wanted the CPU for two minutes, though a thread was busy on it");
            });
        });
    }
}
