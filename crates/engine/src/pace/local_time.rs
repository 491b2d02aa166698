//! The local clock, in the machine's time zone.

use oncefs_dedup::WeekMinute;

/// The current minute of the week.
pub fn week_minute() -> WeekMinute {
    // SAFETY: `time` accepts null; `tm` is plain data, which `localtime_r` fills unless the year is out of range.
    let now = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut local: libc::tm = std::mem::zeroed();
        libc::localtime_r(&now, &mut local);
        local
    };
    of(&now)
}

/// The C library's week begins on Sunday.
fn of(time: &libc::tm) -> WeekMinute {
    WeekMinute::new((time.tm_wday + 6) as u32 % 7, time.tm_hour as u32, time.tm_min as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_week_begins_on_monday() {
        // SAFETY: plain data.
        let mut time: libc::tm = unsafe { std::mem::zeroed() };
        (time.tm_hour, time.tm_min) = (23, 59);
        for (wday, day) in [(0, 6), (1, 0), (6, 5)] {
            time.tm_wday = wday;
            assert_eq!(of(&time), WeekMinute::new(day, 23, 59));
        }
    }
}
