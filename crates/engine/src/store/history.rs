//! The file `history`: how much a volume held, stored and had free over time. Advice: a failure never affects the
//! volume, and a full disk costs only points.
//!
//! A point is appended without a flush, so a crash may cost the last ones. When the file has grown it is thinned and
//! replaced as a whole.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::format::history::{HistoryPoint, POINT_BYTES};
use crate::stats::thinning::{POINTS_KEPT_MAX, thin};
use crate::{BLOCK_BYTES, Store};

const NAME: &str = "history";
/// The thinned file, before it replaces the other.
const NEW_NAME: &str = "history.new";
/// The file is thinned at this many points. Afterwards there is room for as many again.
const POINTS_MAX: usize = 2 * POINTS_KEPT_MAX;
const _: () = assert!(POINTS_MAX == 1800, "docs/format.md says so");

/// The history of a volume that is open for changes.
#[derive(Debug)]
pub struct History {
    volume: PathBuf,
    /// Bytes that this mount had read and written at the last point.
    counted: (u64, u64),
}

impl History {
    /// The history of the volume in this directory.
    pub fn of(volume: &Path) -> Self {
        Self { volume: volume.to_owned(), counted: (0, 0) }
    }

    /// Appends the volume's present figures, in seconds since 1970.
    ///
    /// # Errors
    ///
    /// An error of the host, for instance that it is full. Then the history has no point for this moment.
    pub fn note(&mut self, store: &Store, now: u64) -> io::Result<()> {
        let report = store.report();
        let counted = traffic(&report.counters);
        let space = |name: &str| report.space.get(name).copied().unwrap_or(0);
        self.append(HistoryPoint {
            seconds: now,
            held: space("mapped_bytes"),
            stored: space("used_bytes"),
            free: space("available_bytes"),
            backlog: store.dedup_status().skipped_blocks * BLOCK_BYTES as u64,
            read: counted.0.saturating_sub(self.counted.0),
            written: counted.1.saturating_sub(self.counted.1),
        })?;
        self.counted = counted;
        Ok(())
    }

    fn append(&self, point: HistoryPoint) -> io::Result<()> {
        let mut options = File::options();
        let file = options.create(true).truncate(false).write(true).mode(0o600).open(self.volume.join(NAME))?;
        let whole = file.metadata()?.len() / POINT_BYTES as u64;
        if whole < POINTS_MAX as u64 {
            // Overwrites a partial record that a crash left at the end.
            return file.write_all_at(&point.encode(), whole * POINT_BYTES as u64);
        }
        let mut points = Self::read(&self.volume)?;
        points.push(point);
        self.replace(&thin(points, point.seconds))
    }

    fn replace(&self, points: &[HistoryPoint]) -> io::Result<()> {
        let new = self.volume.join(NEW_NAME);
        let write = || {
            let mut options = File::options();
            let file = options.create(true).truncate(true).write(true).mode(0o600).open(&new)?;
            let bytes: Vec<u8> = points.iter().flat_map(HistoryPoint::encode).collect();
            file.write_all_at(&bytes, 0)?;
            // Otherwise a crash could leave neither the old file nor the new one.
            file.sync_all()?;
            fs::rename(&new, self.volume.join(NAME))
        };
        write().inspect_err(|_| drop(fs::remove_file(&new)))
    }

    /// The points of a volume, oldest first, whether it is mounted or not. Damaged points are left out.
    ///
    /// # Errors
    ///
    /// An error of the host. A volume without the file has no points.
    pub fn read(volume: &Path) -> io::Result<Vec<HistoryPoint>> {
        let mut bytes = Vec::new();
        match File::open(volume.join(NAME)) {
            Ok(file) => file.take(2 * (POINTS_MAX * POINT_BYTES) as u64).read_to_end(&mut bytes)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
            Err(e) => return Err(e),
        };
        let records = bytes.as_chunks::<POINT_BYTES>().0;
        let mut points: Vec<HistoryPoint> = records.iter().filter_map(HistoryPoint::decode).collect();
        points.sort_by_key(|point| point.seconds);
        Ok(points)
    }
}

