//! A frame of `oncefs top`: space, throughput, stages, caches, the worker. Everything fits 80 columns and 24 rows.

use oncefs_engine::Stage;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};

use super::rates::{History, Rates};
use crate::commands::stats::{microseconds, percent};
use crate::figures::health::{self, Limits, findings};
use crate::figures::of_mount::Snapshot;
use crate::names::{printable, shown};
use crate::size::Size;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Draws the newest figures.
pub fn draw(frame: &mut Frame, history: &History) {
    let Some(now) = history.now() else { return };
    let rates = Rates::of(history);
    let [head, space, flow, tables, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(3),
        Constraint::Length(6),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let [stages, caches] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(40)]).areas(tables);
    draw_head(frame, head, now);
    frame.render_widget(Paragraph::new(space_lines(now)), space);
    draw_flow(frame, flow, history, &rates);
    draw_stages(frame, stages, &rates);
    draw_caches(frame, caches, now, &rates);
    let keys = format!("q ends   over {:.1} s", rates.seconds);
    frame.render_widget(Paragraph::new(keys).style(Style::new().add_modifier(Modifier::DIM)), foot);
}

fn draw_head(frame: &mut Frame, area: Rect, now: &Snapshot) {
    let found = findings(now, &Limits::default());
    let health = printable(&health::line(&found));
    let style = if found.is_empty() { BOLD } else { BOLD.fg(Color::Red) };
    frame.render_widget(Paragraph::new(format!("oncefs {}  {health}", shown(now.place()))).style(style), area);
}

fn space_lines(now: &Snapshot) -> Vec<Line<'static>> {
    let (held, stored, saved) = (now.held_bytes(), now.stored_bytes(), now.saved_bytes());
    let (held_size, stored_size, saved_size) = (Size(held), Size(stored), Size(saved));
    let (free, host) = (Size(now.space("available_bytes")), Size(now.host.available));
    let left = if now.left_bytes() > 0 { Size(now.left_bytes()).to_string() } else { "nothing".to_owned() };
    vec![
        Line::from(format!("held {held_size}   stored {stored_size}   saved {saved_size} ({})", percent(saved, held))),
        Line::from(format!("free {free} of {}   on the host {host}", Size(now.space("data_bytes")))),
        Line::from(format!("worker: {left} left, {}", printable(&now.worker.doing))),
    ]
}

fn draw_flow(frame: &mut Frame, area: Rect, history: &History, rates: &Rates) {
    let block = Block::bordered().title("per second");
    let [text, curve] = Layout::horizontal([Constraint::Length(58), Constraint::Fill(1)]).areas(block.inner(area));
    frame.render_widget(block, area);
    let read = rates.stage("read").map_or(0.0, |stage| stage.blocks) * 4096.0;
    let lines = [
        [("written", flow(rates.blocks("blocks_written"))), ("read", flow(read)), ("saved", flow(rates.saved()))],
        [
            ("shared", flow(rates.blocks("blocks_shared"))),
            ("by worker", flow(rates.blocks("blocks_remapped"))),
            ("by copies", flow(rates.blocks("blocks_cloned"))),
        ],
        [
            ("device w", flow(rates.counter("data_bytes_written"))),
            ("device r", flow(rates.counter("data_bytes_read"))),
            ("log", flow(rates.counter("log_bytes_written"))),
        ],
        [
            ("commits", number(rates.counter("groups_committed"))),
            ("barriers", number(rates.counter("barriers"))),
            ("checkpts", number(rates.counter("checkpoints"))),
        ],
    ];
    let cell = |(name, value): &(&str, String)| format!("{name:<9}{value:>9}");
    let lines = lines.map(|cells| Line::from(cells.iter().map(cell).collect::<Vec<_>>().join("  ")));
    frame.render_widget(Paragraph::new(Vec::from(lines)), text);
    let width = usize::from(curve.width);
    let newest: Vec<u64> = history.written.iter().rev().take(width).rev().copied().collect();
    frame.render_widget(Sparkline::default().data(newest), curve);
}

/// Bytes per second, which may be negative: a saving may shrink.
fn flow(bytes: f64) -> String {
    let sign = if bytes <= -1.0 { "-" } else { "" };
    format!("{sign}{}", Size(bytes.abs() as u64))
}

fn number(events: f64) -> String {
    format!("{events:.1}")
}

fn draw_stages(frame: &mut Frame, area: Rect, rates: &Rates) {
    let rows = Stage::ALL.map(|stage| {
        let cells = match rates.stage(stage.name()) {
            None => ["-".to_owned(), "-".to_owned(), "-".to_owned()],
            Some(rate) => [
                format!("{:.0}", rate.blocks),
                microseconds(rate.latency.mean_us()),
                format!("<{}", microseconds(rate.latency.percentile_us_max(0.95) as f64)),
            ],
        };
        let [blocks, mean, p95] = cells;
        let (blocks, mean, p95) = (right(&blocks), right(&mean), format!("{p95:>9}"));
        Row::new([stage.name().to_owned(), blocks, mean, p95])
    });
    let head = Row::new(["stage".to_owned(), right("blocks/s"), right("mean"), format!("{:>9}", "p95")]).style(BOLD);
    let widths = [Constraint::Length(8), Constraint::Length(8), Constraint::Length(8), Constraint::Length(9)];
    frame.render_widget(Table::new(rows, widths).header(head).block(Block::bordered().title("latency")), area);
}

