//! Pages in memory, for tests and the simulator.

use std::collections::BTreeMap;
use std::convert::Infallible;

use super::{HintPage, HintPages, PageNo};

/// Pages in memory that count their accesses.
#[derive(Clone, Default)]
pub struct MemoryPages {
    /// Pages read.
    pub reads: u64,
    /// Pages written.
    pub writes: u64,
    /// Pages discarded.
    pub discards: u64,
    contents: BTreeMap<PageNo, HintPage>,
}

impl MemoryPages {
    /// The pages with content.
    pub fn contents(&self) -> impl Iterator<Item = (PageNo, &HintPage)> {
        self.contents.iter().map(|(&page, content)| (page, content))
    }

    /// Makes a page read as damaged until it is written again.
    pub fn damage(&mut self, page: PageNo) {
        self.contents.remove(&page);
    }
}

impl HintPages for MemoryPages {
    type Error = Infallible;

    fn read(&mut self, page: PageNo) -> Result<Option<HintPage>, Infallible> {
        self.reads += 1;
        Ok(self.contents.get(&page).cloned())
    }

    fn write(&mut self, page: PageNo, content: &HintPage) -> Result<(), Infallible> {
        self.writes += 1;
        self.contents.insert(page, content.clone());
        Ok(())
    }

    fn discard(&mut self, page: PageNo) -> Result<(), Infallible> {
        self.discards += 1;
        self.contents.remove(&page);
        Ok(())
    }
}
