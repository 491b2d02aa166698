//! In-line deduplication across requests: its controllers, and runs that are still open (iDedup, section 3.4: a run
//! belongs to the file, not to the request).
//!
//! The last blocks of a request may belong to a run that is too short so far. They are stored like small writes, in
//! memory, and their possible holders are remembered here. If the file's next request makes the run long enough, they
//! become references before they ever reach the device. If a commit or a lack of memory writes them out meanwhile, they
//! stay as they are, unless the worker finds that their run is long enough. Data that rides in the log is in memory
//! until it is placed, and its run stays open as long.
//!
//! Nothing here is durable. Losing it costs a duplicate.

use std::time::Duration;

use oncefs_dedup::{
    Admission, AdmissionRule, Blocks, CompressNow, CompressionPace, DuplicateShare, Fingerprinting, RangeError,
    Succession, WritePace,
};

use crate::pace::stopwatch::Stopwatch;
use crate::settings::values::{FingerprintMode, Inline, Settings};
use crate::stats::counters::Count;
use crate::stats::request_timer::RequestTimer;
use crate::sync::{LockRank, Mutex};
use crate::{Lbn, MapId, Pbn, Tag};

/// In-line deduplication of an open volume.
pub struct InlineDedup {
    /// Whether a request is looked up as it is written.
    admission: Mutex<Admission>,
    /// Whether to fingerprint now or later.
    fingerprinting: Mutex<Fingerprinting>,
    /// Runs that may continue with a file's next request.
    streams: Mutex<Streams>,
    /// Where new files may continue from others.
    succession: Mutex<Succession>,
    /// Requests that write to the device at this moment.
    device_writes: Count,
    /// Whether `compress=auto` compresses as blocks are written.
    compression: Mutex<CompressionPace>,
    /// Requests that are compressed at this moment.
    compressing: Count,
    stopwatch: Stopwatch,
}

impl InlineDedup {
    /// Controllers set by the settings, and no open runs.
    pub fn new(settings: &Settings, stopwatch: Stopwatch) -> Self {
        Self {
            admission: Mutex::new(LockRank::Part, Admission::new(settings.rule)),
            fingerprinting: Mutex::new(LockRank::Part, fingerprinting(settings.fingerprints)),
            streams: Mutex::new(LockRank::Part, Streams::default()),
            succession: Mutex::new(LockRank::Part, Succession::default()),
            device_writes: Count::new(0),
            compression: Mutex::new(LockRank::Leaf, CompressionPace::default()),
            compressing: Count::new(0),
            stopwatch,
        }
    }

    /// Whether a request written now is looked up and fingerprinted.
    pub fn admit(&self, mode: Inline, now: Duration) -> bool {
        match mode {
            Inline::Off => false,
            Inline::All => true,
            Inline::Adaptive => self.admission.lock().admit(now),
        }
    }

    /// Whether a few blocks of a request that was not admitted are looked up.
    pub fn is_probed(&self, mode: Inline) -> bool {
        mode == Inline::Adaptive && self.admission.lock().is_probed()
    }

    /// Learns that a probe found a duplicate.
    pub fn note_hit(&self) {
        self.admission.lock().hit();
    }

    /// Whether every block of the next admitted request is fingerprinted, not only those with a candidate.
    pub fn fingerprints_all(&self) -> bool {
        self.fingerprinting.lock().eager()
    }

    /// Whether every block of a request that was not admitted is fingerprinted, too: only if the device hides the cost,
    /// and neither load nor energy is why the request was not admitted.
    pub fn fingerprints_unadmitted(&self, mode: Inline) -> bool {
        let is_limited = self.admission.lock().limit() < 1.0;
        mode == Inline::Adaptive && self.fingerprinting.lock().eager_unadmitted(is_limited)
    }

    /// Learns that `shared` of the `blocks` blocks just written became references.
    pub fn note_request(&self, blocks: u64, shared: u64) {
        assert!(shared <= blocks, "{shared} of {blocks} blocks are shared");
        self.fingerprinting.lock().observe(blocks, shared);
        self.admission.lock().observe(blocks, shared);
    }

