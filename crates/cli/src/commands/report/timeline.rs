//! Lines over time, as SVG in the page, in the page's colours. The lines also differ in their dashes.

use super::markup::Markup;
use crate::figures::history::moment;
use crate::size::Size;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 30.0;
/// Steps of the axes.
const Y_STEPS: u64 = 4;
const X_STEPS: u64 = 3;
/// From this many seconds on, the axis shows dates alone, otherwise hours too.
const DATES_FROM_SECONDS: u64 = 4 * 86_400;

/// A line of bytes over time.
pub struct Line {
    /// Its class in the style sheet.
    pub class: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Moments and bytes, in the order of moments.
    pub points: Vec<(u64, u64)>,
}

/// The picture with its title and legend. A table next to it has its figures.
pub fn picture(title: &str, lines: &[Line]) -> Markup {
    let scale = Scale::of(lines);
    let axes = scale.axes();
    let paths = lines.iter().map(|line| line_path(line, &scale));
    let inside = Markup::lines([Markup::words("title", title), axes].into_iter().chain(paths));
    let (width, height) = (WIDTH as u64, HEIGHT as u64);
    let svg = [("class", "time"), ("role", "img"), ("viewBox", &*format!("0 0 {width} {height}"))];
    let frame = [("class", "wide chart"), ("role", "region"), ("tabindex", "0"), ("aria-label", title)];
    let frame = Markup::element("div", &frame, Markup::element("svg", &svg, inside));
    let keys = Markup::element("ul", &[("class", "keys")], Markup::lines(lines.iter().map(key)));
    Markup::element("figure", &[], Markup::words("figcaption", title) + frame + keys)
}

fn key(line: &Line) -> Markup {
    let stroke = Markup::empty("path", &[("class", &format!("line {}", line.class)), ("d", "M0 5H30")]);
    let stroke = Markup::element("svg", &[("class", "key"), ("viewBox", "0 0 30 10"), ("aria-hidden", "true")], stroke);
    Markup::element("li", &[], stroke + Markup::text(format!(" {}", line.name)))
}

/// Places on the picture.
struct Scale {
    first: u64,
    last: u64,
    most: u64,
}

impl Scale {
    fn of(lines: &[Line]) -> Self {
        let points = || lines.iter().flat_map(|line| &line.points);
        let first = points().map(|point| point.0).min().unwrap_or(0);
        let last = points().map(|point| point.0).max().unwrap_or(0).max(first + 1);
        Self { first, last, most: round_up(points().map(|point| point.1).max().unwrap_or(0)) }
    }

    fn x(&self, seconds: u64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (seconds - self.first) as f64 / (self.last - self.first) as f64
    }

    fn y(&self, bytes: u64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * bytes as f64 / self.most as f64
    }

    fn axes(&self) -> Markup {
        let rule = |path: String| Markup::empty("path", &[("class", "rule"), ("d", &path)]);
        let label = |x: f64, y: f64, anchor: &'static str, words: String| {
            let (x, y) = (format!("{x:.1}"), format!("{y:.1}"));
            let place = [("class", "tick"), ("x", &*x), ("y", &*y), ("text-anchor", anchor)];
            Markup::element("text", &place, Markup::text(words))
        };
        let mut axes = Markup::default();
        for step in 0..=Y_STEPS {
            let bytes = self.most / Y_STEPS * step;
            let y = self.y(bytes);
            axes += rule(format!("M{LEFT:.1} {y:.1}H{:.1}", WIDTH - RIGHT));
            axes += label(LEFT - 6.0, y + 4.0, "end", Size(bytes).to_string());
        }
        for step in 0..=X_STEPS {
            let seconds = self.first + (self.last - self.first) * step / X_STEPS;
            let anchor = if step == 0 {
                "start"
            } else if step == X_STEPS {
                "end"
            } else {
                "middle"
            };
            axes += label(self.x(seconds), HEIGHT - 8.0, anchor, self.date(seconds));
        }
        axes
    }

    fn date(&self, seconds: u64) -> String {
        let moment = moment(seconds);
        if self.last - self.first >= DATES_FROM_SECONDS { moment[..10].to_owned() } else { moment[5..].to_owned() }
    }
}

/// The end of an axis, rounded up so that the labels of its steps are short.
fn round_up(bytes: u64) -> u64 {
    let step = bytes.div_ceil(Y_STEPS).max(1024);
    let power = 1u64 << (step.ilog2() / 10 * 10);
    let times = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024];
    let round = times.into_iter().find(|times| times * power >= step).unwrap_or(1024);
    (round * power).saturating_mul(Y_STEPS)
}

fn line_path(line: &Line, scale: &Scale) -> Markup {
    let place = |(seconds, bytes): &(u64, u64)| format!("{:.1} {:.1}", scale.x(*seconds), scale.y(*bytes));
    let path = format!("M{}", line.points.iter().map(place).collect::<Vec<_>>().join("L"));
    Markup::empty("path", &[("class", &format!("line {}", line.class)), ("d", &path)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Vec<Line> {
        let line = |class, points: &[(u64, u64)]| Line { class, name: class, points: points.to_vec() };
        vec![line("stored", &[(1000, 0), (2000, 3 << 20)]), line("held", &[(1500, 4 << 20)])]
    }

    #[test]
    fn lines_reach_from_edge_to_edge_and_lie_within_the_picture() {
        let scale = Scale::of(&lines());
        assert_eq!((scale.x(1000), scale.x(2000)), (LEFT, WIDTH - RIGHT));
        assert_eq!((scale.y(0), scale.y(4 << 20)), (HEIGHT - BOTTOM, TOP));
        let picture = picture("a < b", &lines()).into_string();
        for part in ["<title>a &lt; b</title>", "M76.0 250.0L616.0 73.0", ">4.00 MiB<", "role=\"img\"", "> held<"] {
            assert!(picture.contains(part), "no {part} in {picture}");
        }
    }

    #[test]
    fn axes_end_at_round_sizes() {
        let ends = [0, 4097, 5 << 20, (3 << 30) + 1, 900 << 30, u64::MAX].map(round_up);
        assert_eq!(ends, [4 << 10, 8 << 10, 8 << 20, 4 << 30, 1024 << 30, u64::MAX]);
    }

    #[test]
    fn a_line_of_one_moment_has_a_place() {
        let line = Line { class: "held", name: "held", points: vec![(5, 5)] };
        assert!(picture("one", &[line]).into_string().contains("M76.0"));
    }
}
