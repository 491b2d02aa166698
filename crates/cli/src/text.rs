//! Small pieces of the text that people read: times.

/// A time in two units at most.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        assert_eq!(
            [5, 59, 60, 3599, 3600, 90_000].map(duration),
            ["5 s", "59 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "25 h 0 min"]
        );
    }
}
