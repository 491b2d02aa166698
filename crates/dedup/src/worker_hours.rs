//! The hours of the week at which the out-of-line worker may run.
//!
//! Owns the windows: their text, and when the next one opens. Leaves the clock and the time zone to the caller.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Most windows of one schedule: more than one for each half of every day.
const WINDOWS_MAX: usize = 16;
const HOUR_MINUTES: u32 = 60;
const DAY_MINUTES: u32 = 24 * HOUR_MINUTES;
const WEEK_MINUTES: u32 = 7 * DAY_MINUTES;
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
/// The text of a schedule without windows.
const ALWAYS: &str = "always";

/// A minute of the week by the local clock; 0 is Monday 00:00.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WeekMinute(u32);

impl WeekMinute {
    /// The minute of a day (0 is Monday) and a time. Wraps at the end of the week.
    pub fn new(day: u32, hour: u32, minute: u32) -> Self {
        Self((day * DAY_MINUTES + hour * HOUR_MINUTES + minute) % WEEK_MINUTES)
    }

    /// Minutes from another one until this one.
    fn since(self, other: Self) -> u32 {
        (self.0 + WEEK_MINUTES - other.0) % WEEK_MINUTES
    }
}

/// From one time to another on some days. A window that ends no later than it begins ends on the day after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    /// The first and the last day on which it begins; None: every day. Sat-Mon is three days.
    days: Option<(u32, u32)>,
    /// Minute of the day.
    from: u32,
    /// Minute of the day, exclusive. The day's end is 24:00.
    to: u32,
}

impl Window {
    fn minutes(&self) -> u32 {
        (self.to + DAY_MINUTES - self.from - 1) % DAY_MINUTES + 1
    }

    /// The minutes of the week at which it begins.
    fn begins(&self) -> impl Iterator<Item = WeekMinute> + use<> {
        let (first, last) = self.days.unwrap_or((0, 6));
        let (days, from) = ((last + 7 - first) % 7, self.from);
        (0..=days).map(move |day| WeekMinute::new(first + day, 0, from))
    }

    fn has(&self, at: WeekMinute) -> bool {
        self.begins().any(|begin| at.since(begin) < self.minutes())
    }
}

/// When the worker may run: always, or within windows.
///
/// As text `always`, or windows like `22:00-06:00,Sat-Sun 00:00-24:00`. Where a comma has another meaning, as in an
/// option of mount(8), write `+` between windows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    windows: Vec<Window>,
}

/// Text that is not a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidSchedule;

impl fmt::Display for InvalidSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a schedule is {}", Schedule::FORM)
    }
}

impl std::error::Error for InvalidSchedule {}

impl Schedule {
    /// The form of its text, for messages.
    pub const FORM: &str = "'always' or windows like '22:00-06:00,Sat-Sun 00:00-24:00'";

    /// Whether the worker may run in this minute.
    pub fn allows(&self, at: WeekMinute) -> bool {
        self.windows.is_empty() || self.windows.iter().any(|window| window.has(at))
    }

    /// How long the worker has to wait, from the beginning of this minute. None: it may run now.
    pub fn opens_in(&self, at: WeekMinute) -> Option<Duration> {
        if self.allows(at) {
            return None;
        }
        let begins = self.windows.iter().flat_map(Window::begins);
        let minutes = begins.map(|begin| begin.since(at)).min();
        minutes.map(|minutes| Duration::from_secs(u64::from(minutes) * 60))
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.days {
            Some((first, last)) if first == last => write!(f, "{} ", DAYS[first as usize])?,
            Some((first, last)) => write!(f, "{}-{} ", DAYS[first as usize], DAYS[last as usize])?,
            None => {}
        }
        let time = |minutes: u32| format!("{:02}:{:02}", minutes / HOUR_MINUTES, minutes % HOUR_MINUTES);
        write!(f, "{}-{}", time(self.from), time(self.to))
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.windows.is_empty() {
            return f.write_str(ALWAYS);
        }
        let windows: Vec<String> = self.windows.iter().map(Window::to_string).collect();
        f.write_str(&windows.join(","))
    }
}

impl FromStr for Schedule {
    type Err = InvalidSchedule;

    fn from_str(text: &str) -> Result<Self, InvalidSchedule> {
        if text.trim() == ALWAYS {
            return Ok(Self::default());
        }
        let windows: Option<Vec<Window>> = text.split([',', '+']).map(|text| window(text.trim())).collect();
        let windows = windows.filter(|windows| windows.len() <= WINDOWS_MAX).ok_or(InvalidSchedule)?;
        Ok(Self { windows })
    }
}

fn window(text: &str) -> Option<Window> {
    let (named, hours) = match text.rsplit_once(' ') {
        Some((named, hours)) => (Some(days(named.trim_end())?), hours),
        None => (None, text),
    };
    let (from, to) = hours.split_once('-')?;
    let (from, to) = (minute(from)?, minute(to)?);
    (from < DAY_MINUTES && from != to).then_some(Window { days: named, from, to })
}

fn days(text: &str) -> Option<(u32, u32)> {
    let day = |text: &str| DAYS.iter().position(|day| day.eq_ignore_ascii_case(text)).map(|day| day as u32);
    match text.split_once('-') {
        Some((first, last)) => Some((day(first)?, day(last)?)),
        None => Some((day(text)?, day(text)?)),
    }
}

