//! The parts that check and repair a volume. Nothing else needs them, so they are made when they are asked for.

use std::sync::Arc;

use crate::fsck::check::Checker;
use crate::fsck::fix::Fixer;
use crate::volume::assembly::Volume;

/// Checks this volume.
pub fn checker(core: &Volume) -> Checker {
    Checker::new(&core.base, &core.metadata, &core.affected_files)
}

/// Repairs this volume.
pub fn fixer(core: &Volume) -> Fixer {
    Fixer::new(&core.base, &core.metadata, &core.commits, &Arc::new(checker(core)))
}
