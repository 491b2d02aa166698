//! Helpers for text output: times, paragraphs.

use std::time::{SystemTime, UNIX_EPOCH};

/// A time in at most two units.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// The present moment, in seconds since 1970.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A moment as in RFC 3339, in UTC; `seconds` are those since 1970.
pub fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March have their leap day at the end. 146,097 days are 400 years; 719,468 days are from March of
    // the year 0 to 1970.
    let since = days + 719_468;
    let (era, day) = (since / 146_097, since % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * march + 2) / 5 + 1, if march < 10 { march + 3 } else { march - 9 });
    let year = era * 400 + year + u64::from(month < 3);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Columns of the narrowest terminal.
const COLUMNS: usize = 80;
const INDENT: &str = "    ";

/// Text in indented lines that fit a terminal. It ends with a newline.
pub fn paragraph(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), INDENT.to_owned());
    for word in text.split_whitespace() {
        if line.len() > INDENT.len() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines += &line;
            lines.push('\n');
            INDENT.clone_into(&mut line);
        }
        if line.len() > INDENT.len() {
            line.push(' ');
        }
        line += word;
    }
    lines + &line + "\n"
}

/// The name that was probably meant by a mistyped one: it differs in at most a third of its letters.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let counted = names.into_iter().map(|name| (edits(word, name), name));
    let (edits, name) = counted.min_by_key(|(edits, _)| *edits)?;
    (edits * 3 <= name.chars().count()).then_some(name)
}

/// The fewest letters to insert, remove or replace that make one word of the other.
fn edits(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (done, letter) in one.chars().enumerate() {
        let mut corner = row[0];
        row[0] = done + 1;
        for (at, of_other) in other.chars().enumerate() {
            let replaced = corner + usize::from(letter != of_other);
            corner = row[at + 1];
            row[at + 1] = replaced.min(corner + 1).min(row[at] + 1);
        }
    }
    row[row.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_one_that_differs_in_few_letters() {
        let names = ["worker", "inline", "ro", "hint_memory"];
        for (word, meant) in [
            ("wroker", Some("worker")),
            ("inlin", Some("inline")),
            ("hintmemory", Some("hint_memory")),
            ("50", None),
            ("r", None),
            ("compress", None),
        ] {
            assert_eq!(nearest(word, names), meant, "{word}");
        }
        assert_eq!([edits("", "abc"), edits("abc", ""), edits("abc", "abc"), edits("kitten", "sitting")], [3, 3, 0, 3]);
    }

    #[test]
    fn a_paragraph_has_lines_of_80_columns_and_keeps_its_words() {
        let text = "word ".repeat(40) + &"x".repeat(90);
        let paragraph = paragraph(&text);
        assert_eq!(paragraph.lines().map(str::len).collect::<Vec<_>>(), [78, 78, 53, 94]);
        assert_eq!(paragraph.split_whitespace().count(), 41);
    }

    #[test]
    fn moments_are_told_in_utc() {
        let moments = [0, 951_782_399, 951_782_400, 951_868_800, 1_735_689_599, 4_107_542_400].map(utc);
        let expected = [
            "1970-01-01T00:00:00Z",
            "2000-02-28T23:59:59Z",
            "2000-02-29T00:00:00Z",
            "2000-03-01T00:00:00Z",
            "2024-12-31T23:59:59Z",
            "2100-03-01T00:00:00Z",
        ];
        assert_eq!(moments, expected);
    }

    #[test]
    fn durations_have_two_units_at_most() {
        assert_eq!(
            [5, 59, 60, 3599, 3600, 90_000].map(duration),
            ["5 s", "59 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "25 h 0 min"]
        );
    }
}
