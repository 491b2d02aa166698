//! Says in the cluster that this process waits for a volume, for as long as it waits.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use oncefs_rados::Standbys;

use crate::announcement::Announcement;

/// How long an announcement lasts. A process that was killed is listed for so long.
const LASTS: Duration = Duration::from_secs(10);
/// How often it is made again.
const EVERY: Duration = Duration::from_secs(2);

/// Ends the announcement when it is dropped.
pub struct Announcer(Announcement);

impl Announcer {
    /// Starts a thread that announces `place`. A cluster that refuses is logged: the process waits all the same.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(
        standbys: impl Standbys + 'static,
        place: String,
        announcement: &Announcement,
    ) -> std::io::Result<Self> {
        let (ends, ending) = announcement.begin();
        let work = move || {
            repeat(&standbys, &place, &ends);
            // The process may exit once it hears of the end, and must not while the connection is being closed.
            drop(standbys);
            drop(ending);
        };
        thread::Builder::new().name("oncefs-standby".to_owned()).spawn(work)?;
        Ok(Self(announcement.clone()))
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

/// Announces a place until `ends` is disconnected, then takes that back.
fn repeat(standbys: &dyn Standbys, place: &str, ends: &Receiver<()>) {
    let mut is_told = false;
    loop {
        let announced = standbys.announce(place, LASTS);
        if let (Err(error), false) = (&announced, is_told) {
            log::warn!("cannot say that this process waits, so oncefs failover does not find it: {error}");
            is_told = true;
        }
        if ends.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    if let Err(error) = standbys.withdraw(place) {
        log::info!("cannot take back that this process waits, which runs out by itself: {error}");
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use oncefs_rados::MemoryObjects;

    use super::*;

    fn until(objects: &MemoryObjects, listed: &[&str]) {
        while objects.waiting().unwrap() != listed {
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_process_is_listed_while_it_waits_and_no_longer() {
        let objects = MemoryObjects::default();
        let announcement = Announcement::default();
        let start = || Announcer::start(objects.clone(), "/srv/volume".to_owned(), &announcement).unwrap();
        let announcer = start();
        until(&objects, &["/srv/volume"]);
        drop(announcer);
        assert_eq!(objects.waiting().unwrap(), [""; 0], "the next line may be the end of the process");
        let announcer = start();
        until(&objects, &["/srv/volume"]);
        assert!(announcement.clone().end());
        assert_eq!(objects.waiting().unwrap(), [""; 0], "a signal came");
        drop(announcer);
    }
}
