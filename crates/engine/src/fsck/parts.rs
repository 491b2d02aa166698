//! The parts that check and repair a volume. Nothing else needs them, so they are made when they are asked for.

use std::sync::Arc;

use crate::damage::lost_places::LostPlaces;
use crate::fsck::check::Checker;
use crate::fsck::fix::Fixer;
use crate::read::fragments::FragmentReader;
use crate::volume::assembly::Volume;

/// Checks this volume.
pub fn checker(volume: &Volume) -> Checker {
    let fragment_reader = Arc::new(FragmentReader::new(&volume.base, &volume.metadata));
    Checker::new(&volume.base, &volume.metadata, &volume.affected_files, &fragment_reader)
}

/// Repairs this volume.
pub fn fixer(volume: &Volume) -> Fixer {
    let checker = Arc::new(checker(volume));
    let lost_places = Arc::new(LostPlaces::new(&volume.base, &volume.metadata));
    Fixer::new(&volume.base, &volume.metadata, &volume.commits, &checker, &lost_places)
}
