//! Sections of manual pages made of help texts: paragraphs and tables that fit any terminal.
//!
//! Help texts are laid out for one width. An indented line is a row of a table, a word and after two spaces its meaning,
//! or an example; a line that begins far to the right continues the row before it.

use clap_mangen::roff::{Roff, bold, roman};

/// A line that begins at this column or later continues the row before it.
const CONTINUATION: usize = 20;

/// Examples up to this length keep their line in the narrowest terminal, where a page has 7 columns of margin.
const EXAMPLE_MAX: usize = 72;

/// A piece of a section.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    /// Filled text.
    Paragraph(String),
    /// A word and its meaning.
    Row(String, String),
    /// A line that stays as it is.
    Example(String),
}

/// A section made of a help text.
pub fn section(title: &str, text: &str) -> Roff {
    let mut section = Roff::new();
    // Names of files and commands are copied from pages, so they are neither hyphenated nor stretched.
    section.control("SH", [title]).control("nh", []).control("ad", ["l"]);
    let mut follows_example = false;
    for piece in pieces(text) {
        let is_example = matches!(piece, Piece::Example(_));
        if is_example && !follows_example {
            section.control("PP", []);
        }
        follows_example = is_example;
        match piece {
            Piece::Paragraph(text) => section.control("PP", []).text([roman(text)]),
            Piece::Row(word, meaning) => section.control("TP", []).text([bold(word)]).text([roman(meaning)]),
            Piece::Example(line) => section.control("nf", []).text([roman(format!("    {line}"))]).control("fi", []),
        };
    }
    section
}

fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut begins = true;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() {
            begins = true;
        } else if line.starts_with([' ', '*']) {
            add_indented(&mut pieces, line);
            begins = true;
        } else if let (false, Some(Piece::Paragraph(text))) = (begins, pieces.last_mut()) {
            *text += &format!(" {trimmed}");
        } else {
            pieces.push(Piece::Paragraph(trimmed.to_owned()));
            begins = false;
        }
    }
    pieces
}

fn add_indented(pieces: &mut Vec<Piece>, line: &str) {
    let trimmed = line.trim();
    let indent = line.len() - line.trim_start().len();
    match pieces.last_mut() {
        Some(Piece::Row(_, meaning)) if indent >= CONTINUATION => *meaning += &format!(" {trimmed}"),
        Some(Piece::Example(example)) if indent >= CONTINUATION => {
            let word = std::mem::take(example);
            pieces.pop();
            pieces.push(Piece::Row(word, trimmed.to_owned()));
        }
        _ => pieces.push(row_or_example(trimmed)),
    }
}

fn row_or_example(trimmed: &str) -> Piece {
    // The columns of options are two spaces apart, as their meanings are: the meaning begins after the last such gap.
    match trimmed.rsplit_once("  ") {
        // A line of fstab.
        Some(_) if trimmed.starts_with('/') && trimmed.contains("  oncefs  ") => Piece::Example(trimmed.to_owned()),
        Some((word, meaning)) => Piece::Row(word.trim_end().to_owned(), meaning.trim_start().to_owned()),
        None if trimmed.chars().count() <= EXAMPLE_MAX => Piece::Example(trimmed.to_owned()),
        None => Piece::Paragraph(trimmed.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_paragraphs_and_examples_are_told_apart() {
        let text = "One\nparagraph.\n\nOptions:\n  memory=SIZE          for caches\n                       \
                    and hints\n  level=L  file=F      where\n* fixed=VALUE          a setting\n\nExamples:\n  oncefs list";
        let row = |word: &str, meaning: &str| Piece::Row(word.to_owned(), meaning.to_owned());
        let paragraph = |text: &str| Piece::Paragraph(text.to_owned());
        let expected = [
            paragraph("One paragraph."),
            paragraph("Options:"),
            row("memory=SIZE", "for caches and hints"),
            row("level=L  file=F", "where"),
            row("* fixed=VALUE", "a setting"),
            paragraph("Examples:"),
            Piece::Example("oncefs list".to_owned()),
        ];
        assert_eq!(pieces(text), expected);
    }

    #[test]
    fn a_line_of_fstab_is_an_example_and_a_file_with_its_meaning_a_row() {
        let line = "/srv/volume  /mnt  oncefs  defaults  0  0";
        assert_eq!(row_or_example(line), Piece::Example(line.to_owned()));
        assert_eq!(row_or_example("/etc/fstab  Volumes."), Piece::Row("/etc/fstab".to_owned(), "Volumes.".to_owned()));
    }

    #[test]
    fn an_example_is_explained_in_the_next_line() {
        let text = "  oncefs scrub /mnt --start\n                          in the background";
        assert_eq!(pieces(text), [Piece::Row("oncefs scrub /mnt --start".into(), "in the background".into())]);
    }
}
