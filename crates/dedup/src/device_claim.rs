//! What a device says of itself, before its reads were measured: whether it turns.
//!
//! Leaves to the engine to ask for it (`volume/device_claims.rs`).

/// Parts of the names of virtual disks. They claim to turn whatever is below them.
const VIRTUAL: [&str; 7] = ["qemu", "vbox", "vmware", "virtual", "google", "virtio", "xen"];

/// The claim of a device that has no other device below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceClaim {
    /// It says that it turns.
    pub is_rotational: bool,
    /// Vendor and model. Empty: it has none, as the disks that hypervisors make for their guests.
    pub name: String,
}

impl DeviceClaim {
    /// Whether the device turns. The claim counts only for a device with a name that no hypervisor gives.
    pub fn turns(&self) -> bool {
        let name = self.name.to_ascii_lowercase();
        self.is_rotational && !name.trim().is_empty() && !VIRTUAL.iter().any(|part| name.contains(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claim_to_turn_counts_for_devices_that_are_no_virtual_disks() {
        let turns = |is_rotational, name: &str| DeviceClaim { is_rotational, name: name.to_owned() }.turns();
        assert!(turns(true, "ATA      WDC WD40EFRX-68N"));
        assert!(!turns(false, "ATA      Samsung SSD 870"));
        let virtual_disks =
            ["", "  ", "ATA QEMU HARDDISK", "VMware Virtual disk", "Msft Virtual Disk", "Google PersistentDisk"];
        assert!(virtual_disks.into_iter().all(|name| !turns(true, name)));
    }
}
