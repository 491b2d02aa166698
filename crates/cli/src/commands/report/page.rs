//! The page: head, sections, and the limits of the figures.

use super::collect::Collected;
use super::facts::Facts;
use super::markup::Markup;
use super::sections::{self, Section};
use super::style;
use crate::names::shown;
use crate::text::utc;

/// The browser loads nothing and runs no script, for any content of the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The whole file.
pub fn text(facts: &Facts) -> String {
    let title = format!("oncefs report of {}", shown(facts.snapshot.place()));
    let sections = sections::all(facts);
    let main = Markup::lines([head(facts, &title), contents(&sections), left_out(&facts.collected)].into_iter().chain(
        sections.into_iter().map(|Section { id, heading, inside }| {
            let heading = Markup::words("h2", heading);
            Markup::element("section", &[("id", id)], Markup::lines([heading, inside]))
        }),
    ));
    let head = Markup::lines([
        Markup::empty("meta", &[("charset", "utf-8")]),
        Markup::empty("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]),
        Markup::empty("meta", &[("http-equiv", "Content-Security-Policy"), ("content", POLICY)]),
        Markup::words("title", &title),
        Markup::element("style", &[], Markup::own(style::sheet())),
    ]);
    let body = Markup::element("body", &[], Markup::element("main", &[], main));
    let page = Markup::lines([Markup::element("head", &[], head), body]);
    let html = Markup::element("html", &[("lang", "en")], page);
    format!("<!DOCTYPE html>\n{}\n", html.into_string())
}

fn head(facts: &Facts, title: &str) -> Markup {
    let moment = utc(facts.seconds);
    let date = moment.replace('T', " ").replace('Z', " UTC");
    let date = Markup::element("time", &[("datetime", &moment)], Markup::text(date));
    let mount = facts.snapshot.mount.as_deref().map_or_else(Markup::default, |dir| Markup::text(shown(dir)));
    let entries = [
        ("mount", mount),
        ("volume", Markup::text(shown(&facts.snapshot.volume))),
        ("date", date),
        ("version", Markup::text(&facts.snapshot.program)),
        ("files", Markup::text(facts.collected.all.files)),
    ];
    let entry = |(name, value)| Markup::words("dt", name) + Markup::element("dd", &[], value);
    let list = Markup::element("dl", &[], Markup::lines(entries.map(entry)));
    Markup::lines([Markup::words("h1", title), list])
}

/// The parts that the figures do not cover.
fn left_out(collected: &Collected) -> Markup {
    let mut words = Vec::new();
    match collected.refused {
        0 => {}
        1 => words.push("One file or directory could not be looked at and is missing here.".to_owned()),
        refused => words.push(format!("{refused} files or directories could not be looked at and are missing here.")),
    }
    if collected.linked.is_full {
        words.push("Very many files have several names: some count at more than one of them.".to_owned());
    }
    Markup::lines(words.iter().map(|words| Markup::words("p", words)))
}

fn contents(sections: &[Section]) -> Markup {
    let item = |section: &Section| {
        let link = Markup::element("a", &[("href", &format!("#{}", section.id))], Markup::text(section.heading));
        Markup::element("li", &[], link)
    };
    let list = Markup::element("ul", &[], Markup::lines(sections.iter().map(item)));
    Markup::element("nav", &[("aria-label", "Sections")], list)
}
