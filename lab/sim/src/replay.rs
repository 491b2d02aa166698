//! Plays a trace through designs, with phases of quiet in which background work is done.

use std::str::FromStr;
use std::time::Duration;

use crate::designs::Design;
use crate::oracle::Oracle;
use crate::trace::{Event, Source, TraceError};

/// When it is quiet enough for background work. It always is at the end of the trace, except with `Never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// At no time.
    Never,
    /// Each time so much of the trace's time has passed.
    Every(Duration),
    /// After so many requests.
    Requests(u64),
}

const UNITS: [(&str, u64); 4] = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];

/// `never`, a time such as `90s`, `30m`, `6h` or `1d`, or a number of requests such as `5000r`.
impl FromStr for Idle {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "never" {
            return Ok(Self::Never);
        }
        let explain =
            || format!("'{text}' is not an idle interval: write never, 30m, 6h, 1d, or requests such as 5000r");
        let unit_at = text.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(explain)?;
        let (digits, unit) = text.split_at(unit_at);
        let number = digits.parse::<u64>().ok().filter(|number| *number > 0).ok_or_else(explain)?;
        if unit == "r" {
            return Ok(Self::Requests(number));
        }
        let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(explain)?;
        let seconds = number.checked_mul(*seconds).ok_or_else(explain)?;
        Ok(Self::Every(Duration::from_secs(seconds)))
    }
}

/// Tells when the next phase of quiet is due.
struct Clock {
    idle: Idle,
    requests: u64,
    /// Number of the period that the trace is in; `None` before the first request.
    period: Option<u128>,
}

impl Clock {
    /// Whether it was quiet just before a request of this time.
    fn was_quiet_before(&mut self, time: Duration) -> bool {
        self.requests += 1;
        match self.idle {
            Idle::Never => false,
            Idle::Requests(requests) => self.requests > 1 && (self.requests - 1).is_multiple_of(requests),
            Idle::Every(every) => {
                let period = time.as_nanos() / every.as_nanos();
                self.period.replace(period).is_some_and(|before| before != period)
            }
        }
    }
}

/// Requests of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// To write.
    pub writes: u64,
    /// To read.
    pub reads: u64,
}

/// Plays all of `source` through every design, and through the oracle if there is one.
pub fn replay(
    source: &mut impl Source,
    designs: &mut [&mut dyn Design],
    mut oracle: Option<&mut Oracle>,
    idle: Idle,
) -> Result<Requests, TraceError> {
    let mut clock = Clock { idle, requests: 0, period: None };
    let mut requests = Requests::default();
    while let Some(event) = source.next()? {
        if clock.was_quiet_before(event.time()) {
            designs.iter_mut().for_each(|design| design.idle());
        }
        match event {
            Event::Write(write) => {
                requests.writes += 1;
                designs.iter_mut().for_each(|design| design.write(&write));
                oracle.iter_mut().for_each(|oracle| oracle.write(&write));
            }
            Event::Read(read) => {
                requests.reads += 1;
                designs.iter_mut().for_each(|design| design.read(&read));
            }
        }
    }
    if idle != Idle::Never {
        designs.iter_mut().for_each(|design| design.idle());
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::Outcome;
    use crate::trace::{Content, Place, Recording, Write};
    use crate::volume::Volume;

    /// Notes the times of writes, and 0 for quiet.
    #[derive(Default)]
    struct Noted(Vec<u64>, Volume);

    impl Design for Noted {
        fn write(&mut self, write: &Write) {
            self.0.push(write.time.as_secs());
        }
        fn idle(&mut self) {
            self.0.push(0);
        }
        fn outcome(&self) -> Outcome {
            Outcome::default()
        }
        fn volume(&self) -> &Volume {
            &self.1
        }
        fn check(&self) {}
    }

    fn noted(idle: &str) -> Vec<u64> {
        let mut recording = Recording::default();
        for time in [50, 70, 110, 130, 250] {
            let time = Duration::from_secs(time);
            recording.push(&Event::Write(Write { time, place: Place::default(), contents: &[Content::ZERO] }));
        }
        let mut noted = Noted::default();
        let replayed = replay(&mut recording.replay(), &mut [&mut noted], None, idle.parse().unwrap());
        assert_eq!(replayed, Ok(Requests { writes: 5, reads: 0 }));
        noted.0
    }

    #[test]
    fn it_is_quiet_when_asked_and_at_the_end() {
        assert_eq!(noted("never"), [50, 70, 110, 130, 250]);
        assert_eq!(noted("1m"), [50, 0, 70, 110, 0, 130, 0, 250, 0]);
        assert_eq!(noted("2r"), [50, 70, 0, 110, 130, 0, 250, 0]);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "1", "0d", "d", "-1d", "1w", "99999999999999999999d", "9999999999999999999d"] {
            assert!(text.parse::<Idle>().is_err(), "{text}");
        }
    }
}
