//! The meanings of figures in words: `oncefs stats --explain`.

use super::figure::Figure;
use super::metrics;
use super::table::{FIGURES, label_meaning, named};
use crate::failure::{Failure, Outcome, exit};
use crate::text::nearest;

/// The meaning of a line of the summary, or of the figures with this path, name or group. Without a name, of all.
pub fn text(name: Option<&str>) -> Outcome<String> {
    let Some(name) = name else {
        let lines = LINES.iter().map(line);
        return Ok(lines.chain(FIGURES.iter().map(paragraph)).collect::<Vec<_>>().join("\n"));
    };
    if let Some(found) = LINES.iter().find(|line| line.name == name) {
        let figures = found.figures.iter().flat_map(|path| named(path)).map(paragraph);
        return Ok([line(found)].into_iter().chain(figures).collect::<Vec<_>>().join("\n"));
    }
    let figures = named(name);
    if figures.is_empty() {
        let names = LINES.iter().map(|line| line.name).chain(FIGURES.iter().map(|figure| figure.name));
        let meant = nearest(name, names);
        let hint = meant.map_or_else(String::new, |meant| format!("did you mean {meant}? "));
        let text = format!("there is no figure '{name}': {hint}oncefs stats --explain shows all");
        return Err(Failure::new(exit::USAGE, text));
    }
    Ok(figures.into_iter().map(paragraph).collect::<Vec<_>>().join("\n"))
}

/// A line of the summary.
struct Line {
    name: &'static str,
    meaning: &'static str,
    /// The paths of the figures that it shows.
    figures: &'static [&'static str],
}

/// The ten lines.
const LINES: [Line; 10] = [
    Line { name: "volume", meaning: "The directory of the volume, and where it is mounted.", figures: &[] },
    Line {
        name: "held",
        meaning: "What all files hold: what they would take if nothing were shared.",
        figures: &["space.held_bytes"],
    },
    Line {
        name: "stored",
        meaning: "What the data area holds for them, and its share of the data area.",
        figures: &["space.stored_bytes", "space.data_bytes"],
    },
    Line {
        name: "saved",
        meaning: "Held less stored, and its share of what is held.",
        figures: &["space.saved_bytes"],
    },
    Line {
        name: "ratio",
        meaning: "Held divided by stored: 2.00 means that the files take half of what they hold. A dash: nothing is stored.",
        figures: &["space.held_bytes", "space.stored_bytes"],
    },
    Line {
        name: "free",
        meaning: "How much new content can still be written. Duplicates of stored content take nothing of it.",
        figures: &["space.available_bytes"],
    },
    Line {
        name: "metadata",
        meaning: "What the volume takes on its host beside the data, also while it is empty.",
        figures: &["space.metadata_bytes"],
    },
    Line {
        name: "host",
        meaning: "Free space and size of the file system that has the volume's directory.",
        figures: &["host.available_bytes", "host.size_bytes"],
    },
    Line {
        name: "to look at",
        meaning: "What the worker has yet to compare with all other content, and what it does now. It is stored, and safe.",
        figures: &["worker.left_bytes", "worker.left_files", "worker.is_full_pass", "worker.doing"],
    },
    Line {
        name: "health",
        meaning: "healthy, or what needs attention, and the command that helps: damage, an error that made the volume \
            read-only, less than 5 % free in the volume or on its host, or a worker that is behind (more than 1 GiB and \
            a tenth of what is held is to look at). oncefs status says the same of all volumes, and exits with 1.",
        figures: &["space.bad_bytes"],
    },
];

fn line(line: &Line) -> String {
    let figures = match line.figures {
        [] => String::new(),
        paths => format!("  figures: {}\n", paths.join(", ")),
    };
    format!("{}\n  {}\n{figures}", line.name, line.meaning)
}

fn paragraph(figure: &Figure) -> String {
    let label = figure.label().map_or_else(String::new, |label| format!("  by {label}: {}\n", label_meaning(label)));
    let (path, kind, unit) = (figure.path(), figure.kind.words(), figure.unit.words());
    let end = if figure.meaning.ends_with('.') { "" } else { "." };
    let metric = metrics::name_of(figure).map_or_else(String::new, |name| format!("  metric {name}\n"));
    format!("{path}\n  {}{end}\n  {kind}; {unit}\n{label}{metric}", figure.meaning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::stats::summary;
    use crate::figures::health::Limits;
    use crate::figures::of_mount::Snapshot;

    #[test]
    fn a_figure_is_explained_with_its_kind_and_its_unit() {
        let text = text(Some("space.stored_bytes")).unwrap();
        assert_eq!(
            text,
            "space.stored_bytes\n  What the data area holds for them: each content once.\n  gauge; bytes\n  metric oncefs_stored_bytes\n"
        );
    }

    #[test]
    fn each_of_the_ten_lines_is_explained_with_its_figures() {
        let shown = summary::ten_lines(&Snapshot::default());
        assert_eq!(LINES.map(|line| line.name)[..], shown.iter().map(|line| line.0).collect::<Vec<_>>());
        assert_eq!(Limits::default().free_min, 5.0, "the line of health says so");
        for line in &LINES {
            let text = text(Some(line.name)).unwrap();
            assert!(text.starts_with(&format!("{}\n  {}\n", line.name, line.meaning)), "{text}");
            for path in line.figures {
                assert_eq!(named(path).len(), 1, "{path}");
                assert!(text.contains(&format!("{path}\n  {}", named(path)[0].meaning)), "{text}");
            }
        }
    }

    #[test]
    fn all_are_explained_and_an_unknown_one_is_refused() {
        let all = text(None).unwrap();
        for figure in FIGURES.iter() {
            assert!(all.contains(&format!("{}\n", figure.path())), "{}", figure.path());
        }
        assert!(!all.contains("docs/"), "an installed page is not where it is in the sources");
        assert!(text(Some("held_byts")).unwrap_err().message.contains("did you mean held_bytes?"));
        let refused = text(Some("nothing")).unwrap_err();
        assert!(refused.code == exit::USAGE && refused.message.contains("'nothing'"), "{refused:?}");
    }
}
