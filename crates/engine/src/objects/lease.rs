//! The lease of a head, as a state machine without a clock: the caller says what time it is, as the time since any one
//! moment, by a clock that goes on while the machine sleeps.
//!
//! A head renews its lease by a guarded change of its record. It may answer until some time before the end of the
//! lease, counted from the moment when the last renewal that succeeded was sent. Another machine that wants to take
//! over watches the record, and takes over when the record stood still for the length of the lease, counted from the
//! moment when the record was first seen as it is. The renewal landed before that, and was sent before it landed. So
//! the old head has stopped before the new one begins, if the two clocks run about equally fast.

use std::time::Duration;

/// Renewals for each length of the lease.
const RENEWALS: u32 = 5;
/// The part of a lease that is not used: for clocks that differ, and for a request between its check and its answer.
const MARGIN: u32 = 5;

/// Why a lease is over for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Another head began a later epoch, or the cluster refuses this client.
    TakenOver,
    /// The process did not run for longer than the lease, so another head may have been there meanwhile.
    Paused,
    /// The pool was deleted, so nobody can be the head any more.
    Gone,
}

/// The lease of this process.
#[derive(Debug)]
pub struct Lease {
    length: Duration,
    /// When the last renewal that succeeded was sent.
    renewed: Duration,
    /// When the last renewal was sent, whatever became of it.
    sent: Duration,
    /// When the state was looked at last.
    looked: Duration,
    end: Option<End>,
}

impl Lease {
    /// A lease of this length, taken by a change that was sent at `sent`.
    pub fn new(length: Duration, sent: Duration) -> Self {
        Self { length, renewed: sent, sent, looked: sent, end: None }
    }

    /// Looks at the time. The caller does so more often than the lease is long; a longer gap means that the process was
    /// stopped, and ends the lease.
    pub fn look(&mut self, now: Duration) -> Option<End> {
        if now.saturating_sub(self.looked) > self.length {
            self.end.get_or_insert(End::Paused);
        }
        self.looked = now;
        self.end
    }

    /// Whether the next renewal is due.
    pub fn is_due(&self, now: Duration) -> bool {
        self.end.is_none() && now.saturating_sub(self.sent) >= self.length / RENEWALS
    }

    /// A renewal is sent.
    pub fn send(&mut self, now: Duration) {
        self.sent = now;
    }

    /// The last renewal that was sent succeeded. It counts from then, however long the answer took.
    pub fn renewed(&mut self) {
        self.renewed = self.sent;
    }

    /// The last renewal was refused for good.
    pub fn refused(&mut self, end: End) {
        self.end.get_or_insert(end);
    }

    /// When the last renewal that succeeded was sent.
    pub fn renewed_at(&self) -> Duration {
        self.renewed
    }

    /// Until when this process may answer. None: never again.
    pub fn answers_until(&self) -> Option<Duration> {
        self.end.is_none().then(|| self.renewed + self.length - self.length / MARGIN)
    }
}

/// The result of a look at a head's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The first look.
    First,
    /// It changed since the last look.
    Changed,
    /// It is as before.
    Still,
    /// It stood still for the length of the lease: the lease is over.
    Over,
}

/// The lease of a head as another machine sees it.
#[derive(Debug)]
pub struct Watch<T> {
    seen: Option<(T, Duration)>,
    /// The length of the lease.
    length: Duration,
}

impl<T> Default for Watch<T> {
    fn default() -> Self {
        Self { seen: None, length: Duration::ZERO }
    }
}

impl<T: PartialEq> Watch<T> {
    /// Takes in what was found by a look that began at `began` and ended at `ended`, of a lease of `length`. After a
    /// slow look the watch starts again: the head may have had no answer to its renewals meanwhile, like this process.
    pub fn look(&mut self, found: T, length: Duration, began: Duration, ended: Duration) -> Seen {
        self.length = length;
        let seen = match &self.seen {
            Some((seen, _)) if *seen == found && is_slow(length, began, ended) => Seen::Still,
            Some((seen, since)) if *seen == found => {
                return if began.saturating_sub(*since) >= length { Seen::Over } else { Seen::Still };
            }
            Some(_) => Seen::Changed,
            None => Seen::First,
        };
        self.seen = Some((found, ended));
        seen
    }

    /// Takes in a request to the same cluster other than a look. One that took long starts the watch again.
    pub fn asked(&mut self, began: Duration, ended: Duration) {
        let length = self.length;
        if let Some((_, since)) = self.seen.as_mut().filter(|_| is_slow(length, began, ended)) {
            *since = ended;
        }
    }
}

