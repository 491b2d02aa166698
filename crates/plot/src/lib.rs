//! Draws line and bar charts as SVG text. The same figures always give the same text.

use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 48.0;
const Y_STEPS: u32 = 5;
/// Colours that colour-blind readers can tell apart (Okabe and Ito). In black and white the marks differ.
const COLOURS: [&str; 9] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999", "#7f4f24"];

/// One line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points from left to right; x is greater than 0.
    pub points: Vec<(f64, f64)>,
}

/// A chart with a logarithmic x axis and a y axis that begins at 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Title.
    pub title: String,
    /// Label of the x axis.
    pub x_label: String,
    /// Label of the y axis.
    pub y_label: String,
    /// The lines.
    pub series: Vec<Series>,
}

/// Groups of bars, with one bar for each name in each group.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Title.
    pub title: String,
    /// Label of the y axis.
    pub y_label: String,
    /// Names of the bars within a group, for the legend.
    pub names: Vec<String>,
    /// Name of each group, and the heights of its bars.
    pub groups: Vec<(String, Vec<f64>)>,
}

/// Maps values to places on the picture.
struct Scale {
    x_min: f64,
    x_max: f64,
    y_max: f64,
}

impl Scale {
    fn of(chart: &Chart) -> Self {
        let points = || chart.series.iter().flat_map(|series| &series.points);
        let x_min = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let x_max = points().map(|point| point.0).fold(x_min * 1.001, f64::max);
        let y_max = points().map(|point| point.1).fold(0.0, f64::max);
        Self { x_min, x_max, y_max: round_up(y_max) }
    }

    fn x(&self, value: f64) -> f64 {
        let share = (value / self.x_min).ln() / (self.x_max / self.x_min).ln();
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.y_max * (HEIGHT - TOP - BOTTOM)
    }
}

/// The end of an axis: its number of steps times the next of 1, 2, 2.5 and 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let step = value.max(1e-9) / f64::from(Y_STEPS);
    let power = 10f64.powf(step.log10().floor());
    let rounded = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|times| times * power >= step * 0.999_999);
    rounded.unwrap_or(10.0) * power * f64::from(Y_STEPS)
}

