//! The table of all figures.

use std::sync::LazyLock;

use oncefs_engine::{BLOCK_BYTES, COUNTER_MEANINGS, CacheReport, RankReport, Stage, StageReport, settings};

use super::cluster;
use super::figure::{Figure, Kind, Source, Unit, Value};
use super::of_mount::{
    CLUSTER_SILENT, DATA_POOL_FULL, DISK_RESERVE_BYTES, POOL_FULL, Snapshot, WAITED_FOR_ROOM, WAITED_IN_VAIN,
    WAITING_FOR_ROOM,
};

/// All figures: those of the groups, the counters, the settings.
pub static FIGURES: LazyLock<Vec<Figure>> = LazyLock::new(|| {
    let counters = COUNTER_MEANINGS.iter().map(|&(name, meaning)| Figure {
        group: "counters",
        name,
        kind: Kind::Counter,
        unit: if name.contains("bytes") { Unit::Bytes } else { Unit::Things },
        meaning,
        source: Source::Counter,
    });
    let set = settings::descriptions().map(|(name, _, meaning, _)| setting(name, meaning));
    let facts = FACTS.iter().map(|&(name, meaning)| setting(name, meaning));
    GROUPS.iter().chain(cluster::FIGURES).copied().chain(counters).chain(facts).chain(set).collect()
});

/// Values of a mount that are not settings of `oncefs tune`.
const FACTS: [(&str, &str); 3] = [
    ("memory_bytes_max", "The store's part of the memory of the mount, in bytes."),
    ("profile", "The profile that the mount uses."),
    ("read_only", "Whether the store was opened read-only."),
];

const fn setting(name: &'static str, meaning: &'static str) -> Figure {
    Figure { group: "settings", name, kind: Kind::Fact, unit: Unit::Any, meaning, source: Source::Setting }
}

type One = fn(&Snapshot) -> Option<Value>;

const fn gauge(group: &'static str, name: &'static str, unit: Unit, value: One, meaning: &'static str) -> Figure {
    Figure { group, name, kind: Kind::Gauge, unit, meaning, source: Source::One(value) }
}

const fn counter(group: &'static str, name: &'static str, unit: Unit, value: One, meaning: &'static str) -> Figure {
    Figure { group, name, kind: Kind::Counter, unit, meaning, source: Source::One(value) }
}

const fn fact(group: &'static str, name: &'static str, unit: Unit, value: One, meaning: &'static str) -> Figure {
    Figure { group, name, kind: Kind::Fact, unit, meaning, source: Source::One(value) }
}

type Values = fn(&Snapshot) -> Vec<(String, Value)>;

const fn of_stage(name: &'static str, kind: Kind, unit: Unit, values: Values, meaning: &'static str) -> Figure {
    Figure { group: "stages", name, kind, unit, meaning, source: Source::Each { label: "stage", values } }
}

const fn of_cache(name: &'static str, kind: Kind, unit: Unit, values: Values, meaning: &'static str) -> Figure {
    Figure { group: "caches", name, kind, unit, meaning, source: Source::Each { label: "cache", values } }
}

const fn of_rank(name: &'static str, kind: Kind, unit: Unit, values: Values, meaning: &'static str) -> Figure {
    Figure { group: "ranks", name, kind, unit, meaning, source: Source::Each { label: "rank", values } }
}

fn whole(value: u64) -> Option<Value> {
    Some(Value::Whole(value))
}

fn truth(value: bool) -> Option<Value> {
    Some(Value::Truth(value))
}

fn words(value: &str) -> Option<Value> {
    Some(Value::Words(value.to_owned()))
}

fn stages(snapshot: &Snapshot, value: impl Fn(&StageReport) -> Value) -> Vec<(String, Value)> {
    snapshot.report.stages.iter().map(|(name, stage)| (name.clone(), value(stage))).collect()
}

fn caches(snapshot: &Snapshot, value: impl Fn(&CacheReport) -> u64) -> Vec<(String, Value)> {
    snapshot.report.caches.iter().map(|(name, cache)| (name.clone(), Value::Whole(value(cache)))).collect()
}

fn ranks(snapshot: &Snapshot, value: impl Fn(&RankReport) -> Option<u64>) -> Vec<(String, Value)> {
    let ranks = snapshot.report.ranks.iter();
    ranks.filter_map(|(name, rank)| Some((name.clone(), Value::Whole(value(rank)?)))).collect()
}

