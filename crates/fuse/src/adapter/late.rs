//! Decides how to answer a request that depends on a writer's dirty pages in the kernel. These pages come as requests
//! too, perhaps to the very queue whose last entry this request holds. Then the request must not wait for them
//! (`may_be_late`).

/// How data and holes are searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// Search the file after a writer's pages have arrived.
    Exact,
    /// Treat the file as data up to its end, after the pages beyond the known end have arrived.
    AllData,
    /// Treat the file as data up to the known end, and nothing as known beyond it.
    AsKnown,
}

/// A reader must not be able to flush and drop a writer's pages again and again, so the whole file counts as data for
/// it. `may_be_late` is called only if the search would wait, because the call may claim an entry.
pub(super) fn search(has_writer: bool, is_writing: bool, may_be_late: impl FnOnce() -> bool) -> Search {
    if !has_writer {
        return Search::Exact;
    }
    match (may_be_late(), is_writing) {
        (true, true) => Search::Exact,
        (true, false) => Search::AllData,
        (false, _) => Search::AsKnown,
    }
}

/// Whether flags can be set after a writer's pages have arrived.
pub(super) fn can_set_flags(has_writer: bool, may_be_late: impl FnOnce() -> bool) -> bool {
    !has_writer || may_be_late()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_waits_for_pages_that_have_no_other_entry_to_come_by() {
        for is_writing in [true, false] {
            assert_eq!(search(true, is_writing, || false), Search::AsKnown, "writing: {is_writing}");
        }
        assert!(!can_set_flags(true, || false));
    }

    #[test]
    fn a_writer_s_pages_are_waited_for_where_they_can_come() {
        assert_eq!(search(true, true, || true), Search::Exact);
        assert_eq!(search(true, false, || true), Search::AllData);
        assert!(can_set_flags(true, || true));
    }

    #[test]
    fn without_a_writer_no_entry_is_kept() {
        let asked = || panic!("an entry would be kept");
        assert_eq!(search(false, true, asked), Search::Exact);
        assert_eq!(search(false, false, asked), Search::Exact);
        assert!(can_set_flags(false, asked));
    }
}