/// A time of the day, up to 24:00.
fn minute(text: &str) -> Option<u32> {
    let (hour, minute) = text.split_once(':')?;
    let number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u32>().ok())?;
    let (hour, minute) = (number(hour)?, number(minute).filter(|minute| *minute < HOUR_MINUTES)?);
    (hour <= 24).then(|| hour * HOUR_MINUTES + minute).filter(|minutes| *minutes <= DAY_MINUTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(text: &str) -> Schedule {
        text.parse().unwrap_or_else(|error| panic!("'{text}': {error}"))
    }

    /// `Tue 22:30` as a minute.
    fn at(text: &str) -> WeekMinute {
        let (day, time) = text.split_once(' ').unwrap();
        WeekMinute::new(days(day).unwrap().0, 0, minute(time).unwrap())
    }

    #[test]
    fn without_windows_the_worker_may_always_run() {
        assert!((0..WEEK_MINUTES).all(|minute| schedule("always").allows(WeekMinute(minute))));
        assert_eq!(Schedule::default(), schedule("always"));
    }

    #[test]
    fn a_window_ends_before_its_last_minute_and_goes_over_midnight_and_the_week_s_end() {
        let nights = schedule("22:00-06:00,Sat-Sun 00:00-24:00");
        for (time, is_open) in [
            ("Mon 05:59", true),
            ("Mon 06:00", false),
            ("Tue 21:59", false),
            ("Tue 22:00", true),
            ("Wed 00:00", true),
            ("Fri 12:00", false),
            ("Sat 00:00", true),
            ("Sun 12:00", true),
            ("Sun 23:59", true),
        ] {
            assert_eq!(nights.allows(at(time)), is_open, "{time}");
        }
        let sunday_night = schedule("Sun 23:00-01:00");
        let open: Vec<u32> = (0..WEEK_MINUTES).filter(|minute| sunday_night.allows(WeekMinute(*minute))).collect();
        let (first, last) = (at("Sun 23:00").0, at("Mon 01:00").0);
        assert!(open.iter().copied().eq((0..last).chain(first..WEEK_MINUTES)), "{open:?}");
    }

    #[test]
    fn days_go_over_the_week_s_end_too() {
        let long = schedule("Sat-Mon 10:00-11:00");
        let open = |day: &str| long.allows(at(&format!("{day} 10:30")));
        assert_eq!(DAYS.map(open), [true, false, false, false, false, true, true]);
    }

    #[test]
    fn it_says_how_long_it_is_until_the_next_window_opens() {
        let hours =
            |text: &str, time: &str| schedule(text).opens_in(at(time)).map(|time| time.as_secs() as f64 / 3600.0);
        assert_eq!(hours("22:00-06:00", "Tue 19:00"), Some(3.0));
        assert_eq!(hours("22:00-06:00", "Tue 23:00"), None);
        assert_eq!(hours("Mon 10:00-11:00", "Mon 11:00"), Some(7.0 * 24.0 - 1.0));
        assert_eq!(hours("Sat 12:00-13:00,09:30-10:00", "Sat 11:00"), Some(1.0));
        assert_eq!(hours("always", "Mon 00:00"), None);
    }

    /// Whatever the windows, the worker may run at the announced time, and not before.
    #[test]
    fn what_opens_in_a_time_is_closed_until_then() {
        for text in ["22:00-06:00", "Sat-Sun 00:00-24:00", "Wed 23:59-00:01,Thu-Tue 03:00-02:59", "00:00-24:00"] {
            let schedule = schedule(text);
            for minute in 0..WEEK_MINUTES {
                let Some(time) = schedule.opens_in(WeekMinute(minute)) else { continue };
                let wait = (time.as_secs() / 60) as u32;
                let opens = WeekMinute::new(0, 0, minute + wait);
                assert!(wait > 0 && schedule.allows(opens), "{text} at {minute}");
                let last_closed = WeekMinute::new(0, 0, minute + wait - 1);
                assert!(!schedule.allows(last_closed), "{text} at {minute}");
            }
        }
    }

    #[test]
    fn its_text_is_read_back_and_a_plus_stands_for_a_comma() {
        for text in ["always", "22:00-06:00,Sat-Sun 00:00-24:00", "Mon 00:00-00:01", "Sun-Mon 23:59-24:00"] {
            assert_eq!(schedule(text).to_string(), text);
        }
        assert_eq!(schedule(" 22:00-6:00 + sat-SUN  0:00-24:00 ").to_string(), "22:00-06:00,Sat-Sun 00:00-24:00");
    }

    #[test]
    fn nonsense_is_refused_with_the_form() {
        let too_many = ["10:00-11:00"; WINDOWS_MAX + 1].join(",");
        for text in [
            "",
            "sometimes",
            "22-6",
            "22:00",
            "22:00-22:00",
            "24:00-06:00",
            "22:00-24:01",
            "22:60-23:00",
            "25:00-26:00",
            "-1:00-06:00",
            "+1:00-06:00",
            "Sat-Sun",
            "Sat-Day 10:00-11:00",
            "10:00-11:00,",
            "always,10:00-11:00",
            "4294967295:00-06:00",
            &too_many,
        ] {
            assert_eq!(text.parse::<Schedule>(), Err(InvalidSchedule), "'{text}'");
        }
        assert!(InvalidSchedule.to_string().contains("22:00-06:00"));
    }
}
