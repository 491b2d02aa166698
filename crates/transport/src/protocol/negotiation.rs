//! INIT: the kernel's offer, the daemon's wishes, and the reply.

use super::flags::init;
use super::wire::{Malformed, Reader, Writer};

/// The protocol's version that this crate speaks: 7 with this minor number.
pub const MINOR: u32 = 45;
/// The oldest minor number whose messages it understands (Linux 5.4).
const MINOR_MIN: u32 = 31;
const MAJOR: u32 = 7;

/// Bytes of `fuse_init_out`.
const OUT_BYTES: usize = 64;
/// Pages that a request can have: the field has 16 bits.
const REQUEST_PAGES_MAX: u32 = u16::MAX as u32;

/// Flags that the transport itself needs.
const OURS: [u64; 5] = [init::INIT_EXT, init::BIG_WRITES, init::MAX_PAGES, init::ABORT_ERROR, init::ASYNC_READ];

/// The agreed settings. The service sets them to what it needs, within the kernel's offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiation {
    offered: u64,
    wanted: u64,
    /// The page size of this machine: 4, 16 or 64 KiB.
    page_bytes: u32,
    /// The kernel's minor version.
    pub minor: u32,
    /// Bytes of read-ahead. At first the kernel's own maximum, which can be lowered.
    pub readahead_bytes_max: u32,
    /// Bytes of the largest READ and WRITE.
    pub request_bytes_max: u32,
    /// Requests of read-ahead and writeback in flight.
    pub background_max: u16,
    /// Above this many of them the kernel takes the file system for congested.
    pub congestion: u16,
    /// Nanoseconds that times are multiples of.
    pub time_granularity: u32,
}

impl Negotiation {
    /// Decodes the body of INIT, on a machine with pages of `page_bytes`.
    pub(crate) fn decode(body: &[u8], page_bytes: u32) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let (major, minor) = (reader.u32()?, reader.u32()?);
        if major != MAJOR || minor < MINOR_MIN {
            return Err(Malformed("the kernel's FUSE is older than 7.31 (Linux 5.4), or another protocol"));
        }
        let (readahead_bytes_max, low) = (reader.u32()?, u64::from(reader.u32()?));
        let high = if low & init::INIT_EXT != 0 { u64::from(reader.u32()?) } else { 0 };
        let mut found = Self {
            offered: low | high << 32,
            wanted: 0,
            page_bytes,
            minor,
            readahead_bytes_max,
            request_bytes_max: 128 << 10,
            background_max: 12,
            congestion: 9,
            time_granularity: 1,
        };
        for flag in OURS {
            found.want(flag);
        }
        Ok(found)
    }

    /// Whether the kernel offers all of these flags.
    pub fn is_offered(&self, flags: u64) -> bool {
        self.offered & flags == flags
    }

    /// Asks for flags. False: this kernel lacks one, and none was added.
    pub fn want(&mut self, flags: u64) -> bool {
        let is_offered = self.is_offered(flags);
        self.wanted |= if is_offered { flags } else { 0 };
        is_offered
    }

    /// Whether these flags are agreed on.
    pub fn has(&self, flags: u64) -> bool {
        self.wanted & flags == flags
    }

    /// Pages of the largest READ and WRITE.
    fn pages_max(&self) -> u16 {
        self.request_bytes_max.div_ceil(self.page_bytes).clamp(1, REQUEST_PAGES_MAX) as u16
    }

    /// Bytes of the payload of the largest message, which must fit into a ring's entry and into a reader's buffer.
    pub fn payload_bytes_max(&self) -> usize {
        /// `FUSE_MIN_READ_BUFFER`.
        const MIN: usize = 8192;
        (usize::from(self.pages_max()) * self.page_bytes as usize).max(MIN)
    }

    /// The body of the answer.
    pub(crate) fn encode(&self) -> Vec<u8> {
        assert_eq!(self.wanted & !self.offered, 0, "flags wanted that were not offered");
        let mut writer = Writer::with_capacity(OUT_BYTES);
        writer.u32(MAJOR).u32(MINOR).u32(self.readahead_bytes_max).u32(self.wanted as u32);
        writer.u16(self.background_max).u16(self.congestion);
        writer.u32(u32::from(self.pages_max()) * self.page_bytes).u32(self.time_granularity);
        // No alignment of DAX mappings.
        writer.u16(self.pages_max()).u16(0);
        // No stacking, no timeout.
        writer.u32((self.wanted >> 32) as u32).u32(0).u16(0).zeros(22);
        writer.finish(OUT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(minor: u32, low: u32, high: u32) -> Vec<u8> {
        [7, minor, 131_072, low, high].iter().flat_map(|number| number.to_ne_bytes()).chain([0; 44]).collect()
    }

    #[test]
    fn only_what_is_offered_is_agreed_on() {
        let ext = init::INIT_EXT as u32;
        let mut found = Negotiation::decode(&offer(45, ext | 1 << 16, 1 << 9), 4096).unwrap();
        assert!(found.want(init::WRITEBACK_CACHE) && found.want(init::OVER_IO_URING));
        assert!(!found.want(init::POSIX_ACL) && !found.has(init::POSIX_ACL));
        found.request_bytes_max = 1 << 20;
        let out = found.encode();
        assert_eq!(out[12..16], (ext | 1 << 16).to_ne_bytes());
        assert_eq!(out[20..24], (1_u32 << 20).to_ne_bytes());
        assert_eq!((&out[28..30], &out[32..36]), (&256_u16.to_ne_bytes()[..], &(1_u32 << 9).to_ne_bytes()[..]));
        assert_eq!(found.payload_bytes_max(), 1 << 20);
    }

    #[test]
    fn requests_are_counted_in_the_pages_of_the_machine() {
        for (page_bytes, request_bytes_max, pages) in [
            (4096, 1 << 20, 256),
            (16384, 1 << 20, 64),
            (65536, 1 << 20, 16),
            (65536, 4096, 1),
            (65536, u32::MAX, 65535),
        ] {
            let mut found = Negotiation::decode(&offer(45, init::INIT_EXT as u32, 0), page_bytes).unwrap();
            found.request_bytes_max = request_bytes_max;
            let out = found.encode();
            assert_eq!(out[28..30], (pages as u16).to_ne_bytes());
            assert_eq!(out[20..24], (pages * page_bytes).to_ne_bytes());
            // The kernel takes no entry whose payload holds less than its pages.
            assert_eq!(found.payload_bytes_max(), (pages * page_bytes) as usize);
        }
    }

    #[test]
    fn a_kernel_without_the_extension_has_no_high_flags() {
        let found = Negotiation::decode(&offer(36, 1 << 16, 1 << 9), 4096).unwrap();
        assert!(!found.is_offered(init::OVER_IO_URING));
        assert!(Negotiation::decode(&offer(30, 0, 0), 4096).is_err(), "too old");
        assert!(Negotiation::decode(&[7, 0, 0], 4096).is_err(), "cut");
    }
}
