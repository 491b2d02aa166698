//! The sentence that describes a run and its reason.

use oncefs_engine::{BLOCK_BYTES, BudgetUse, Equal, ExplainedRun, What};

use super::sharers::{Other, Others};
use crate::names::shown;

/// The rule by which a file shares.
pub struct Rule {
    /// The file's map.
    pub map: u64,
    /// The shortest run, in blocks.
    pub blocks_min: u32,
    /// The setting that decided it, or why the file is not deduplicated.
    pub set_by: String,
    /// The use of its budget, if it has one.
    pub budget: Option<BudgetUse>,
    /// Whether it shares nothing from now on.
    pub is_left_alone: bool,
}

/// Describes a run and its reason in a sentence.
pub fn why(run: &ExplainedRun, others: &Others, rule: &Rule) -> String {
    match &run.what {
        What::Hole => "hole".to_owned(),
        What::Reserved => "reserved".to_owned(),
        What::Unknown { .. } => "its entry in the block table is damaged: unmount and run oncefs fsck -y".to_owned(),
        What::Changed => "changed meanwhile: run the command again".to_owned(),
        What::Shared { references, .. } => {
            let length = if run.blocks == 1 { "1 block".to_owned() } else { format!("run of {}", run.blocks) };
            match with(run, others) {
                Some(with) => format!("shared: {length} with {with}"),
                None => format!("shared: {length}, up to {references} references"),
            }
        }
        What::Own { equal, waits, .. } => own(*equal, *waits, with(run, others), rule),
        What::Bad { replacement: Some(_), .. } => "bad block, read from its replacement".to_owned(),
        What::Bad { replacement: None, .. } => "bad block, lost: reading it fails".to_owned(),
    }
}

fn own(equal: Equal, waits: bool, with: Option<String>, rule: &Rule) -> String {
    const WAITS: &str = "not yet compared with all content (queued for the worker)";
    let minimum = rule.blocks_min;
    match (equal, waits) {
        (Equal::TooShort { .. } | Equal::LongEnough { .. }, _) if rule.is_left_alone => {
            let with = with.unwrap_or_else(|| "blocks elsewhere".to_owned());
            format!("not deduplicated, though equal to {with}: {}", rule.set_by)
        }
        (Equal::None, false) => "stored anew: no equal block known".to_owned(),
        (Equal::None, true) => WAITS.to_owned(),
        (Equal::TooShort { longest_run_blocks, .. }, false) if rule.budget.is_some() => {
            let with = with.map(|with| format!(", {with}")).unwrap_or_default();
            format!("not shared: the budget is spent on longer runs than {longest_run_blocks} equal blocks{with}")
        }
        (Equal::TooShort { longest_run_blocks, .. }, _) => {
            let with = with.map(|with| format!(", {with}")).unwrap_or_default();
            let text = if longest_run_blocks < minimum {
                format!("not shared: the longest run of equal blocks has {longest_run_blocks}{with}")
            } else {
                format!("not shared: other runs overlap the run of {longest_run_blocks} equal blocks{with}")
            };
            let waits = if waits { "; queued for the worker" } else { "" };
            format!("{text}, the minimum is {minimum}{waits}")
        }
        (Equal::LongEnough { .. }, true) => {
            format!("{WAITS}: equal to {}", with.unwrap_or_else(|| "blocks elsewhere".to_owned()))
        }
        (Equal::LongEnough { .. }, false) => {
            let with = with.unwrap_or_else(|| "blocks elsewhere".to_owned());
            format!("stored anew: no equal block was known then; now equal to {with}")
        }
    }
}

/// The first few other places, and the number of further ones. None: none was searched for or found.
fn with(run: &ExplainedRun, others: &Others) -> Option<String> {
    if others.shown.is_empty() {
        return None;
    }
    let mut places: Vec<String> = others.shown.iter().map(|other| place(run, other)).collect();
    if others.more > 0 {
        places.push(format!("{} more", others.more));
    }
    let last = places.pop()?;
    Some(if places.is_empty() { last } else { format!("{} and {last}", places.join(", ")) })
}

fn place(run: &ExplainedRun, other: &Other) -> String {
    let name = match other.paths.first() {
        _ if other.is_itself => "this file".to_owned(),
        Some(path) => shown(path).to_string(),
        None => "a file without a known name".to_owned(),
    };
    let all = other.first == 0 && other.blocks == run.blocks;
    let part =
        if all { String::new() } else { format!(" ({} blocks from block {})", other.blocks, run.lbn + other.first) };
    format!("{name} at block {}{part}", other.lbn)
}

/// How long the blocks of a run are if they are compressed, and where in the block at their address the first one begins.
pub fn compressed(run: &ExplainedRun) -> String {
    let Some(compressed) = &run.compressed else { return String::new() };
    let (bytes, held) = (compressed.bytes(), run.blocks * BLOCK_BYTES as u64);
    let (percent, from) = (bytes * 100 / held.max(1), compressed.at % BLOCK_BYTES as u64);
    format!("; compressed to {bytes} bytes ({percent} %), from byte {from} on")
}

