//! The meanings of figures in words: `oncefs stats --explain`.

use super::figure::Figure;
use super::metrics;
use super::table::{FIGURES, label_meaning, named};
use crate::failure::{Failure, Outcome, exit};
use crate::text::nearest;

/// The figures with this path, name or group. Without a name, all.
pub fn text(name: Option<&str>) -> Outcome<String> {
    let figures: Vec<&Figure> = name.map_or_else(|| FIGURES.iter().collect(), |name| named(full_name(name)));
    if figures.is_empty() {
        let name = name.unwrap_or_default();
        let meant = nearest(name, FIGURES.iter().map(|figure| figure.name));
        let hint = meant.map_or_else(String::new, |meant| format!("did you mean {meant}? "));
        let text = format!("there is no figure '{name}': {hint}oncefs stats --explain shows all");
        return Err(Failure::new(exit::USAGE, text));
    }
    Ok(figures.iter().map(|figure| paragraph(figure)).collect::<Vec<_>>().join("\n"))
}

/// The figure behind a name of the ten lines.
fn full_name(name: &str) -> &str {
    match name {
        "held" => "held_bytes",
        "stored" => "stored_bytes",
        "saved" => "saved_bytes",
        "free" => "available_bytes",
        "metadata" => "metadata_bytes",
        "to look at" => "left_bytes",
        other => other,
    }
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

    #[test]
    fn a_figure_is_explained_with_its_kind_and_its_unit() {
        let text = text(Some("space.stored_bytes")).unwrap();
        assert_eq!(
            text,
            "space.stored_bytes\n  What the data area holds for them: each content once.\n  gauge; bytes\n  metric oncefs_stored_bytes\n"
        );
    }

    #[test]
    fn all_are_explained_and_an_unknown_one_is_refused() {
        let all = text(None).unwrap();
        for figure in FIGURES.iter() {
            assert!(all.contains(&format!("{}\n", figure.path())), "{}", figure.path());
        }
        for name in ["held", "stored", "saved", "free", "metadata", "host", "to look at"] {
            assert!(text(Some(name)).is_ok(), "{name} is one of the ten lines");
        }
        assert!(text(Some("held_byts")).unwrap_err().message.contains("did you mean held_bytes?"));
        let refused = text(Some("nothing")).unwrap_err();
        assert!(refused.code == exit::USAGE && refused.message.contains("'nothing'"), "{refused:?}");
    }
}
