//! An open volume: it makes the parts, and owns them.

use std::sync::Arc;

use crate::base::{BaseParts, Parts};
use crate::commit::change_room::ChangeRoom;
use crate::commit::checkpoint::Commits;
use crate::commit::commit_group::GroupCommitter;
use crate::damage::affected_files::AffectedFiles;
use crate::damage::lost_places::LostPlaces;
use crate::damage::repair::Repairs;
use crate::damage::replicas::Replicas;
use crate::damage::scrub::Scrubber;
use crate::hints::levels::HintLevels;
use crate::layout::comparison::Comparer;
use crate::layout::content_search::ContentSearch;
use crate::layout::defrag::portion::Defragmenter;
use crate::layout::explain::Explainer;
use crate::layout::referrers::ReferrerSearch;
use crate::place::free_blocks::FreeBlocks;
use crate::place::write_out::BlockWriter;
use crate::policy::effective::FilePolicies;
use crate::read::damage_reports::DamageReports;
use crate::read::device::DataReader;
use crate::read::fragments::FragmentReader;
use crate::read::replicas::ReplicaReader;
use crate::read::steps::Reader;
use crate::read::stored::BlockReader;
use crate::state::loading::Metadata;
use crate::worker::compress::BlockCompressor;
use crate::worker::conversion::Converter;
use crate::worker::expand::BlockExpander;
use crate::worker::find_fragments::FragmentFinder;
use crate::worker::live_fragments::PackReader;
use crate::worker::probe::DeviceProbe;
use crate::worker::rank_files::FileRanker;
use crate::worker::repack::Repacker;
use crate::worker::revisit::Revisits;
use crate::worker::sparse_packs::SparsePacks;
use crate::worker::work_loop::WorkLoop;
use crate::worker::worklist::Worklist;
use crate::write::admission::Admission;
use crate::write::backlog_notes::BacklogNotes;
use crate::write::confirm::BatchConfirmer;
use crate::write::confirm_remaps::RemapConfirmer;
use crate::write::decide::Decider;
use crate::write::extension::Extender;
use crate::write::free_detached_maps::Reclaimer;
use crate::write::in_line_compression::InLineCompressor;
use crate::write::lazy_clone::LazyClones;
use crate::write::partial_blocks::PartialBlocks;
use crate::write::pieces::RangeChanges;
use crate::write::place::Placer;
use crate::write::publish::Publisher;
use crate::write::publish_batch::BatchPublisher;
use crate::write::range_parts::RangeParts;
use crate::write::remap::Remapper;
use crate::write::share_open::OpenRunSharer;
use crate::write::steps::Writer;
use crate::write::under_way::UnderWay;

