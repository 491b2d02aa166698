//! Small pieces of the text that people read: times, paragraphs.

/// A time in two units at most.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A terminal has so many columns at least.
const COLUMNS: usize = 80;
const INDENT: &str = "    ";

/// Text in lines that a terminal shows whole, indented. It ends with a line end.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paragraph_has_lines_of_80_columns_and_keeps_its_words() {
        let text = "word ".repeat(40) + &"x".repeat(90);
        let paragraph = paragraph(&text);
        assert_eq!(paragraph.lines().map(str::len).collect::<Vec<_>>(), [78, 78, 53, 94]);
        assert_eq!(paragraph.split_whitespace().count(), 41);
    }

    #[test]
    fn durations_have_two_units_at_most() {
        assert_eq!(
            [5, 59, 60, 3599, 3600, 90_000].map(duration),
            ["5 s", "59 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "25 h 0 min"]
        );
    }
}
