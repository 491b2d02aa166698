//! Out-of-line work: the choice of blocks to visit, and how they are merged and remapped.

pub mod compress;
pub mod conversion;
pub mod convert_command;
pub mod expand;
pub mod find_fragments;
pub mod live_fragments;
pub mod merge_target;
pub mod pack;
pub mod probe;
pub mod rank_files;
pub mod repack;
pub mod revisit;
pub mod sparse_packs;
pub mod status;
pub mod work_loop;
pub mod worklist;