/// Declares a volume of these parts, and makes each of `base` and of those before it.
macro_rules! volume {
    ($($part:ident = $type:ident($($used:ident),*);)+) => {
        /// An open volume.
        ///
        /// Each part has just the parts that its functions use, in private fields: what a reader has can neither
        /// allocate nor publish. A part is made after those that it uses, so none uses the whole.
        /// `sync/lock_order.rs` has the order of all locks.
        pub struct Volume {
            /// The parts that own state.
            pub base: BaseParts,
            $(#[allow(dead_code, reason = "only other parts or tests use some")] pub $part: Arc<$type>,)+
        }

        impl Volume {
            /// Makes the parts, the lower ones first.
            pub fn new(parts: Parts) -> Self {
                let base = BaseParts::new(parts);
                $(let $part = Arc::new($type::new(&base, $(&$used),*));)+
                Self { base, $($part),+ }
            }
        }
    };
}

volume! {
    metadata = Metadata();
    block_writer = BlockWriter();
    free_blocks = FreeBlocks(metadata, block_writer);
    file_policies = FilePolicies(metadata);
    hint_levels = HintLevels(metadata);
    damage_reports = DamageReports();
    backlog_notes = BacklogNotes(file_policies);
    change_room = ChangeRoom();
    fragment_reader = FragmentReader(metadata);
    data_reader = DataReader(file_policies, fragment_reader);
    replica_reader = ReplicaReader(metadata, data_reader);
    block_reader = BlockReader(metadata, data_reader, replica_reader, damage_reports);
    reader = Reader(metadata, data_reader, block_reader);
    groups = GroupCommitter(block_writer, change_room);
    commits = Commits(metadata, groups, block_writer, change_room);
    publisher = Publisher(metadata, hint_levels, change_room, commits, file_policies, damage_reports, backlog_notes);
    lazy_clones = LazyClones(metadata, publisher);
    extender = Extender(metadata);
    remap_confirmer = RemapConfirmer(block_reader, damage_reports);
    remapper = Remapper(metadata, lazy_clones, publisher, backlog_notes, hint_levels);
    admission = Admission();
    in_line_compressor = InLineCompressor(file_policies);
    under_way = UnderWay(hint_levels);
    placer = Placer(free_blocks, block_writer, under_way);
    decider = Decider(metadata, file_policies, backlog_notes, extender);
    batch_confirmer = BatchConfirmer(metadata, placer, block_reader, damage_reports);
    batch_publisher = BatchPublisher(metadata, free_blocks, block_writer, placer, lazy_clones, publisher);
    open_run_sharer = OpenRunSharer(metadata, remap_confirmer, remapper);
    partial_blocks = PartialBlocks(metadata, free_blocks, reader);
    writer = Writer(metadata, file_policies, lazy_clones, backlog_notes, partial_blocks, admission, decider,
        batch_confirmer, in_line_compressor, placer, batch_publisher, open_run_sharer, under_way);
    range_parts = RangeParts(metadata, free_blocks, lazy_clones);
    range_changes = RangeChanges(metadata, free_blocks, file_policies, publisher, block_writer, partial_blocks,
        range_parts);
    referrer_search = ReferrerSearch(metadata);
    comparer = Comparer(metadata, referrer_search);
    content_search = ContentSearch(metadata, block_reader);
    explainer = Explainer(metadata, file_policies, extender, referrer_search);
    defragmenter = Defragmenter(metadata, file_policies, free_blocks, data_reader, damage_reports, lazy_clones,
        publisher);
    affected_files = AffectedFiles(metadata, remapper, referrer_search);
    replicas = Replicas(metadata, replica_reader, free_blocks, publisher);
    repairs = Repairs(metadata, data_reader, free_blocks, publisher, hint_levels, commits, groups, replicas);
    scrubber = Scrubber(metadata, data_reader, publisher, repairs, replicas, affected_files);
    reclaimer = Reclaimer(metadata, lazy_clones, publisher);
    device_probe = DeviceProbe(metadata, free_blocks, data_reader, publisher);
    worklist = Worklist(metadata, file_policies, hint_levels);
    revisits = Revisits(metadata, file_policies, hint_levels, extender, remapper, remap_confirmer, worklist);
    file_ranker = FileRanker(change_room);
    block_compressor = BlockCompressor(metadata, free_blocks, data_reader, damage_reports, lazy_clones, publisher,
        worklist, file_policies);
    sparse_packs = SparsePacks(metadata);
    pack_reader = PackReader(metadata, damage_reports);
    repacker = Repacker(free_blocks, publisher, sparse_packs, pack_reader);
    block_expander = BlockExpander(metadata, free_blocks, data_reader, damage_reports, lazy_clones, publisher);
    converter = Converter(file_policies, change_room, worklist, block_compressor, block_expander);
    lost_places = LostPlaces(metadata);
    fragment_finder = FragmentFinder(lost_places);
    work_loop = WorkLoop(hint_levels, file_policies, backlog_notes, repairs, scrubber, device_probe,
        file_ranker, block_compressor, fragment_finder, repacker, revisits, worklist);
}