    /// A write to the device begins.
    pub fn begin_device_write(&self) -> RequestTimer<'_> {
        RequestTimer::begin(&self.device_writes, self.stopwatch.now())
    }

    /// A write of this many blocks ended. Learns from its time: if several requests write at once, each counts for its
    /// part of the time.
    pub fn end_device_write(&self, timer: RequestTimer<'_>, blocks: u64) {
        let (time, at_once) = timer.end(self.stopwatch.now());
        self.fingerprinting.lock().observe_device(blocks, time / at_once);
        self.compression.lock().observe_device(blocks, time / at_once);
    }

    /// Whether a request is compressed with `compress=auto`. Load and energy bound that as they bound look-ups.
    pub fn compress_now(&self) -> CompressNow {
        let is_limited = self.admission.lock().limit() < 1.0;
        self.compression.lock().next(is_limited)
    }

    /// Blocks of a request are compressed from now on.
    pub fn begin_compression(&self) -> RequestTimer<'_> {
        RequestTimer::begin(&self.compressing, self.stopwatch.now())
    }

    /// So many blocks were compressed, so that `saved` need not be written. Learns from the time, as from that of the
    /// device.
    pub fn end_compression(&self, timer: RequestTimer<'_>, blocks: u64, saved: u64) {
        let (time, at_once) = timer.end(self.stopwatch.now());
        self.compression.lock().observe_compressed(blocks, saved, time / at_once);
    }

    /// Whether `compress=auto` compresses as blocks are written, and the reason as text.
    pub fn compression_state(&self) -> String {
        self.compression.lock().to_string()
    }

    /// Takes out the open run of a file's last request, if it ended where this one begins.
    pub fn take_stream(&self, map: MapId, at: Lbn) -> Stream {
        self.streams.lock().take(map, at)
    }

    /// Remembers the open run of a request. Returns the one that it replaces.
    pub fn keep_stream(&self, map: MapId, stream: Stream) -> Option<(MapId, Stream)> {
        self.streams.lock().put(map, stream)
    }

    /// Pbns that may hold the first block of a new file.
    pub fn begin_file(&self) -> Vec<Pbn> {
        self.succession.lock().begin()
    }

    /// Learns that a file's request of `blocks` blocks ended. If its last block is shared, `shared_end` holds it.
    pub fn end_request(&self, map: MapId, blocks: Blocks, shared_end: Option<Pbn>) {
        self.succession.lock().end(map.0, blocks, shared_end);
    }

    /// Sets how the share of admitted requests follows the duplicates found.
    pub fn set_rule(&self, rule: AdmissionRule) -> Result<(), RangeError> {
        self.admission.lock().set_rule(rule)
    }

    /// Sets the upper bound of that share, from 0 to 1.
    pub fn set_limit(&self, limit: f64) {
        assert!((0.0..=1.0).contains(&limit), "the bound of the share of admitted requests is {limit}");
        self.admission.lock().set_limit(limit);
    }

    /// Sets when blocks are fingerprinted, and forgets what it learned about that.
    pub fn set_fingerprints(&self, mode: FingerprintMode) {
        *self.fingerprinting.lock() = fingerprinting(mode);
    }

    /// The upper bound of the share of admitted requests, and that share, from 0 to 1.
    pub fn limit_and_share(&self, mode: Inline) -> (f64, f64) {
        let admission = self.admission.lock();
        let share = match mode {
            Inline::Off => 0.0,
            Inline::All => 1.0,
            Inline::Adaptive => admission.share(),
        };
        (admission.limit(), share)
    }

    /// Forgets what was measured of device and compression, for other measurements.
    #[cfg(all(test, not(feature = "schedules")))]
    pub fn set_compression_pace(&self, pace: CompressionPace) {
        *self.compression.lock() = pace;
    }

    /// Runs `work` while every request that asks for admission waits.
    #[cfg(all(test, not(feature = "schedules")))]
    pub fn while_admission_waits<T>(&self, work: impl FnOnce() -> T) -> T {
        let _admission = self.admission.lock();
        work()
    }
}

/// The choice of fingerprints that a setting names.
fn fingerprinting(mode: FingerprintMode) -> Fingerprinting {
    match mode {
        FingerprintMode::Eager => Fingerprinting::Eager,
        FingerprintMode::Lazy => Fingerprinting::Lazy,
        FingerprintMode::Auto => Fingerprinting::Auto(DuplicateShare::default(), WritePace::default()),
    }
}

/// Most files remembered: those written last.
const STREAMS_MAX: usize = 64;
/// Most blocks that one file leaves open: one request of 1 MiB.
pub const OPEN_BLOCKS_MAX: usize = 256;

/// A block whose run may go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBlock {
    /// Its place in the file.
    pub lbn: Lbn,
    /// Its temporary place.
    pub pbn: Pbn,
    /// The tag of its content.
    pub tag: Tag,
    /// Possible holders of its content, ascending.
    pub holders: Vec<Pbn>,
}

/// Where a file's last request ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// The block after it.
    pub next: Lbn,
    /// The last blocks of the request that an open run may include, without zero blocks, ascending.
    pub open: Vec<OpenBlock>,
    /// The holder of its last block, if that is shared.
    pub shared_end: Option<Pbn>,
}