/// Bytes read and written since the mount.
fn traffic(counters: &BTreeMap<String, u64>) -> (u64, u64) {
    let sum = |names: &[&str]| names.iter().filter_map(|name| counters.get(*name)).sum();
    let written = ["data_bytes_written", "log_bytes_written", "table_bytes_written", "record_bytes_written"];
    (sum(&["data_bytes_read"]), sum(&written))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backend, Blocks, OpenOptions};

    const HOUR_SECONDS: u64 = 3600;

    fn point(seconds: u64) -> HistoryPoint {
        HistoryPoint { seconds, held: seconds, ..HistoryPoint::default() }
    }

    fn moments(volume: &Path) -> Vec<u64> {
        History::read(volume).unwrap().iter().map(|point| point.seconds).collect()
    }

    #[test]
    fn a_damaged_record_costs_itself_and_a_torn_one_is_written_over() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(moments(dir.path()), [0; 0], "no file, no points");
        let history = History::of(dir.path());
        (1..=4).for_each(|at| history.append(point(at)).unwrap());
        let path = dir.path().join(NAME);
        let mut bytes = fs::read(&path).unwrap();
        bytes[POINT_BYTES + 3] ^= 1;
        fs::write(&path, &bytes[..3 * POINT_BYTES + 10]).unwrap();
        assert_eq!(moments(dir.path()), [1, 3]);
        history.append(point(5)).unwrap();
        assert_eq!(moments(dir.path()), [1, 3, 5]);
        assert_eq!(fs::metadata(&path).unwrap().len(), 4 * POINT_BYTES as u64);
    }

    #[test]
    fn the_file_is_bounded_and_keeps_the_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let (history, began) = (History::of(dir.path()), 1_700_000_000);
        let count = 2 * POINTS_MAX as u64;
        for hour in 0..count {
            history.append(point(began + hour * HOUR_SECONDS)).unwrap();
            let bytes = fs::metadata(dir.path().join(NAME)).unwrap().len();
            assert!(bytes <= (POINTS_MAX * POINT_BYTES) as u64, "{bytes} bytes after {hour} hours");
        }
        let kept = moments(dir.path());
        assert!(kept[0] < began + 24 * HOUR_SECONDS, "the first day is there");
        assert_eq!(kept.last(), Some(&(began + (count - 1) * HOUR_SECONDS)));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_file_that_cannot_be_thinned_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let history = History::of(dir.path());
        let bytes: Vec<u8> = (1..=POINTS_MAX as u64).flat_map(|at| point(at).encode()).collect();
        fs::write(dir.path().join(NAME), &bytes).unwrap();
        fs::create_dir(dir.path().join(NEW_NAME)).unwrap();
        assert!(history.append(point(1 << 30)).is_err());
        assert_eq!(fs::read(dir.path().join(NAME)).unwrap(), bytes);
    }

    #[test]
    fn a_point_has_the_volumes_figures_and_the_traffic_since_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let (backend, data) = (Backend::in_memory(Blocks(4096)), Blocks(4096));
        Store::format_on(&backend, data).unwrap();
        let store = Store::open_on(backend, &OpenOptions::new(32 << 20)).unwrap();
        let mut history = History::of(dir.path());
        let map = store.new_map();
        for at in 0..2 {
            store.write(map, at * BLOCK_BYTES as u64, &[1 + at as u8; BLOCK_BYTES], |_, _| ()).unwrap();
            store.commit().unwrap();
            history.note(&store, 10 + at).unwrap();
        }
        history.note(&store, 12).unwrap();
        let points = History::read(dir.path()).unwrap();
        let totals = store.totals();
        assert_eq!(points.iter().map(|point| point.held).collect::<Vec<_>>(), [4096, 8192, 8192]);
        assert_eq!((points[2].stored, points[2].free), (totals.used.bytes(), store.available().bytes()));
        assert!(points[1].written > 0, "{points:?}");
        assert_eq!((points[2].seconds, points[2].read, points[2].written), (12, 0, 0), "nothing happened");
    }
}
