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
    /// The vendor. A disk of virtio has the number of virtio's.
    pub vendor: String,
    /// The model. Empty: it has none, as disks of virtio and Xen.
    pub model: String,
}

impl DeviceClaim {
    /// Whether the device turns. The claim counts only for a device with a model, and with names that no hypervisor
    /// gives.
    pub fn turns(&self) -> bool {
        let is_virtual = |name: &str| VIRTUAL.iter().any(|part| name.to_ascii_lowercase().contains(part));
        self.is_rotational && !self.model.is_empty() && !is_virtual(&self.vendor) && !is_virtual(&self.model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claim_to_turn_counts_for_devices_that_are_no_virtual_disks() {
        let turns = |is_rotational, vendor: &str, model: &str| {
            DeviceClaim { is_rotational, vendor: vendor.to_owned(), model: model.to_owned() }.turns()
        };
        assert!(turns(true, "ATA", "WDC WD40EFRX-68N") && turns(true, "", "WDC WD40EFRX-68N"));
        assert!(!turns(false, "ATA", "Samsung SSD 870"));
        let virtual_disks = [
            ("", ""),
            ("0x1af4", ""),
            ("ATA", "QEMU HARDDISK"),
            ("VMware", "Virtual disk"),
            ("Msft", "Virtual Disk"),
            ("Google", "PersistentDisk"),
        ];
        assert!(virtual_disks.into_iter().all(|(vendor, model)| !turns(true, vendor, model)));
    }
}
