//! Pages of the block table that are read in parallel with data, while a checkpoint writes them.

use std::sync::Arc;

use super::*;
use crate::format::page::page_of;

/// Pages of the table of such a volume.
const PAGES: u64 = 40_000 / 128;

#[test]
fn a_page_read_beside_data_before_a_checkpoint_wrote_it_is_not_taken_in() {
    let devices = Devices::new(Blocks(40_000), one_level());
    let content = unique(32, 1);
    let volume = devices.open();
    volume.write(MapId(1), 0, &content, |_, _| ()).unwrap();
    volume.commits.checkpoint().unwrap();
    let data = Watched::new(&devices.data, Hooks::default());
    let volume = Arc::new(devices.open_with(data.clone()));
    let page = page_of(first_pbn(&volume, 1));
    let others = volume.clone();
    *data.before_read.lock() = Some(Box::new(move || {
        let work = move || {
            others.write(MapId(2), 0, &unique(32, 2), |_, _| ()).unwrap();
            others.commits.checkpoint().unwrap();
            others.metadata.with_pages(|| (page + 1..PAGES).collect(), |_| ()).unwrap();
            assert!(others.base.state.lock().table.page(page).is_none(), "page {page} has to be read again");
        };
        thread::spawn(work).join().expect("they do not panic");
        Ok(())
    }));
    assert!(*volume.reader.read(MapId(1), 0, content.len()).unwrap() == content[..]);
    assert!(data.before_read.lock().is_none(), "the device has to be read");
    let stored = first_pbn(&volume, 2);
    assert_eq!(page_of(stored), page, "both files have their tags in one page");
    assert_eq!(
        volume.metadata.entries_at(&[stored]).unwrap()[&stored].count,
        1,
        "block {stored} is as the checkpoint wrote it"
    );
}