impl Chart {
    /// The chart as SVG.
    pub fn svg(&self) -> String {
        let scale = Scale::of(self);
        let mut svg = frame(&self.title, &self.x_label, &self.y_label, &scale);
        self.x_axis(&mut svg, &scale);
        for (at, series) in self.series.iter().enumerate() {
            line(&mut svg, &scale, series, at);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn x_axis(&self, svg: &mut String, scale: &Scale) {
        let mut ticks: Vec<f64> = self.series.iter().flat_map(|series| &series.points).map(|point| point.0).collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        for value in ticks {
            let (x, bottom) = (scale.x(value), HEIGHT - BOTTOM);
            rule(svg, (x, bottom), (x, bottom + 5.0));
            text(svg, x, bottom + 18.0, "middle", &short(value));
        }
    }
}

impl Bars {
    /// The chart as SVG.
    pub fn svg(&self) -> String {
        let y_max = self.groups.iter().flat_map(|(_, values)| values).copied().fold(0.0, f64::max);
        let scale = Scale { x_min: 1.0, x_max: 2.0, y_max: round_up(y_max) };
        let mut svg = frame(&self.title, "", &self.y_label, &scale);
        let group_width = (WIDTH - LEFT - RIGHT) / self.groups.len().max(1) as f64;
        let bar_width = group_width / (self.names.len() as f64 + 1.0);
        for (at, (name, values)) in self.groups.iter().enumerate() {
            let left = LEFT + group_width * at as f64;
            text(&mut svg, left + group_width / 2.0, HEIGHT - BOTTOM + 18.0, "middle", name);
            for (bar, value) in values.iter().enumerate() {
                let (x, top) = (left + bar_width * (bar as f64 + 0.5), scale.y(*value));
                fill(&mut svg, (x, top), (bar_width, HEIGHT - BOTTOM - top), bar);
            }
        }
        for (at, name) in self.names.iter().enumerate() {
            let (x, y) = (WIDTH - RIGHT + 10.0, TOP + 10.0 + 20.0 * at as f64);
            fill(&mut svg, (x, y - 5.0), (10.0, 10.0), at);
            text(&mut svg, x + 14.0, y + 4.0, "start", name);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// The beginning of a picture: title, labels and y axis.
fn frame(title: &str, x_label: &str, y_label: &str, scale: &Scale) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    text(&mut svg, (LEFT + WIDTH - RIGHT) / 2.0, 18.0, "middle", title);
    text(&mut svg, LEFT - 48.0, TOP - 14.0, "start", y_label);
    text(&mut svg, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 10.0, "middle", x_label);
    for step in 0..=Y_STEPS {
        let value = scale.y_max * f64::from(step) / f64::from(Y_STEPS);
        let (y, end) = (scale.y(value), WIDTH - RIGHT);
        rule(&mut svg, (LEFT, y), (end, y));
        text(&mut svg, LEFT - 6.0, y + 4.0, "end", &short(value));
    }
    svg
}

fn fill(svg: &mut String, corner: (f64, f64), size: (f64, f64), at: usize) {
    let ((x, y), (width, height)) = (corner, size);
    let colour = COLOURS[at % COLOURS.len()];
    put(
        svg,
        format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>\n"
        ),
    );
}

fn line(svg: &mut String, scale: &Scale, series: &Series, at: usize) {
    let colour = COLOURS[at % COLOURS.len()];
    let points: Vec<(f64, f64)> = series.points.iter().map(|(x, y)| (scale.x(*x), scale.y(*y))).collect();
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    put(
        svg,
        format_args!(
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\n",
            path.join(" ")
        ),
    );
    points.iter().for_each(|(x, y)| mark(svg, *x, *y, at));
    let (x, y) = (WIDTH - RIGHT + 14.0, TOP + 10.0 + 20.0 * at as f64);
    mark(svg, x, y, at);
    text(svg, x + 10.0, y + 4.0, "start", &series.name);
}

/// A disc, a square, a diamond or a ring.
fn mark(svg: &mut String, x: f64, y: f64, at: usize) {
    let colour = COLOURS[at % COLOURS.len()];
    match at % 4 {
        0 => put(svg, format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>\n")),
        1 => {
            let (left, top) = (x - 3.5, y - 3.5);
            put(
                svg,
                format_args!("<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"7\" height=\"7\" fill=\"{colour}\"/>\n"),
            );
        }
        2 => put(svg, format_args!("<path d=\"M{x:.1},{y:.1}m-5,0l5,-5l5,5l-5,5z\" fill=\"{colour}\"/>\n")),
        _ => put(
            svg,
            format_args!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"white\" stroke=\"{colour}\" stroke-width=\"2\"/>\n"
            ),
        ),
    }
}

fn rule(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    put(svg, format_args!("<path d=\"M{x1:.1},{y1:.1}L{x2:.1},{y2:.1}\" stroke=\"#cccccc\"/>\n"));
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    put(svg, format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>\n"));
}

fn put(svg: &mut String, piece: std::fmt::Arguments) {
    svg.write_fmt(piece).expect("a string takes everything");
}

/// The number without trailing zeros.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let series = |name: &str, factor: f64| Series {
            name: name.to_owned(),
            points: [1.0, 4.0, 40.0].map(|x| (x, x * factor)).to_vec(),
        };
        Chart {
            title: "a < b".to_owned(),
            x_label: "MB".to_owned(),
            y_label: "%".to_owned(),
            series: vec![series("one", 1.0), series("two", 0.5)],
        }
    }

    #[test]
    fn values_lie_within_the_frame_and_the_ends_on_its_edge() {
        let scale = Scale::of(&chart());
        assert_eq!((scale.x(1.0), scale.y(0.0)), (LEFT, HEIGHT - BOTTOM));
        assert!((scale.x(40.0) - (WIDTH - RIGHT)).abs() < 0.1);
        assert!(scale.y(40.0) >= TOP);
    }

    #[test]
    fn axes_end_at_round_figures() {
        assert_eq!([0.9, 21.9, 45.0, 100.0].map(round_up), [1.0, 25.0, 50.0, 100.0]);
    }

    #[test]
    fn bars_are_as_high_as_their_values() {
        let groups = vec![("a".to_owned(), vec![5.0, 10.0]), ("b".to_owned(), vec![0.0, 10.0])];
        let names = ["x", "y"].map(str::to_owned).to_vec();
        let svg = Bars { title: String::new(), y_label: String::new(), names, groups }.svg();
        let full = HEIGHT - TOP - BOTTOM;
        assert_eq!(svg.matches(&format!("height=\"{full:.1}\"")).count(), 2);
        assert_eq!(svg.matches(&format!("height=\"{:.1}\"", full / 2.0)).count(), 1);
    }

    #[test]
    fn the_picture_has_every_line_and_escapes_text() {
        let svg = chart().svg();
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains(">a &lt; b<") && svg.contains(">two<"));
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    }
}
