//! The charts of `docs/results/older/sim-smartdedup.md`.

use oncefs_plot::{Bars, Chart, Series};

use super::runs::{EVICTIONS, SWEPT};
use super::tables::eviction_name;
use super::{Comparison, MemoryPoint, TwinResult};
use crate::design_choice::DesignChoice;

impl Comparison {
    /// Files by name, with their SVG text.
    pub fn plots(&self) -> Vec<(String, String)> {
        let mut plots: Vec<(String, String)> = self
            .twins
            .iter()
            .map(|result| (format!("sim-trace-{}.svg", result.twin.trace), self.sweep_plot(result).svg()))
            .collect();
        if let Some(share) = self.options.percents.first() {
            plots.push(("sim-eviction-duplicates.svg".to_owned(), self.duplicates_plot(*share).svg()));
            plots.push(("sim-eviction-ios.svg".to_owned(), self.ios_plot(*share).svg()));
        }
        plots
    }

    /// Duplicates found over memory.
    fn sweep_plot(&self, result: &TwinResult) -> Chart {
        let over_memory = |figure: &dyn Fn(MemoryPoint) -> u64| -> Vec<(f64, f64)> {
            let point =
                |megabytes: &u64| (*megabytes as f64, result.percent(figure(MemoryPoint::Megabytes(*megabytes))));
            self.options.megabytes.iter().map(point).collect()
        };
        let mut series = vec![
            Series { name: "findable".to_owned(), points: over_memory(&|_| result.truth.duplicates) },
            Series {
                name: "oncefs, all".to_owned(),
                points: over_memory(&|memory| result.outcome(DesignChoice::Oncefs, memory).found()),
            },
        ];
        let plotted = SWEPT.into_iter().filter(|choice| *choice != DesignChoice::OncefsInlineGroups);
        series.extend(plotted.map(|choice| Series {
            name: plot_name(choice).to_owned(),
            points: over_memory(&|memory| result.outcome(choice, memory).found_inline),
        }));
        Chart {
            title: format!("Twin of trace {}: duplicates found", result.twin.trace),
            x_label: format!("memory, MB (times 1/{})", self.options.scale),
            y_label: "% of writes".to_owned(),
            series,
        }
    }

    /// SmartDedup's figure 8.
    fn duplicates_plot(&self, share: u64) -> Bars {
        let memory = MemoryPoint::Percent(share);
        self.bars(
            format!("In-line duplicates, memory for {share} % of the fingerprints"),
            "% of writes",
            |result, choice| result.percent(result.outcome(choice, memory).found_inline),
        )
    }

    /// What group eviction is for.
    fn ios_plot(&self, share: u64) -> Bars {
        let memory = MemoryPoint::Percent(share);
        self.bars(
            format!("Eviction I/Os, memory for {share} % of the fingerprints"),
            "per 1000 blocks written",
            |result, choice| result.outcome(choice, memory).eviction_ios as f64 * 1e3 / result.truth.written as f64,
        )
    }

    fn bars(&self, title: String, y_label: &str, figure: impl Fn(&TwinResult, DesignChoice) -> f64) -> Bars {
        let groups = self.twins.iter().map(|result| {
            let values = EVICTIONS.iter().map(|choice| figure(result, *choice)).collect();
            (format!("trace {}", result.twin.trace), values)
        });
        let names = EVICTIONS.iter().map(|choice| eviction_name(*choice).to_owned()).collect();
        Bars { title, y_label: y_label.to_owned(), names, groups: groups.collect() }
    }
}

/// What is plotted of oncefs, in few words.
fn plot_name(choice: DesignChoice) -> &'static str {
    match choice {
        DesignChoice::Oncefs => "oncefs, in-line",
        DesignChoice::OncefsInline => "oncefs, one level",
        other => other.name(),
    }
}
