//! Out-of-line work: the choice of blocks to visit, and how they are merged and remapped.

pub mod backlog_notes;
pub mod confirm;
pub mod load;
pub mod local_time;
pub mod merge_target;
pub mod pass;
pub mod probe;
pub mod rank_files;
pub mod remap;
pub mod revisit;
pub mod status;
pub mod system_load;
pub mod visit;
pub mod work_loop;
pub mod worker_state;
pub mod worklist;