/// Whether a request took so long that a head could miss a renewal in that time.
fn is_slow(length: Duration, began: Duration, ended: Duration) -> bool {
    ended.saturating_sub(began) > length / RENEWALS
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(5);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(100_000 + millis)
    }

    fn may_answer(lease: &Lease, now: Duration) -> bool {
        lease.answers_until().is_some_and(|until| now < until)
    }

    #[test]
    fn a_head_stops_before_its_lease_ends_and_goes_on_when_it_is_renewed() {
        let mut lease = Lease::new(LENGTH, at(0));
        assert!(!lease.is_due(at(999)) && lease.is_due(at(1000)));
        assert!(may_answer(&lease, at(3999)) && !may_answer(&lease, at(4000)));
        lease.send(at(1000));
        assert!(!lease.is_due(at(1500)), "one is under way");
        // The cluster is silent for longer than the lease, and this process runs.
        for millis in (1000..9000).step_by(500) {
            assert_eq!(lease.look(at(millis)), None);
        }
        lease.renewed();
        assert!(!may_answer(&lease, at(9000)), "the renewal counts from when it was sent");
        lease.send(at(9000));
        lease.renewed();
        assert!(may_answer(&lease, at(9001)) && may_answer(&lease, at(12_999)));
    }

    #[test]
    fn a_pause_longer_than_the_lease_ends_it_although_a_renewal_succeeds_later() {
        let mut lease = Lease::new(LENGTH, at(0));
        assert_eq!(lease.look(at(5000)), None);
        assert_eq!(lease.look(at(10_001)), Some(End::Paused));
        lease.send(at(10_002));
        lease.renewed();
        assert_eq!((lease.look(at(10_003)), lease.answers_until()), (Some(End::Paused), None));
        assert!(!lease.is_due(at(20_000)));
    }

    #[test]
    fn a_refused_renewal_ends_the_lease() {
        let mut lease = Lease::new(LENGTH, at(0));
        lease.refused(End::TakenOver);
        assert_eq!((lease.look(at(1)), lease.answers_until()), (Some(End::TakenOver), None));
    }

    #[test]
    fn a_watch_waits_for_a_whole_lease_after_the_last_change_that_it_saw() {
        let mut watch = Watch::default();
        assert_eq!(watch.look(1, LENGTH, at(0), at(10)), Seen::First);
        assert_eq!(watch.look(1, LENGTH, at(5009), at(5011)), Seen::Still);
        assert_eq!(watch.look(2, LENGTH, at(6000), at(6010)), Seen::Changed, "it was renewed");
        assert_eq!(watch.look(2, LENGTH, at(11_000), at(11_001)), Seen::Still);
        assert_eq!(watch.look(2, LENGTH, at(11_010), at(11_011)), Seen::Over);
    }

    #[test]
    fn a_slow_answer_starts_the_watch_again() {
        let mut watch = Watch::default();
        assert_eq!(watch.look(1, LENGTH, at(0), at(10)), Seen::First);
        assert_eq!(watch.look(1, LENGTH, at(4000), at(9000)), Seen::Still, "the cluster stood still");
        assert_eq!(watch.look(1, LENGTH, at(13_999), at(14_000)), Seen::Still);
        watch.asked(at(14_000), at(14_900));
        watch.asked(at(14_900), at(16_000));
        assert_eq!(watch.look(1, LENGTH, at(20_999), at(21_000)), Seen::Still);
        assert_eq!(watch.look(1, LENGTH, at(21_000), at(21_001)), Seen::Over);
        assert_eq!(watch.look(1, LENGTH, at(30_000), at(31_001)), Seen::Still, "also the look that would end it");
    }

    /// For any delays, no old head may answer at the time when the watch says that its lease is over.
    #[test]
    fn whatever_a_renewal_takes_the_old_head_has_stopped_when_the_watch_ends() {
        for sent in (0..2000).step_by(100) {
            for takes in (0..6000).step_by(500) {
                let mut lease = Lease::new(LENGTH, at(0));
                lease.send(at(sent));
                lease.renewed();
                // The change lands at `sent + takes`; a look right after it is the first to see it.
                let landed = at(sent + takes);
                let mut watch = Watch::default();
                assert_eq!(watch.look(1, LENGTH, landed, landed), Seen::First);
                let mut times = (1..).map(|n| landed + Duration::from_millis(n));
                let over = times.find(|now| watch.look(1, LENGTH, *now, *now) == Seen::Over);
                assert!(!may_answer(&lease, over.expect("it ends")), "sent at {sent}, landed {takes} later");
            }
        }
    }
}
