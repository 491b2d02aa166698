//! Draws the chart of a figure from the medians of its readings.

use oncefs_plot::{Bars, Chart, Series};

use super::figure::{Figure, Measure, Paper, Plot};
use super::readings::Readings;

/// Name of the chart's file.
pub fn file_name(paper: &Paper, figure: &Figure) -> String {
    let number: String =
        figure.number.to_lowercase().chars().map(|c| if c.is_alphanumeric() || c == '.' { c } else { '-' }).collect();
    format!("paper-{}-{number}.svg", paper.name)
}

/// The chart as SVG; none if something that it shows was not measured.
pub fn svg(figure: &Figure, readings: &Readings) -> Option<String> {
    let title = figure.title.to_owned();
    match &figure.plot {
        Plot::None => None,
        Plot::Bars { y_label, names, groups } => {
            let height = |measure: &Measure| readings.spread(measure).map(|spread| spread.median.max(0.0));
            let group = |(name, bars): &(String, Vec<_>)| {
                let heights: Option<Vec<f64>> = bars.iter().map(height).collect();
                Some((name.clone(), heights?))
            };
            let groups: Option<Vec<_>> = groups.iter().map(group).collect();
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Some(Bars { title, y_label: (*y_label).to_owned(), names, groups: groups? }.svg())
        }
        Plot::Curves { x_label, y_label, xs, lines } => {
            let line = |(name, pick): &(&str, _)| {
                let point = |(index, x): (usize, &f64)| Some((*x, readings.median_at(pick, index)?));
                let points: Option<Vec<(f64, f64)>> = xs.iter().enumerate().map(point).collect();
                Some(Series { name: (*name).to_owned(), points: points? })
            };
            let series: Option<Vec<_>> = lines.iter().map(line).collect();
            Some(Chart { title, x_label: (*x_label).to_owned(), y_label: (*y_label).to_owned(), series: series? }.svg())
        }
    }
}
