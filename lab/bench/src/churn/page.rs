//! The page: verdicts, what reached the device, and the rounds of each volume that compresses.

use oncefs_toolbox::Table;

use super::outcome::Outcome;
use crate::origin::Origin;
use crate::report::as_markdown;

/// What is left of a pack's blocks after a day of use.
const DENSITY_MIN: f64 = 0.95;
/// By how much packing anew may multiply what is written.
const FACTOR_MAX: f64 = 1.3;

/// All of it as Markdown.
pub fn page(origin: &Origin, outcomes: &[Outcome]) -> String {
    format!("{TITLE}\n\n{}\n\n{}", origin.head(), tables(outcomes))
}

const TITLE: &str = "# Results: a day of use, compressed

What reaches the device when the trees of `scripts/demo`, or others, are copied in and then used, with and without \
compression; and how dense packs stay. How it is measured: [churn](../benchmarks.md#churn).";

const LEGEND: &str = "MB of the program and of the file system. Per byte: what reached the device until it was \
unmounted, per byte that the program wrote, records, log and table included. Stored is what the file system has in use \
beyond an empty one.";

const LEGEND_ROUNDS: &str = "Density is the bytes of fragments over those of the blocks of their packs. The data area \
is what was written to it since the volume was made, and the factor that sum over the sum without packing anew.";

fn tables(outcomes: &[Outcome]) -> String {
    let mut page = verdicts(outcomes);
    page += &format!("## What reached the device\n\n{LEGEND}\n\n{}\n", all(outcomes));
    let compress: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.setting.compresses()).collect();
    if !compress.is_empty() {
        page += &format!("\n## Packs, round by round\n\n{LEGEND_ROUNDS}\n");
    }
    for outcome in compress {
        page += &format!("\n### {}\n\n{}\n", outcome.setting.name(), rounds(outcome));
    }
    page
}

/// Whether the aims are reached, where files were used after the copy.
fn verdicts(outcomes: &[Outcome]) -> String {
    let used = outcomes.iter().filter(|outcome| outcome.setting.compresses() && outcome.rounds.len() > 1);
    let lines: String = used
        .map(|outcome| {
            let (density, factor) = (outcome.last().density(), outcome.last().factor());
            let word = |is_met: bool| if is_met { "met" } else { "MISSED" };
            format!(
                "- {}: density {} (aim: {DENSITY_MIN} and more): {}; factor of packing anew {} (aim: {FACTOR_MAX} at \
                 most): {}\n",
                outcome.setting.name(),
                cell(density),
                word(density.is_some_and(|density| density >= DENSITY_MIN)),
                cell(factor),
                word(factor.is_some_and(|factor| factor <= FACTOR_MAX)),
            )
        })
        .collect();
    if lines.is_empty() { lines } else { lines + "\n" }
}

fn all(outcomes: &[Outcome]) -> String {
    let head = ["", "copied", "per byte", "stored", "used", "per byte", "stored", "daemon"];
    let mut table = Table::new(&head);
    for outcome in outcomes {
        let [copied, used] = outcome.written();
        let [of_copy, of_use] = outcome.wear();
        let in_use = |text: String| if used > 0 { text } else { "-".to_owned() };
        table.row(vec![
            outcome.setting.name().to_owned(),
            megabytes(copied),
            cell(of_copy),
            megabytes(outcome.copied.stored_bytes),
            in_use(megabytes(used)),
            cell(of_use),
            in_use(megabytes(outcome.used.stored_bytes)),
            outcome.peak_memory.map_or("-".to_owned(), megabytes),
        ]);
    }
    as_markdown(table)
}

fn rounds(outcome: &Outcome) -> String {
    let head = ["round", "written", "density before", "and after the worker", "data area", "packed anew", "factor"];
    let mut table = Table::new(&head);
    for (number, round) in outcome.rounds.iter().enumerate() {
        table.row(vec![
            if number == 0 { "copy".to_owned() } else { number.to_string() },
            megabytes(round.written_bytes),
            cell(round.before.density()),
            cell(round.after.density()),
            megabytes(round.after.data_bytes),
            megabytes(round.after.repack_bytes),
            cell(round.after.factor()),
        ]);
    }
    as_markdown(table)
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

fn cell(figure: Option<f64>) -> String {
    figure.map_or("-".to_owned(), |figure| format!("{figure:.3}"))
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::outcome;
    use super::super::setting::Setting;
    use super::*;

    #[test]
    fn aims_are_judged_after_rounds_and_only_where_blocks_are_compressed() {
        let page = tables(&[outcome(Setting::Off), outcome(Setting::Later)]);
        let line = "- oncefs, later: density 0.960 (aim: 0.95 and more): met; factor of packing anew 1.250";
        assert!(page.contains(line) && !page.contains("- oncefs, off"), "{page}");
        assert!(page.contains("### oncefs, later") && !page.contains("### oncefs, off"), "{page}");
        let mut copied_only = outcome(Setting::Later);
        copied_only.rounds.truncate(1);
        assert!(!tables(&[copied_only]).contains("aim:"));
    }

    #[test]
    fn a_looser_pack_and_more_writes_miss_the_aims() {
        let mut loose = outcome(Setting::Inline);
        loose.rounds[1].after.pack_bytes *= 2;
        loose.rounds[1].after.repack_bytes *= 2;
        let verdicts = verdicts(&[loose]);
        assert_eq!(verdicts.matches("MISSED").count(), 2, "{verdicts}");
    }
}
