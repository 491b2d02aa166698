//! The pictures of the report, as SVG in the page.

use oncefs_plot::Bars;

use super::markup::Markup;

/// The width of a bar in its own units; the page stretches it.
const WIDTH: f64 = 1000.0;

/// A part of a bar: its class in the style sheet, and its length.
pub type Part = (&'static str, u64);

/// A bar of adjacent parts. A part of `whole` would fill the width. `title` says the same in words. A bar without a
/// title stands next to its figures, and is hidden from screen readers.
pub fn bar(class: &str, title: Option<&str>, parts: &[Part], whole: u64) -> Markup {
    let mut at = 0.0;
    let mut inside = title.map_or_else(Markup::default, |title| Markup::words("title", title));
    for (class, length) in parts.iter().filter(|(_, length)| *length > 0) {
        let width = (WIDTH * *length as f64 / whole.max(1) as f64).min(WIDTH - at);
        let (x, text) = (format!("{at:.1}"), format!("{width:.1}"));
        inside += Markup::empty("rect", &[("class", class), ("x", &x), ("width", &text), ("height", "10")]);
        at += width;
    }
    let hidden = if title.is_some() { ("role", "img") } else { ("aria-hidden", "true") };
    let shape = [("class", class), ("viewBox", "0 0 1000 10"), ("preserveAspectRatio", "none"), hidden];
    Markup::element("svg", &shape, inside)
}

/// A square in the colour of a part.
pub fn key(class: &'static str) -> Markup {
    let square = Markup::empty("rect", &[("class", class), ("width", "10"), ("height", "10")]);
    Markup::element("svg", &[("class", "key"), ("viewBox", "0 0 10 10"), ("aria-hidden", "true")], square)
}

/// A chart with a title for screen readers. A table next to it has its figures.
pub fn chart(bars: &Bars) -> Markup {
    let svg = bars.svg();
    let (start, rest) = svg.split_once('>').expect("a picture begins with its element");
    let title = Markup::words("title", &bars.title).into_string();
    let svg = Markup::own(format!("{start} role=\"img\">{title}{rest}"));
    let frame = [("class", "wide chart"), ("role", "region"), ("tabindex", "0"), ("aria-label", &*bars.title)];
    Markup::element("figure", &[], Markup::element("div", &frame, svg))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_bar_lie_beside_each_other_and_within_it() {
        let bar = bar("bar", Some("a < b"), &[("stored", 1), ("saved", 0), ("free", 3), ("free", 9)], 4).into_string();
        assert!(bar.contains("<title>a &lt; b</title>"), "{bar}");
        assert!(bar.contains("x=\"0.0\" width=\"250.0\"") && bar.contains("x=\"250.0\" width=\"750.0\""), "{bar}");
        assert!(bar.contains("x=\"1000.0\" width=\"0.0\""), "{bar}");
    }

    #[test]
    fn a_chart_has_a_title_and_a_role() {
        let bars = Bars {
            title: "runs & reads".to_owned(),
            y_label: "%".to_owned(),
            names: vec!["of the runs".to_owned()],
            groups: vec![("1".to_owned(), vec![4.0])],
        };
        let chart = chart(&bars).into_string();
        assert!(chart.contains("role=\"img\"><title>runs &amp; reads</title>"), "{chart}");
        assert_eq!(chart.matches("</svg>").count(), 1);
    }
}