fn right(word: &str) -> String {
    format!("{word:>8}")
}

fn draw_caches(frame: &mut Frame, area: Rect, now: &Snapshot, rates: &Rates) {
    let rows = now.report.caches.iter().map(|(name, cache)| {
        let ratio = rates.hit_ratio(name).map_or_else(|| "-".to_owned(), |ratio| format!("{:.0} %", ratio * 100.0));
        let [used, max] = [cache.bytes, cache.bytes_max].map(|bytes| format!("{:>8}", Size(bytes).to_string()));
        Row::new([name.clone(), used, max, format!("{ratio:>6}")])
    });
    let head = Row::new(["cache".to_owned(), right("used"), right("max"), format!("{:>6}", "hits")]).style(BOLD);
    let widths = [Constraint::Length(13), Constraint::Length(8), Constraint::Length(8), Constraint::Length(6)];
    frame.render_widget(Table::new(rows, widths).header(head).block(Block::bordered().title("caches")), area);
}

/// A frame as lines of text.
pub fn text(buffer: &Buffer) -> String {
    let cell = |column, row| buffer.cell((column, row)).map_or(" ", |cell| cell.symbol());
    let line = |row| (0..buffer.area.width).map(|column| cell(column, row)).collect::<String>();
    (0..buffer.area.height).map(|row| format!("{}\n", line(row).trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use oncefs_engine::{CacheReport, Histogram, StageReport};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::rates::Moment;
    use super::*;
    use crate::figures::of_mount::HostSpace;

    fn snapshot(turn: u64) -> Snapshot {
        let mut snapshot = Snapshot { volume: "/srv/v".into(), mount: Some("/mnt".into()), ..Snapshot::default() };
        snapshot.host = HostSpace { size: 10 << 30, available: 4 << 30 };
        for (name, mib) in [("mapped_bytes", 300), ("used_bytes", 100), ("data_bytes", 1024), ("available_bytes", 924)]
        {
            snapshot.report.space.insert(name.to_owned(), mib << 20);
        }
        snapshot.report.counters.insert("blocks_written".to_owned(), turn * 512);
        for stage in Stage::ALL {
            let latency =
                Histogram { count: 10 * turn, nanoseconds: 30_000_000 * turn, classes: vec![0, 0, 0, 10 * turn] };
            snapshot.report.stages.insert(stage.name().to_owned(), StageReport { blocks: 100 * turn, latency });
        }
        for name in ["hints", "hints_on_disk", "inodes", "read", "records", "shards", "skipped", "table"] {
            let cache = CacheReport { bytes: 1 << 20, bytes_max: 4 << 20, hits: 3 * turn, misses: turn };
            snapshot.report.caches.insert(name.to_owned(), cache);
        }
        snapshot.worker.doing = "waits until the volume is idle".to_owned();
        snapshot
    }

    fn history() -> History {
        let (mut history, now) = (History::default(), Instant::now());
        history.add(Moment { snapshot: snapshot(0), at: now });
        history.add(Moment { snapshot: snapshot(1), at: now + Duration::from_secs(2) });
        history
    }

    fn drawn(columns: u16, rows: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(frame, &history())).unwrap();
        text(terminal.backend().buffer())
    }

    #[test]
    fn everything_fits_the_smallest_terminal() {
        let text = drawn(80, 24);
        assert_eq!(text.lines().count(), 24);
        for part in [
            "oncefs /mnt  healthy",
            "held 300 MiB   stored 100 MiB   saved 200 MiB (66.7 %)",
            "free 924 MiB of 1.00 GiB   on the host 4.00 GiB",
            "written   1.00 MiB",
            "q ends   over 2.0 s",
            "worker: nothing left, waits until the volume is idle",
        ] {
            assert!(text.contains(part), "no '{part}' in\n{text}");
        }
        for stage in Stage::ALL {
            let begin = format!("\u{2502}{} ", stage.name());
            let row = text.lines().find(|line| line.starts_with(&begin)).unwrap_or_else(|| panic!("{text}"));
            assert!(row.contains("50") && row.contains("3.0 ms") && row.contains("<8 us"), "{row}");
        }
        for cache in ["hints_on_disk", "records", "table"] {
            assert!(text.contains(cache) && text.contains("75 %"), "{cache} in\n{text}");
        }
    }

    #[test]
    fn any_size_of_the_terminal_can_be_drawn() {
        for (columns, rows) in [(1, 1), (20, 5), (79, 23), (200, 60)] {
            assert_eq!(drawn(columns, rows).lines().count(), usize::from(rows));
        }
    }
}