const LEFT: &str = "Blocks that were stored anew, looked up in-line or not, and that the worker still has to compare \
    with all others. It knows them one by one; see left_files for the others.";

const GROUPS: &[Figure] = &[
    gauge(
        "space",
        "held_bytes",
        Unit::Bytes,
        |s| whole(s.held_bytes()),
        "What all files hold, each block counted as \
        often as files have it. Holes count nothing.",
    ),
    gauge(
        "space",
        "stored_bytes",
        Unit::Bytes,
        |s| whole(s.stored_bytes()),
        "What the data area holds for them: each \
        content once.",
    ),
    gauge(
        "space",
        "saved_bytes",
        Unit::Bytes,
        |s| whole(s.saved_bytes()),
        "What sharing saves: held_bytes less \
        stored_bytes.",
    ),
    gauge(
        "space",
        "data_bytes",
        Unit::Bytes,
        |s| whole(s.space("data_bytes")),
        "The size of the data area, which mkfs \
        and grow set.",
    ),
    gauge(
        "space",
        "available_bytes",
        Unit::Bytes,
        |s| whole(s.space("available_bytes")),
        "Unique bytes that can still \
        be written, as far as the data area and the host have room.",
    ),
    gauge(
        "space",
        "reserved_bytes",
        Unit::Bytes,
        |s| whole(s.space("reserved_bytes")),
        "Promised by fallocate and not \
        written yet.",
    ),
    gauge(
        "space",
        "waiting_for_room",
        Unit::Things,
        |s| whole(s.space(WAITING_FOR_ROOM)),
        "Writes of disks that wait for room, because \
        the volume is full.",
    ),
    counter(
        "space",
        "waited_for_room",
        Unit::Things,
        |s| whole(s.space(WAITED_FOR_ROOM)),
        "Writes of disks that waited for room and have \
        an answer.",
    ),
    counter(
        "space",
        "waited_in_vain",
        Unit::Things,
        |s| whole(s.space(WAITED_IN_VAIN)),
        "Those of them for which no room came in time: \
        they failed, or were done with room of the reserve.",
    ),
    gauge(
        "space",
        "disk_reserve_bytes",
        Unit::Bytes,
        |s| whole(s.space(DISK_RESERVE_BYTES)),
        "The room that disks leave to files while they \
        wait for more.",
    ),
    gauge(
        "space",
        "pool_full",
        Unit::Things,
        |s| whole(s.space(POOL_FULL)),
        "1 while the pool with the volume's objects takes no new \
        data.",
    ),
    gauge(
        "space",
        "data_pool_full",
        Unit::Things,
        |s| whole(s.space(DATA_POOL_FULL)),
        "1 while the pool with the data area alone (mkfs --data-pool) \
        takes no new data.",
    ),
    gauge(
        "space",
        "cluster_silent",
        Unit::Things,
        |s| whole(s.space(CLUSTER_SILENT)),
        "1 while requests wait for the cluster with the \
        volume's objects, because it does not answer.",
    ),
    gauge(
        "space",
        "compressed_bytes",
        Unit::Bytes,
        |s| whole(s.space("compressed_bytes")),
        "Contents that are kept compressed, before compression.",
    ),
    gauge(
        "space",
        "fragment_bytes",
        Unit::Bytes,
        |s| whole(s.space("fragment_bytes")),
        "What these contents take, gaps in packs not counted.",
    ),
    gauge(
        "space",
        "pack_bytes",
        Unit::Bytes,
        |s| whole(s.space("pack_bytes")),
        "What the blocks of packs take: these contents, gaps and directories.",
    ),
    gauge(
        "space",
        "staged_bytes",
        Unit::Bytes,
        |s| whole(s.space("staged_bytes")),
        "Published and still in memory, or \
        in the log, on the way to the data area.",
    ),
    gauge(
        "space",
        "bad_bytes",
        Unit::Bytes,
        |s| whole(s.space("bad_bytes")),
        "In blocks that are known to be damaged. \
        oncefs scrub --status names the files.",
    ),
    gauge(
        "space",
        "metadata_bytes",
        Unit::Bytes,
        |s| whole(s.space("metadata_bytes")),
        "What the volume's other files \
        take on the host: names, maps, block table, log, hints.",
    ),
    gauge(
        "host",
        "size_bytes",
        Unit::Bytes,
        |s| whole(s.host.size),
        "The size of the file system that the volume's \
        directory lies on.",
    ),
    gauge(
        "host",
        "available_bytes",
        Unit::Bytes,
        |s| whole(s.host.available),
        "What can still be written to the file \
        system that the volume's directory lies on.",
    ),
    gauge("worker", "left_bytes", Unit::Bytes, |s| whole(s.left_bytes()), LEFT),
    gauge(
        "worker",
        "left_files",
        Unit::Things,
        |s| whole(s.worker.skipped_files),
        "Files that the worker will look at \
        as a whole, because their blocks are not known one by one.",
    ),
    fact("worker", "doing", Unit::Words, |s| words(&s.worker.doing), "What the worker does, or why it does nothing."),
    fact("worker", "is_paused", Unit::Truth, |s| truth(s.worker.paused), "Whether oncefs dedup --pause stopped it."),
    fact("worker", "is_now", Unit::Truth, |s| truth(s.worker.now), "Whether oncefs dedup --now is under way."),
    fact(
        "worker",
        "is_full_pass",
        Unit::Truth,
        |s| truth(s.worker.full_pass),
        "Whether a pass over all blocks is due \
        or under way.",
    ),
    gauge(
        "worker",
        "pass_blocks",
        Unit::Blocks,
        |s| whole(s.worker.pass_blocks),
        "Blocks that the pass will see, \
        about.",
    ),
    gauge(
        "worker",
        "pass_blocks_done",
        Unit::Blocks,
        |s| whole(s.worker.pass_blocks_done),
        "Blocks that the pass has \
        seen.",
    ),
    gauge(
        "worker",
        "rebuild_pages",
        Unit::Things,
        |s| whole(s.worker.rebuild_pages),
        "Pages of the block table to be \
        read until the hint store is filled; 0: it is.",
    ),
    gauge(
        "worker",
        "rebuild_pages_done",
        Unit::Things,
        |s| whole(s.worker.rebuild_pages_done),
        "Those of them that \
        were read.",
    ),
    gauge(
        "worker",
        "inline_percent",
        Unit::Percent,
        |s| Some(Value::Real(s.worker.inline_percent)),
        "The share of the \
        written requests that are looked up at once.",
    ),
    gauge(
        "worker",
        "inline_percent_max",
        Unit::Percent,
        |s| Some(Value::Real(s.worker.inline_percent_max)),
        "The bound \
        that load and power set to that share now.",
    ),
    fact(
        "worker",
        "compression",
        Unit::Words,
        |s| words(&s.worker.compression),
        "When blocks are compressed, and with compress=auto why.",
    ),
    fact("worker", "power", Unit::Words, |s| words(&s.worker.power), "Where the machine's power comes from."),
    fact("worker", "schedule", Unit::Words, |s| words(&s.worker.schedule), "The hours in which the worker may run."),
    fact("scrub", "state", Unit::Words, |s| words(&s.scrub.state), "never, running, paused, stopped or finished."),
    gauge(
        "scrub",
        "passes",
        Unit::Things,
        |s| whole(s.scrub.passes),
        "Passes that the scrub finished in the volume's \
        life.",
    ),
    gauge("scrub", "pass_blocks", Unit::Blocks, |s| whole(s.scrub.blocks), "Blocks that the pass reads, about."),
    gauge("scrub", "pass_blocks_done", Unit::Blocks, |s| whole(s.scrub.blocks_done), "Blocks that the pass has read."),
    gauge(
        "scrub",
        "lost_bytes",
        Unit::Bytes,
        |s| whole(s.scrub.blocks_lost * BLOCK_BYTES as u64),
        "In damaged blocks \
        whose content is nowhere else: reading them fails.",
    ),
    gauge(
        "scrub",
        "unknown_bytes",
        Unit::Bytes,
        |s| whole(s.scrub.unknown.blocks * BLOCK_BYTES as u64),
        "In blocks of \
        which the block table says nothing, because it is damaged there. fsck -y makes the entries anew.",
    ),
    gauge(
        "device",
        "piece_blocks",
        Unit::Blocks,
        |s| Some(Value::Real(s.report.device.piece_blocks)),
        "What one more \
        piece of a file costs its readers, in blocks of sequential reading.",
    ),
    fact(
        "device",
        "piece_is_measured",
        Unit::Truth,
        |s| truth(s.report.device.piece_is_measured),
        "Whether that was \
        measured; otherwise it is what is expected of the device.",
    ),
    Figure {
        group: "device",
        name: "read_sizes",
        kind: Kind::Histogram,
        unit: Unit::Lengths,
        meaning: "Requests that read blocks of files from the device, by how many blocks they read.",
        source: Source::One(|s| Some(Value::Lengths(s.report.device.read_sizes.clone()))),
    },
    of_stage(
        "blocks",
        Kind::Counter,
        Unit::Blocks,
        |s| stages(s, |stage| Value::Whole(stage.blocks)),
        "Blocks that \
        passed the stage.",
    ),
    of_stage(
        "latency",
        Kind::Histogram,
        Unit::Times,
        |s| stages(s, |stage| Value::Times(stage.latency.clone())),
        "How \
        long the stage took, for each batch of blocks.",
    ),
    of_cache("bytes", Kind::Gauge, Unit::Bytes, |s| caches(s, |cache| cache.bytes), "What the cache holds."),
    of_cache("bytes_max", Kind::Gauge, Unit::Bytes, |s| caches(s, |cache| cache.bytes_max), "What it may hold."),
    of_cache("hits", Kind::Counter, Unit::Things, |s| caches(s, |cache| cache.hits), "Look-ups that it answered."),
    of_cache(
        "misses",
        Kind::Counter,
        Unit::Things,
        |s| caches(s, |cache| cache.misses),
        "Look-ups that it could not \
        answer.",
    ),
    of_rank(
        "files",
        Kind::Gauge,
        Unit::Things,
        |s| ranks(s, |rank| Some(rank.files)),
        "Files of the rank, of those \
        that its queue knows; about, after a crash.",
    ),
    of_rank(
        "ranked",
        Kind::Counter,
        Unit::Things,
        |s| ranks(s, |rank| Some(rank.ranked)),
        "How often a file got the \
        rank.",
    ),
    of_rank(
        "waits_seconds",
        Kind::Gauge,
        Unit::Seconds,
        |s| ranks(s, |rank| rank.waits_seconds),
        "How long the oldest \
        place of the rank's queue has been there; missing where the queue is empty.",
    ),
];

