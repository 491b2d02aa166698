//! A connection to a cluster. It is prepared before a process confines itself, and connected afterwards, so that the
//! threads of librados are confined too.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::fs;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::ptr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::keyring::key_of;
use crate::librados::{Handle, Library, c_text, library};
use crate::silence::Silence;
use crate::{Access, Error, Result};

/// Options that are always set. A confined process opens no log, no socket, and waits for no cluster forever when it
/// connects. A change waits for a silent OSD however long: one that timed out might still be carried out later.
const OPTIONS: [(&str, &str); 7] = [
    ("log_file", ""),
    ("admin_socket", ""),
    ("log_to_stderr", "false"),
    ("err_to_stderr", "false"),
    ("log_to_syslog", "false"),
    ("client_mount_timeout", "30"),
    ("rados_osd_op_timeout", "0"),
];
/// Where monitors listen unless the configuration says otherwise, by either protocol.
const MONITOR_PORTS: [u16; 2] = [3300, 6789];
/// Where OSDs listen: the default range of every version so far.
const OSD_PORTS: RangeInclusive<u16> = 6800..=7568;
/// Room for the value of an option.
const VALUE_BYTES_MAX: usize = 4096;

/// A connection of this process, shared by all that use it.
pub struct Cluster {
    pub(crate) library: &'static Library,
    pub(crate) handle: Handle,
    pub(crate) silence: Silence,
    /// This machine, for holds.
    pub(crate) machine: String,
}

// SAFETY: librados synchronizes all calls on a connection.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

/// The connections of this process by user and configuration: one that is prepared, and the one in use.
struct Known {
    id: String,
    conf: PathBuf,
    prepared: Option<Cluster>,
    live: Weak<Cluster>,
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

impl Cluster {
    /// Loads the library, the configuration and the key, and connects to nothing. A later [`Cluster::connect`] reads no
    /// file. Returns the ports of monitors and OSDs.
    ///
    /// # Errors
    ///
    /// [`Error::Library`], [`Error::Config`].
    pub fn prepare(access: &Access) -> Result<Vec<u16>> {
        let mut known = KNOWN.lock();
        let entry = entry(&mut known, access);
        let prepared = match entry.prepared.take() {
            Some(prepared) => prepared,
            None => Self::new(access)?,
        };
        Ok(entry.prepared.insert(prepared).ports())
    }

    /// The connection of this process, which is made if there is none.
    ///
    /// # Errors
    ///
    /// As [`Cluster::prepare`], and [`Error::Unreachable`], [`Error::Denied`].
    pub fn connect(access: &Access) -> Result<Arc<Self>> {
        let mut known = KNOWN.lock();
        let entry = entry(&mut known, access);
        if let Some(live) = entry.live.upgrade() {
            return Ok(live);
        }
        let cluster = entry.prepared.take().map_or_else(|| Self::new(access), Ok)?;
        // SAFETY: the connection is configured and was not connected yet.
        let answer = unsafe { (cluster.library.rados_connect)(cluster.handle) };
        if answer < 0 {
            return Err(not_connected(answer, access));
        }
        let live = Arc::new(cluster);
        entry.live = Arc::downgrade(&live);
        Ok(live)
    }

    /// Makes the cluster refuse a client for some time, and waits until this client knows the map that says so: from
    /// then on, no object that this client has changed takes a change of the other.
    pub(crate) fn fence(&self, address: &str, seconds: u32) -> Result<()> {
        let text = c_text(address);
        // SAFETY: the connection is open, and the address ends with NUL; librados copies it.
        let answer = unsafe { (self.library.rados_blocklist_add)(self.handle, text.as_ptr(), seconds) };
        Error::check(answer, "blocklisting", address)?;
        // SAFETY: the connection is open.
        let answer = unsafe { (self.library.rados_wait_for_latest_osdmap)(self.handle) };
        Error::check(answer, "waiting for the newest map after blocklisting", address).map(drop)
    }

