//! Says in the cluster that this process waits for a volume, for as long as it waits.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;
use std::time::Duration;

use oncefs_rados::Standbys;

use crate::sync::AtomicBool;

/// How long an announcement lasts. A process that died is listed for so long.
const LASTS: Duration = Duration::from_secs(10);
/// How often the thread looks whether it ends.
const LOOK: Duration = Duration::from_millis(100);
/// Looks between two announcements: two seconds.
const LOOKS: u32 = 20;

/// Ends the announcement when it is dropped. The thread is not waited for: a cluster that does not answer keeps it.
pub struct Announcer(Arc<AtomicBool>);

impl Announcer {
    /// Starts a thread that announces `place`. A cluster that refuses is logged: the process waits all the same.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(standbys: impl Standbys + 'static, place: String) -> std::io::Result<Self> {
        let is_ending = Arc::new(AtomicBool::new(false));
        let ends = is_ending.clone();
        let thread = thread::Builder::new().name("oncefs-standby".to_owned());
        thread.spawn(move || repeat(&standbys, &place, &ends))?;
        Ok(Self(is_ending))
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.0.store(true, Release);
    }
}

/// Announces a place until `ends`, then takes that back.
fn repeat(standbys: &dyn Standbys, place: &str, ends: &AtomicBool) {
    let mut is_told = false;
    while !ends.load(Acquire) {
        let announced = standbys.announce(place, LASTS);
        if let (Err(error), false) = (&announced, is_told) {
            log::warn!("cannot say that this process waits, so oncefs failover does not find it: {error}");
            is_told = true;
        }
        (0..LOOKS).take_while(|_| !ends.load(Acquire)).for_each(|_| thread::sleep(LOOK));
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
    fn a_process_is_listed_while_it_waits() {
        let objects = MemoryObjects::default();
        let announcer = Announcer::start(objects.clone(), "/srv/volume".to_owned()).unwrap();
        until(&objects, &["/srv/volume"]);
        drop(announcer);
        until(&objects, &[]);
    }
}