impl Stream {
    /// Whether a later request could use it.
    fn is_worth_keeping(&self) -> bool {
        !self.open.is_empty() || self.shared_end.is_some()
    }
}

/// The streams of all files.
///
/// Invariants, asserted by [`Streams::check`]: (1) at most [`STREAMS_MAX`], one per file; (2) none has more than
/// [`OPEN_BLOCKS_MAX`] open blocks, and they lie before its end in ascending order.
#[derive(Debug, Default)]
pub struct Streams(Vec<(MapId, Stream)>);

impl Streams {
    /// Takes a file's stream out if it ends where a request begins. A stream that ends elsewhere is dropped.
    pub fn take(&mut self, map: MapId, at: Lbn) -> Stream {
        let found = self.0.iter().position(|(other, _)| *other == map).map(|index| self.0.remove(index).1);
        found.filter(|stream| stream.next == at).unwrap_or_default()
    }

    /// Remembers where a file's request ended. Drops and returns the stream of the least recently written file if the
    /// list is full.
    pub fn put(&mut self, map: MapId, stream: Stream) -> Option<(MapId, Stream)> {
        self.0.retain(|(other, _)| *other != map);
        if !stream.is_worth_keeping() {
            return None;
        }
        let forgotten = (self.0.len() == STREAMS_MAX).then(|| self.0.remove(0));
        self.0.push((map, stream));
        self.check();
        forgotten
    }

    fn check(&self) {
        assert!(self.0.len() <= STREAMS_MAX, "invariant 1: {} streams", self.0.len());
        if let Some((map, stream)) = self.0.last() {
            let is_ascending = stream.open.is_sorted_by(|a, b| a.lbn < b.lbn);
            let is_before = stream.open.last().is_none_or(|last| last.lbn < stream.next);
            assert!(stream.open.len() <= OPEN_BLOCKS_MAX, "invariant 2: {} blocks of {map:?}", stream.open.len());
            assert!(is_ascending && is_before, "invariant 2: {map:?} {stream:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::profile::Profile;

    #[test]
    fn requests_that_are_not_admitted_are_fingerprinted_on_a_slow_device_unless_the_rate_is_bounded() {
        let inline = InlineDedup::new(&Settings::of(Profile::Edge, 16 << 20), Stopwatch::default());
        assert!(!inline.fingerprints_unadmitted(Inline::Adaptive), "nothing is known of the device");
        inline.fingerprinting.lock().observe_device(1, Duration::from_micros(41));
        let asked = [Inline::Adaptive, Inline::All, Inline::Off].map(|mode| inline.fingerprints_unadmitted(mode));
        assert_eq!(asked, [true, false, false], "only the adaptive rate leaves requests out");
        inline.set_limit(0.5);
        assert!(!inline.fingerprints_unadmitted(Inline::Adaptive), "a battery or load is why");
        let paper = InlineDedup::new(&Settings::of(Profile::Smartdedup, 64 << 20), Stopwatch::default());
        paper.fingerprinting.lock().observe_device(1, Duration::from_micros(41));
        assert!(!paper.fingerprints_unadmitted(Inline::Adaptive), "the paper's share is of requests fingerprinted");
    }

    fn stream(next: u64, open: u64) -> Stream {
        let block = |n| OpenBlock { lbn: Lbn(next - open + n), pbn: Pbn(100 + n), tag: Tag(n), holders: vec![Pbn(n)] };
        Stream { next: Lbn(next), open: (0..open).map(block).collect(), shared_end: None }
    }

    #[test]
    fn a_stream_goes_on_only_where_it_ended() {
        let mut streams = Streams::default();
        streams.put(MapId(1), stream(8, 2));
        streams.put(MapId(2), stream(9, 1));
        assert_eq!(streams.take(MapId(1), Lbn(8)), stream(8, 2));
        assert_eq!(streams.take(MapId(1), Lbn(8)), Stream::default(), "it was taken");
        assert_eq!(streams.take(MapId(2), Lbn(8)), Stream::default(), "it ends elsewhere");
        assert_eq!(streams.take(MapId(2), Lbn(9)), Stream::default(), "so it is over");
    }

    #[test]
    fn the_files_written_last_are_remembered() {
        let mut streams = Streams::default();
        for map in 0..STREAMS_MAX as u64 + 1 {
            streams.put(MapId(map), stream(8, 1));
        }
        assert_eq!(streams.take(MapId(0), Lbn(8)), Stream::default());
        assert_eq!(streams.take(MapId(1), Lbn(8)), stream(8, 1));
        streams.put(MapId(2), Stream::default());
        assert_eq!(streams.take(MapId(2), Lbn(8)), Stream::default(), "nothing is worth nothing");
    }
}