    fn new(access: &Access) -> Result<Self> {
        let library = library()?;
        let mut handle = ptr::null_mut();
        let id = c_text(&access.id);
        // SAFETY: `handle` is writable, and the name ends with NUL.
        let answer = unsafe { (library.rados_create)(&mut handle, id.as_ptr()) };
        if answer < 0 {
            return Err(Error::Library(format!("rados_create answers {answer}")));
        }
        let conf = access.conf.display().to_string();
        let cluster = Self { library, handle, silence: Silence::of(conf.clone()), machine: machine() };
        let path = c_text(&conf);
        // SAFETY: the handle was made above, and the path ends with NUL.
        let answer = unsafe { (library.rados_conf_read_file)(handle, path.as_ptr()) };
        if answer < 0 {
            return Err(Error::Config(format!(
                "{conf} cannot be read ({})",
                std::io::Error::from_raw_os_error(-answer)
            )));
        }
        OPTIONS.iter().try_for_each(|(name, value)| cluster.set(name, value))?;
        if let Some(key) = cluster.key(&access.id) {
            cluster.set("key", &key)?;
        }
        Ok(cluster)
    }

    /// The user's key, from the first keyring that the configuration names and that has it. None: the configuration has
    /// the key, or the cluster needs none.
    fn key(&self, id: &str) -> Option<String> {
        let files = self.get("keyring")?;
        files.split([',', ';']).find_map(|file| key_of(&fs::read_to_string(file.trim()).ok()?, id))
    }

    fn ports(&self) -> Vec<u16> {
        let monitors = self.get("mon_host").unwrap_or_default();
        let mut ports: Vec<u16> = MONITOR_PORTS.into_iter().chain(ports_in(&monitors)).chain(OSD_PORTS).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    pub(crate) fn set(&self, name: &str, value: &str) -> Result<()> {
        let (option, text) = (c_text(name), c_text(value));
        // SAFETY: the handle is valid, and both texts end with NUL.
        let answer = unsafe { (self.library.rados_conf_set)(self.handle, option.as_ptr(), text.as_ptr()) };
        if answer < 0 { Err(Error::Config(format!("librados refuses the option {name}"))) } else { Ok(()) }
    }

    fn get(&self, name: &str) -> Option<String> {
        let option = c_text(name);
        let mut value = [0 as c_char; VALUE_BYTES_MAX];
        // SAFETY: the handle is valid, the name ends with NUL, and `value` has the length that is passed.
        let answer =
            unsafe { (self.library.rados_conf_get)(self.handle, option.as_ptr(), value.as_mut_ptr(), value.len()) };
        // SAFETY: librados ended the value with NUL, or left the zeros.
        (answer >= 0).then(|| unsafe { CStr::from_ptr(value.as_ptr()) }.to_string_lossy().into_owned())
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("machine", &self.machine).finish_non_exhaustive()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: no context is left, because each keeps the connection alive.
        unsafe { (self.library.rados_shutdown)(self.handle) };
    }
}

fn entry<'a>(known: &'a mut Vec<Known>, access: &Access) -> &'a mut Known {
    let found = known.iter().position(|known| known.id == access.id && known.conf == access.conf);
    let at = found.unwrap_or_else(|| {
        let (id, conf) = (access.id.clone(), access.conf.clone());
        known.push(Known { id, conf, prepared: None, live: Weak::new() });
        known.len() - 1
    });
    &mut known[at]
}

fn not_connected(answer: i32, access: &Access) -> Error {
    let conf = access.conf.display().to_string();
    match -answer {
        libc::EPERM | libc::EACCES => Error::Denied { what: format!("client.{}", access.id) },
        libc::ENOENT | libc::EINVAL => Error::Config(format!(
            "{conf} has no monitor that can be used, or no keyring has a key of client.{}",
            access.id
        )),
        _ => Error::Unreachable { conf },
    }
}

/// The ports in the addresses of monitors, such as `[v2:10.0.0.1:3300,v1:10.0.0.1:6789],10.0.0.2:4000/0`.
fn ports_in(monitors: &str) -> impl Iterator<Item = u16> {
    let addresses = monitors.split([',', ' ', ';']).map(|address| address.trim_end_matches(']'));
    addresses.filter_map(|address| {
        let (_, port) = address.split('/').next()?.rsplit_once(':')?;
        port.parse().ok()
    })
}

/// A name for this machine that stays the same when it starts again.
fn machine() -> String {
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    format!("{}-{}", host_name(), id.trim().get(..8).unwrap_or("0"))
}

/// The name of this machine, for messages.
pub fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_of_monitors_are_found_in_their_addresses() {
        let ports = |text| ports_in(text).collect::<Vec<_>>();
        assert_eq!(ports("[v2:10.0.0.1:3300,v1:10.0.0.1:6789],10.0.0.2:4000/0"), [3300, 6789, 4000]);
        assert_eq!(ports("10.0.0.1, mon.example"), Vec::<u16>::new());
        assert_eq!(ports("[v2:[fe80::1]:3301/0]"), [3301]);
    }
}
