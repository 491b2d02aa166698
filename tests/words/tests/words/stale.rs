//! Figures in `docs/results` say which command printed them, on which day and of which commit, and that commit is not
//! long ago. A checkout without the history cannot tell how old a commit is: there the day is judged.

use oncefs_words::checkout::{names_in, root, text};
use oncefs_words::history::History;
use oncefs_words::page::{cells, links};

use super::assert_none;

/// What links to all pages and has no figures of its own.
const INDEX: &str = "README.md";

/// Commits after which figures no longer say how it is. They are then measured anew, or go to `docs/results/older`.
const AGE_MAX: u64 = 300;

/// Days between the newest figures and others, at most, where only days can be judged.
const DAYS_MAX: i64 = 60;

/// How the commands begin that print figures.
const COMMANDS: [&str; 8] =
    ["oncefs-bench ", "oncefs-sim ", "oncefs ", "time oncefs ", "cargo ", "scripts/", "ONCEFS_", "git log "];

/// Whether a page has a row of a table with a number in it, or a block that was printed.
fn gives_figures(page: &str) -> bool {
    let rows = page.lines().filter(|line| line.starts_with('|') && line.contains(|c: char| c.is_ascii_digit()));
    rows.count() > 0 || page.lines().any(|line| line.starts_with("```"))
}

fn names_a_command(page: &str) -> bool {
    page.split('`').skip(1).any(|part| COMMANDS.iter().any(|command| part.trim_start().starts_with(command)))
}

