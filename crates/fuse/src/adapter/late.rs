//! What becomes of a request that depends on pages which a writer left in the kernel. They come as requests themselves, maybe
//! to the very queue whose last entry this one has: then nothing may wait for them (`may_be_late`).

/// How data and holes are searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// In what there is once a writer's pages are here.
    Exact,
    /// All is data up to the end. Pages behind the end that is known are waited for.
    AllData,
    /// All is data up to the end that is known.
    AsKnown,
}

/// Who only reads must not have a writer's pages written and dropped, again and again: all is data for him. `may_be_late` is
/// asked only where something would be waited for, since it may keep an entry for that.
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

/// Whether flags can be set now, after a writer's pages are here.
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