/// The meaning of a label of figures with several values.
pub fn label_meaning(label: &str) -> String {
    match label {
        "cache" => {
            "read: blocks of files. table: the block table. shards: maps of files. hints, hints_on_disk: the hint \
            store. skipped: what the worker has left. records: RocksDB. inodes: attributes of files."
                .to_owned()
        }
        "rank" => {
            "new: not judged yet. sequential: in use, and read mostly in sequence. random: in use, and read mostly \
            at random. cold: not used for long."
                .to_owned()
        }
        _ => Stage::ALL.map(|stage| format!("{}: {}", stage.name(), stage.meaning())).join(" "),
    }
}

/// The figures of a path, a last name, or a group.
pub fn named(name: &str) -> Vec<&'static Figure> {
    let exact: Vec<&Figure> = FIGURES.iter().filter(|figure| figure.path() == name || figure.name == name).collect();
    if exact.is_empty() { FIGURES.iter().filter(|figure| figure.group == name).collect() } else { exact }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_figure_has_a_path_of_its_own_and_a_meaning_of_whole_sentences() {
        let paths: BTreeSet<String> = FIGURES.iter().map(Figure::path).collect();
        assert_eq!(paths.len(), FIGURES.len());
        for figure in FIGURES.iter().filter(|figure| figure.group != "settings") {
            let meaning = figure.meaning;
            assert!(meaning.ends_with('.') && meaning.len() > 12, "{}: {meaning}", figure.path());
        }
    }

    #[test]
    fn bytes_seconds_and_percent_stand_in_the_names() {
        for figure in FIGURES.iter() {
            let unit = match figure.unit {
                Unit::Bytes => "bytes",
                Unit::Seconds => "seconds",
                Unit::Percent => "percent",
                _ => continue,
            };
            assert!(figure.name.contains(unit), "{} is in {unit}", figure.path());
        }
    }

    #[test]
    fn a_figure_is_found_by_its_path_its_name_and_its_group() {
        assert_eq!(named("space.held_bytes").len(), 1);
        assert_eq!(named("blocks_shared").len(), 1);
        assert_eq!(named("available_bytes").len(), 2);
        assert!(named("counters").len() > 40 && named("nothing").is_empty());
    }
}
