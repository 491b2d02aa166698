//! The parts that check and repair a volume. Nothing else needs them, so they are made when they are asked for.

use std::sync::Arc;

use crate::fsck::check::Checker;
use crate::fsck::fix::Fixer;
use crate::volume::assembly::Volume;

/// Checks this volume.
pub fn checker(volume: &Volume) -> Checker {
    Checker::new(&volume.base, &volume.metadata, &volume.affected_files, &volume.fragment_reader)
}

/// Repairs this volume.
pub fn fixer(volume: &Volume) -> Fixer {
    let checker = Arc::new(checker(volume));
    Fixer::new(&volume.base, &volume.metadata, &volume.commits, &checker, &volume.lost_places)
}