/// Whether this can be the short or the whole name of a commit.
fn is_commit(word: &str) -> bool {
    (7..=40).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

/// The commits that a page names: behind the word, one or several, and in columns with this head.
fn commits(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_behind = false;
    for word in words(page) {
        if is_behind && is_commit(word) {
            found.push(word.to_owned());
        } else {
            is_behind = matches!(word, "commit" | "commits") || (is_behind && word == "and");
        }
    }
    let mut column = None;
    let mut above = false;
    for line in page.lines() {
        let in_table = line.starts_with('|');
        let cells = if in_table { cells(line) } else { Vec::new() };
        if in_table && !above {
            column = cells.iter().position(|cell| cell == "commit");
        } else if let Some(cell) = column.and_then(|column| cells.get(column)) {
            found.extend(words(cell).filter(|word| is_commit(word)).map(str::to_owned));
        }
        above = in_table;
    }
    found.sort();
    found.dedup();
    found
}

/// Whether a page sums up others, which have the figures and are held to the same rules: it links to one beside it.
fn sums_up_others(page: &str, beside: impl Fn(&str) -> String) -> bool {
    let names = links(page).into_iter().filter(|link| link.ends_with(".md") && !link.contains('/') && *link != INDEX);
    names.into_iter().any(|name| !commits(&beside(name)).is_empty())
}

/// What is wrong with a page, given the age of a commit and the text of a page beside it.
fn faults(page: &str, age: impl Fn(&str) -> Result<u64, String>, beside: impl Fn(&str) -> String) -> Vec<String> {
    if !gives_figures(page) {
        return Vec::new();
    }
    let mut found = Vec::new();
    if !names_a_command(page) {
        found.push("names no command that printed its figures".to_owned());
    }
    let commits = commits(page);
    if commits.is_empty() && !sums_up_others(page, beside) {
        found.push("names no commit of which its figures are".to_owned());
    }
    for commit in commits {
        match age(&commit) {
            Ok(age) if age <= AGE_MAX => {}
            Ok(age) => found.push(format!(
                "commit {commit} is {age} commits old, {AGE_MAX} at most: measure anew, or move it to docs/results/older"
            )),
            Err(why) => found.push(format!("commit {commit} {why}")),
        }
    }
    found
}

/// The newest day that a page names, as a number of days.
fn newest_day(page: &str) -> Option<i64> {
    let days = page.split(|c: char| !c.is_ascii_digit() && c != '-').filter_map(|word| {
        let [year, month, day] = word.split('-').map(str::parse).collect::<Result<Vec<i64>, _>>().ok()?[..] else {
            return None;
        };
        // Months of 31 days make gaps, and no day comes before an earlier one.
        (year > 2000 && word.len() == 10).then_some((year * 12 + month) * 31 + day)
    });
    days.max()
}

/// What is wrong with a page, given the newest day of all pages.
fn faults_by_day(page: &str, newest: i64) -> Option<String> {
    if !gives_figures(page) {
        return None;
    }
    match newest_day(page) {
        None => Some("names no day of its figures".to_owned()),
        Some(day) if newest - day <= DAYS_MAX => None,
        Some(day) => Some(format!("is {} days older than the newest figures, {DAYS_MAX} at most", newest - day)),
    }
}

#[test]
fn figures_are_of_days_that_are_not_long_ago() {
    let pages = names_in("docs/results").into_iter().filter(|name| name.ends_with(".md") && name != INDEX);
    let pages: Vec<(String, String)> =
        pages.map(|name| (name.clone(), text(&format!("docs/results/{name}")))).collect();
    let newest = pages.iter().filter_map(|(_, page)| newest_day(page)).max().expect("a page names a day");
    let found = pages.iter().filter_map(|(name, page)| Some(format!("{name} {}", faults_by_day(page, newest)?)));
    assert_none("figures that are of no day or long ago", found.collect());
}

#[test]
fn a_page_of_no_day_or_of_a_day_long_ago_is_found() {
    let newest = newest_day("2026-11-26").unwrap();
    assert_eq!(newest_day("on 2026-11-23 and 2026-09-30, 12-2 of 2026"), newest_day("2026-11-23"));
    let of = |page: &str| faults_by_day(&format!("{page}\n| a | 1 |\n"), newest).unwrap_or_default();
    assert_eq!(of("2026-10-01"), "");
    assert!(of("2026-08-01").contains("older"));
    assert!(of("long ago").contains("no day"));
    assert_eq!(faults_by_day("no figures, no day", newest), None);
}

#[test]
fn figures_are_of_a_commit_that_is_not_long_ago() {
    let history = match History::of(&root()) {
        Ok(history) => history,
        Err(why) => return println!("Only the days of figures are judged here: {why}"),
    };
    let pages = names_in("docs/results").into_iter().filter(|name| name.ends_with(".md") && name != INDEX);
    let beside = |name: &str| text(&format!("docs/results/{name}"));
    let found = pages.flat_map(|name| {
        let page = beside(&name);
        faults(&page, |commit| history.age(commit), beside)
            .into_iter()
            .map(move |fault| format!("docs/results/{name} {fault}"))
    });
    assert_none("figures that are stale or of nowhere", found.collect());
}

#[test]
fn older_figures_say_so_at_their_top() {
    let pages = names_in("docs/results/older").into_iter().filter(|name| name != INDEX);
    let silent = pages.filter(|name| {
        let page = text(&format!("docs/results/older/{name}"));
        !page.lines().take(3).any(|line| line.starts_with("> **History.**"))
    });
    assert_none("older pages whose third line does not begin with `> **History.**`", silent.collect());
}

#[test]
fn a_page_that_is_stale_or_says_too_little_is_found() {
    let age = |commit: &str| match commit {
        "1111111" => Ok(AGE_MAX),
        "2222222" => Ok(AGE_MAX + 1),
        _ => Err("is no ancestor of HEAD".to_owned()),
    };
    let beside =
        |name: &str| if name == "other.md" { "of commit 1111111".to_owned() } else { "of no commit".to_owned() };
    let of = |page: &str| faults(page, age, beside).join("; ");
    let table = "\n| a | 1 |\n";
    assert_eq!(of(&format!("`oncefs-bench peers`, commit 1111111{table}")), "");
    assert_eq!(of("no figures here, of no commit"), "");
    assert!(of(&format!("`scripts/drill`, commit 2222222{table}")).contains("301 commits old"));
    assert!(of(&format!("`cargo test`, commits 1111111 and abcdef0{table}")).contains("abcdef0 is no ancestor"));
    assert!(of(&format!("`oncefs stats`{table}")).contains("names no commit"));
    assert_eq!(of(&format!("`oncefs-bench paper x`: [the other](other.md){table}")), "");
    assert!(of(&format!("`oncefs-bench paper x`: [a third](third.md){table}")).contains("names no commit"));
    assert!(of(&format!("by hand, commit 1111111{table}")).contains("names no command"));
    assert!(of("`cargo x`\n```\n12 s\n```\n").contains("names no commit"));
}

#[test]
fn commits_are_read_from_sentences_and_from_columns() {
    assert_eq!(
        commits("of commit 7e773cf, and commits\n676c60c and 1234567, but 7654321 is a number"),
        ["1234567", "676c60c", "7e773cf"]
    );
    let table =
        "| part | commit | s |\n|---|---|---|\n| x | abcdef0, abcdef1 | 9999999 |\n\n| n |\n|---|\n| 8888888 |\n";
    assert_eq!(commits(table), ["abcdef0", "abcdef1"]);
}
