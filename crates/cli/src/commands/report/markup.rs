//! Markup that is well-formed as HTML and as XML. File names, which users choose, enter it only as escaped text.

use std::fmt::Display;
use std::ops::{Add, AddAssign};

use crate::size::Size;

/// A piece of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Markup(String);

/// Names and values of an element's attributes; values are escaped.
pub type Attributes<'a> = [(&'static str, &'a str)];

impl Markup {
    /// Words, escaped.
    pub fn text(words: impl Display) -> Self {
        Self(escaped(&words.to_string()))
    }

    /// An element with content.
    pub fn element(name: &'static str, attributes: &Attributes, inside: Self) -> Self {
        Self(format!("<{name}{}>{}</{name}>", attributes_text(attributes), inside.0))
    }

    /// An element with text.
    pub fn words(name: &'static str, words: impl Display) -> Self {
        Self::element(name, &[], Self::text(words))
    }

    /// An element without content.
    pub fn empty(name: &'static str, attributes: &Attributes) -> Self {
        Self(format!("<{name}{}/>", attributes_text(attributes)))
    }

    /// Trusted text, such as a style, that is not escaped.
    pub fn own(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Pieces in sequence, each on a line of its own.
    pub fn lines(pieces: impl IntoIterator<Item = Self>) -> Self {
        Self(pieces.into_iter().map(|piece| piece.0 + "\n").collect())
    }

    /// The markup as a string.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl Add for Markup {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for Markup {
    fn add_assign(&mut self, other: Self) {
        self.0 += &other.0;
    }
}

fn attributes_text(attributes: &Attributes) -> String {
    attributes.iter().map(|(name, value)| format!(" {name}=\"{}\"", escaped(value))).collect()
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            _ => escaped.push(character),
        }
    }
    escaped
}

/// Bytes for people, and exact for programs.
pub fn size(bytes: u64) -> Markup {
    Markup::element("data", &[("value", &bytes.to_string())], Markup::text(Size(bytes)))
}

/// A note that explains the part below it.
pub fn note(words: &str) -> Markup {
    Markup::element("p", &[("class", "soft")], Markup::text(words))
}

/// The heading of a column, and whether the column has figures.
pub type Head = (&'static str, bool);

/// A table in a frame that scrolls where it is wider than the screen. The first cell of each row is its heading.
pub fn table(caption: &str, heads: &[Head], rows: impl IntoIterator<Item = Vec<Markup>>) -> Markup {
    let class = |is_figure: bool| if is_figure { "figure" } else { "words" };
    let head = |(name, is_figure): &Head| {
        Markup::element("th", &[("scope", "col"), ("class", class(*is_figure))], Markup::text(name))
    };
    let cell = |(at, (inside, (_, is_figure))): (usize, (Markup, &Head))| {
        let class = ("class", class(*is_figure));
        if at == 0 {
            Markup::element("th", &[("scope", "row"), class], inside)
        } else {
            Markup::element("td", &[class], inside)
        }
    };
    let row = |cells: Vec<Markup>| {
        let cells = cells.into_iter().zip(heads).enumerate().map(cell);
        Markup::element("tr", &[], cells.fold(Markup::default(), Markup::add))
    };
    let head = heads.iter().map(head).fold(Markup::default(), Markup::add);
    let head = Markup::element("thead", &[], Markup::element("tr", &[], head));
    let body = Markup::element("tbody", &[], Markup::lines(rows.into_iter().map(row)));
    let table = Markup::element("table", &[], Markup::words("caption", caption) + head + body);
    let frame = [("class", "wide"), ("role", "region"), ("tabindex", "0"), ("aria-label", caption)];
    Markup::element("div", &frame, table)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "</td><script>alert('1')</script><b>&\"x.txt";

    #[test]
    fn a_hostile_name_is_text_in_elements_and_in_attributes() {
        let safe = "&lt;/td&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&lt;b&gt;&amp;&quot;x.txt";
        let element = Markup::element("p", &[("title", HOSTILE)], Markup::text(HOSTILE));
        assert_eq!(element.into_string(), format!("<p title=\"{safe}\">{safe}</p>"));
        assert_eq!(Markup::empty("br", &[("class", "\"'")]).into_string(), "<br class=\"&quot;&#39;\"/>");
    }

    #[test]
    fn tables_have_captions_and_headings_of_columns_and_rows() {
        let row = vec![Markup::text(HOSTILE), Markup::text(7)];
        let table = table("a & b", &[("name", false), ("files", true)], [row]).into_string();
        for part in
            ["<caption>a &amp; b</caption>", "scope=\"col\"", "<th scope=\"row\"", "<td class=\"figure\">7</td>"]
        {
            assert!(table.contains(part), "no {part} in {table}");
        }
        assert!(!table.contains("<script") && !table.contains("<b>"), "{table}");
    }
}
