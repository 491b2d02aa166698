//! The profiles that are measured as they are.

use crate::mount::Mount;

/// The default, and the one of small boards.
pub(super) fn profiles() -> [Mount; 2] {
    ["desktop", "edge"].map(Mount::in_profile)
}
