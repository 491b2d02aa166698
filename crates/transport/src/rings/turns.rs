//! Which threads answer the requests of a queue: its normal ones, or those of the scheduler's lowest class.
//!
//! A program whose answer has come is woken on another CPU if one is idle, because the one with the answer is busy: with
//! the thread that answered. That costs more than many a request. A CPU where only threads of the class `SCHED_IDLE` run
//! counts as idle, so a thread of that class answers best, as long as nobody else wants its CPU. If somebody does, it
//! would wait long, so normal threads answer for a while. No thread can change its class back without privileges.
//! Therefore there are pairs of threads, one of each class, that hand over their entries.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::slot::Mailbox;

/// How the scheduler treats a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Like any other.
    Normal,
    /// After all others.
    Low,
}

/// Whose turn it is in one queue.
pub(crate) struct Turns {
    began: Instant,
    /// From when on low threads answer, in microseconds from `began`.
    low_from_us: AtomicU64,
    pause: Mutex<Pause>,
}

impl Turns {
    /// The low threads begin.
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, low_from_us: AtomicU64::new(0), pause: Mutex::default() }
    }

    pub(super) fn class(&self, now: Instant) -> Class {
        let is_low = self.us(now) >= self.low_from_us.load(Ordering::Relaxed);
        if is_low { Class::Low } else { Class::Normal }
    }

    /// A low thread had to wait for its CPU, for so long at last. That is no part of a good turn.
    pub(super) fn crowded(&self, now: Instant, waited: Duration) {
        let mut pause = self.pause.lock();
        let (now_us, from_us) = (self.us(now), self.low_from_us.load(Ordering::Relaxed));
        // Another thread of the queue may have said so.
        if let Some(turn_us) = now_us.checked_sub(from_us) {
            let length = pause.after_turn_of(Duration::from_micros(turn_us).saturating_sub(waited));
            self.low_from_us.store(now_us + length.as_micros() as u64, Ordering::Relaxed);
        }
    }

    fn us(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_micros() as u64
    }
}

/// How long low threads pause after they had to wait; the last one.
#[derive(Default)]
struct Pause {
    length: Duration,
}

impl Pause {
    const MIN: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(10);
    /// After a turn that many times as long as the pause before it, the next pause is short again.
    const TURN_LONG: u32 = 5;

    /// The pause after a turn of the low threads. After short turns each is four times as long as the one before.
    fn after_turn_of(&mut self, turn: Duration) -> Duration {
        let is_long = turn >= self.length * Self::TURN_LONG;
        self.length = if is_long { Self::MIN } else { (self.length * 4).min(Self::MAX) };
        self.length
    }
}

/// Two threads of one queue, one of each class.
pub(crate) struct Pair {
    turns: Arc<Turns>,
    /// Of the normal and of the low one, once they are there. The second stays empty where threads cannot be low.
    mailboxes: [OnceLock<Arc<Mailbox>>; 2],
}

impl Pair {
    pub(crate) fn new(turns: Arc<Turns>) -> Self {
        Self { turns, mailboxes: [OnceLock::new(), OnceLock::new()] }
    }
}

/// One thread's place in its pair.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) pair: Arc<Pair>,
    pub(crate) class: Class,
}

impl Seat {
    /// The thread is ready to be given entries here.
    pub(super) fn take(&self, mailbox: Arc<Mailbox>) {
        let taken = self.pair.mailboxes[self.class as usize].set(mailbox);
        assert!(taken.is_ok(), "two threads on the seat of one, {:?}", self.class);
    }

    /// Who is to answer instead of this thread, if anybody.
    pub(super) fn other(&self, now: Instant) -> Option<&Arc<Mailbox>> {
        let class = self.pair.turns.class(now);
        let mailbox = if class == self.class { None } else { self.pair.mailboxes[class as usize].get() };
        mailbox.filter(|mailbox| !mailbox.is_closed())
    }

    pub(super) fn crowded(&self, now: Instant, waited: Duration) {
        self.pair.turns.crowded(now, waited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn low_threads_begin_and_pause_when_they_had_to_wait() {
        let now = Instant::now();
        let turns = Turns::new(now);
        assert_eq!(turns.class(now), Class::Low);
        turns.crowded(now + MS, MS);
        assert_eq!(turns.class(now + 100 * MS), Class::Normal, "for 100 ms");
        assert_eq!(turns.class(now + 101 * MS), Class::Low);
    }

    #[test]
    fn who_is_told_twice_pauses_once() {
        let now = Instant::now();
        let turns = Turns::new(now);
        turns.crowded(now, MS);
        turns.crowded(now + MS, MS);
        assert_eq!(turns.class(now + 100 * MS), Class::Low);
    }

    #[test]
    fn time_in_wait_makes_no_turn_long() {
        let now = Instant::now();
        let turns = Turns::new(now);
        turns.crowded(now, Duration::ZERO);
        let later = now + Pause::MIN + 5000 * MS;
        turns.crowded(later, 4990 * MS);
        assert_eq!(turns.class(later + 2 * Pause::MIN), Class::Normal, "four times the first pause");
    }

    #[test]
    fn pauses_grow_to_ten_seconds_and_shrink_after_a_long_turn() {
        let mut pause = Pause::default();
        let lengths: Vec<_> = (0..6).map(|_| pause.after_turn_of(MS).as_millis()).collect();
        assert_eq!(lengths, [100, 400, 1600, 6400, 10_000, 10_000]);
        assert_eq!(pause.after_turn_of(Pause::MAX * Pause::TURN_LONG), Pause::MIN);
        assert_eq!(pause.after_turn_of(Pause::MIN * Pause::TURN_LONG), Pause::MIN, "again");
    }

    #[test]
    fn the_other_one_answers_if_it_is_there_and_its_turn() {
        let now = Instant::now();
        let pair = Arc::new(Pair::new(Arc::new(Turns::new(now))));
        let seat = |class| Seat { pair: pair.clone(), class };
        let (normal, low) = (seat(Class::Normal), seat(Class::Low));
        normal.take(Arc::new(Mailbox::new().unwrap()));
        assert!(normal.other(now).is_none() && low.other(now).is_none(), "nobody is low");
        let mailbox = Arc::new(Mailbox::new().unwrap());
        low.take(mailbox.clone());
        assert!(normal.other(now).is_some() && low.other(now).is_none());
        low.crowded(now, MS);
        assert!(normal.other(now).is_none() && low.other(now).is_some());
        mailbox.close();
        assert!(normal.other(now + Pause::MIN).is_none(), "its thread has ended");
    }
}