/// A budget, and how much of it is used.
pub fn budget(budget: &BudgetUse) -> String {
    let BudgetUse { percent_max, percent, pieces, pieces_max } = budget;
    format!(
        "sharing may make reading it up to {percent_max} % slower, which is {pieces_max} more pieces than one; now it is \
         {percent} % slower, with {pieces} more"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Name;

    fn other(path: &str, lbn: u64, first: u64, blocks: u64) -> Other {
        Other { paths: vec![Name::from(path.as_bytes())], more_paths: 0, is_itself: false, lbn, first, blocks }
    }

    fn said(what: What, blocks: u64, shown: Vec<Other>, more: u64) -> String {
        let rule =
            Rule { map: 1, blocks_min: 8, set_by: "set by its policy".to_owned(), budget: None, is_left_alone: false };
        why(&ExplainedRun::plain(100, blocks, what), &Others { shown, more }, &rule)
    }

    #[test]
    fn shared_runs_are_told_with_the_first_places_and_how_many_more() {
        let shared = What::Shared { pbn: 5, references: 9 };
        assert_eq!(said(shared.clone(), 40, vec![other("/a", 12, 0, 40)], 0), "shared: run of 40 with /a at block 12");
        assert_eq!(said(shared.clone(), 40, Vec::new(), 0), "shared: run of 40, up to 9 references");
        let itself = Other { is_itself: true, ..other("/x", 3, 4, 2) };
        let places = vec![other("/a", 12, 0, 40), itself];
        assert_eq!(
            said(shared.clone(), 40, places, 7),
            "shared: run of 40 with /a at block 12, this file at block 3 (2 blocks from block 104) and 7 more"
        );
        let both = vec![other("/a", 1, 0, 1), other("/b", 2, 0, 1)];
        assert_eq!(said(shared.clone(), 1, both, 0), "shared: 1 block with /a at block 1 and /b at block 2");
        let tricky = vec![other("/a\n\u{1b}[2J", 1, 0, 1)];
        assert_eq!(said(shared, 1, tricky, 0), r#"shared: 1 block with "/a\n\u{1b}[2J" at block 1"#, "one line");
    }

    #[test]
    fn blocks_of_a_file_that_is_left_alone_are_told_as_such() {
        let rule = Rule { map: 1, blocks_min: 8, set_by: "policy off".to_owned(), budget: None, is_left_alone: true };
        let said = |equal| {
            let run = ExplainedRun::plain(100, 3, What::Own { pbn: 1, equal, waits: false });
            why(&run, &Others { shown: vec![other("/a", 5, 0, 3)], more: 0 }, &rule)
        };
        assert_eq!(
            said(Equal::LongEnough { equal_pbn: 7 }),
            "not deduplicated, though equal to /a at block 5: policy off"
        );
        assert_eq!(said(Equal::None), "stored anew: no equal block known");
    }

    #[test]
    fn blocks_of_its_own_are_told_with_the_reason() {
        let own = |equal, waits| What::Own { pbn: 1, equal, waits };
        let short = |longest_run_blocks| Equal::TooShort { equal_pbn: 7, longest_run_blocks };
        let long = Equal::LongEnough { equal_pbn: 7 };
        for (what, text) in [
            (own(Equal::None, false), "stored anew: no equal block known"),
            (own(Equal::None, true), "not yet compared with all content (queued for the worker)"),
            (own(short(3), false), "not shared: the longest run of equal blocks has 3, the minimum is 8"),
            (own(short(9), false), "not shared: other runs overlap the run of 9 equal blocks, the minimum is 8"),
            (
                own(short(3), true),
                "not shared: the longest run of equal blocks has 3, the minimum is 8; queued for the worker",
            ),
            (own(long, true), "not yet compared with all content (queued for the worker): equal to blocks elsewhere"),
            (What::Bad { pbn: 1, replacement: Some(2), references: 1 }, "bad block, read from its replacement"),
            (What::Bad { pbn: 1, replacement: None, references: 1 }, "bad block, lost: reading it fails"),
            (What::Hole, "hole"),
            (What::Reserved, "reserved"),
        ] {
            assert_eq!(said(what, 3, Vec::new(), 0), text);
        }
        let with = vec![other("/a", 5, 0, 3)];
        assert_eq!(
            said(own(short(3), false), 3, with, 0),
            "not shared: the longest run of equal blocks has 3, /a at block 5, the minimum is 8"
        );
    }

    #[test]
    fn a_budget_is_told_with_what_is_used_of_it() {
        let used = BudgetUse { percent_max: 100, percent: 40, pieces: 12, pieces_max: 30 };
        assert_eq!(
            budget(&used),
            "sharing may make reading it up to 100 % slower, which is 30 more pieces than one; now it is 40 % slower, with \
             12 more"
        );
        let set_by = "set by read_slowdown_percent_max".to_owned();
        let rule = Rule { map: 1, blocks_min: 1, set_by, budget: Some(used), is_left_alone: false };
        let short = Equal::TooShort { equal_pbn: 7, longest_run_blocks: 3 };
        assert_eq!(
            own(short, false, None, &rule),
            "not shared: the budget is spent on longer runs than 3 equal blocks"
        );
    }
}
