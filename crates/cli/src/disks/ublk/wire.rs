//! The messages between the kernel's ublk driver and its servers, byte by byte (`linux/ublk_cmd.h`).

use std::io;

/// Bytes in the unit of sizes and places.
pub const SECTOR_BYTES: u64 = 512;
/// Bytes of `struct ublksrv_io_desc`.
pub const REQUEST_BYTES: usize = 24;

/// A command about a device, to `/dev/ublk-control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Tells what a device is.
    Info = 0x02,
    /// Makes a device, without its block device.
    Add = 0x04,
    /// Removes a stopped device, once its server has closed it.
    Remove = 0x05,
    /// Makes the block device, once its server waits for requests.
    Start = 0x06,
    /// Ends the block device.
    Stop = 0x07,
    /// Sets sizes and abilities.
    SetParameters = 0x08,
}

/// A command about requests, to the device of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Waits for the first request of a tag.
    Fetch = 0x20,
    /// Answers a request, and waits for the next of its tag.
    CommitAndFetch = 0x21,
}

/// How numbers of commands are written: newer kernels want them as those of an ioctl, and may refuse the old form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Since Linux 6.4.
    Ioctl,
    /// Plain.
    Plain,
}

impl Numbers {
    /// Of a command about a device.
    pub fn command(self, command: Command) -> u32 {
        let direction = if command == Command::Info { READ } else { READ | WRITE };
        self.number(direction, CONTROL_BYTES, command as u32)
    }

    /// Of a command about requests.
    pub fn exchange(self, exchange: Exchange) -> u32 {
        self.number(READ | WRITE, EXCHANGE_BYTES, exchange as u32)
    }

    fn number(self, direction: u32, bytes: usize, number: u32) -> u32 {
        match self {
            Self::Plain => number,
            Self::Ioctl => direction << 30 | (bytes as u32) << 16 | u32::from(b'u') << 8 | number,
        }
    }
}

const WRITE: u32 = 1;
const READ: u32 = 2;
const CONTROL_BYTES: usize = 32;
const EXCHANGE_BYTES: usize = 16;
const INFO_BYTES: usize = 64;
const PARAMETERS_BYTES: usize = 64;

/// No queue.
const ALL_QUEUES: u16 = u16::MAX;
/// Asks for a number that is free.
pub const ANY_NUMBER: u32 = u32::MAX;

/// `struct ublksrv_ctrl_cmd`, at the place of a command in a submission of 128 bytes.
pub fn control(number: u32, buffer: Option<(u64, u16)>, value: u64) -> [u8; 80] {
    let mut bytes = [0; 80];
    let (address, length) = buffer.unwrap_or_default();
    put(&mut bytes, 0, number.to_ne_bytes());
    put(&mut bytes, 4, ALL_QUEUES.to_ne_bytes());
    put(&mut bytes, 6, length.to_ne_bytes());
    put(&mut bytes, 8, address.to_ne_bytes());
    put(&mut bytes, 16, value.to_ne_bytes());
    bytes
}

/// `struct ublksrv_io_cmd` for the only queue: the answer to the last request of a tag, and memory for the next.
pub fn exchange(tag: u16, result: i32, address: u64) -> [u8; EXCHANGE_BYTES] {
    let mut bytes = [0; EXCHANGE_BYTES];
    put(&mut bytes, 2, tag.to_ne_bytes());
    put(&mut bytes, 4, result.to_ne_bytes());
    put(&mut bytes, 8, address.to_ne_bytes());
    bytes
}

/// A device, as the driver knows it: `struct ublksrv_ctrl_dev_info`. It has one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its number.
    pub number: u32,
    /// Requests under way at most.
    pub depth: u16,
    /// Longest request.
    pub request_bytes_max: u32,
    /// It has a block device.
    pub is_live: bool,
}

/// The buffer of [`Info`].
pub type InfoBytes = [u8; INFO_BYTES];

impl Info {
    /// For the driver.
    pub fn encode(&self) -> InfoBytes {
        let mut bytes = [0; INFO_BYTES];
        put(&mut bytes, 0, 1_u16.to_ne_bytes());
        put(&mut bytes, 2, self.depth.to_ne_bytes());
        put(&mut bytes, 4, u16::from(self.is_live).to_ne_bytes());
        put(&mut bytes, 8, self.request_bytes_max.to_ne_bytes());
        put(&mut bytes, 12, self.number.to_ne_bytes());
        bytes
    }

    /// From the driver.
    pub fn decode(bytes: &InfoBytes) -> Self {
        Self {
            number: u32::from_ne_bytes(take(bytes, 12)),
            depth: u16::from_ne_bytes(take(bytes, 2)),
            request_bytes_max: u32::from_ne_bytes(take(bytes, 8)),
            is_live: u16::from_ne_bytes(take(bytes, 4)) != 0,
        }
    }
}

/// `UBLK_PARAM_TYPE_BASIC | UBLK_PARAM_TYPE_DISCARD`.
const BASIC_AND_DISCARD: u32 = 1 | 2;
const READ_ONLY: u32 = 1;
const VOLATILE_CACHE: u32 = 1 << 2;

/// `struct ublk_params` of a disk: blocks of `1 << block_shift` bytes, a volatile cache, discard. The driver turns a
/// write that must be durable at once into a write and a flush.
pub fn parameters(bytes: u64, request_bytes_max: u32, block_shift: u8, is_read_only: bool) -> [u8; PARAMETERS_BYTES] {
    let sectors_max = request_bytes_max / SECTOR_BYTES as u32;
    // A discard moves no data, so it may be long. Its length in bytes fits 32 bits.
    let discard_sectors_max: u32 = (1 << 30) / SECTOR_BYTES as u32;
    let attributes = VOLATILE_CACHE | if is_read_only { READ_ONLY } else { 0 };
    let mut encoded = [0; PARAMETERS_BYTES];
    put(&mut encoded, 0, (PARAMETERS_BYTES as u32).to_ne_bytes());
    put(&mut encoded, 4, BASIC_AND_DISCARD.to_ne_bytes());
    put(&mut encoded, 8, attributes.to_ne_bytes());
    put(&mut encoded, 12, [block_shift; 4]);
    put(&mut encoded, 16, sectors_max.to_ne_bytes());
    put(&mut encoded, 24, (bytes / SECTOR_BYTES).to_ne_bytes());
    // Discard: alignment, granularity, longest, longest of zeroes, ranges in one request.
    put(&mut encoded, 40, (1_u32 << block_shift).to_ne_bytes());
    put(&mut encoded, 44, (1_u32 << block_shift).to_ne_bytes());
    put(&mut encoded, 48, discard_sectors_max.to_ne_bytes());
    put(&mut encoded, 52, discard_sectors_max.to_ne_bytes());
    put(&mut encoded, 56, 1_u16.to_ne_bytes());
    encoded
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read to memory.
    Read,
    /// Write from memory.
    Write,
    /// Make what was written durable.
    Flush,
    /// Forget a range.
    Discard,
    /// Zero a range; its room is kept.
    Zero,
    /// Zero a range; its room may be freed.
    ZeroAndFree,
}

/// `UBLK_IO_F_NOUNMAP`, within the flags of a request.
const KEEPS_ROOM: u32 = 1 << 15;

/// A request of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub operation: Operation,
    /// From this byte of the disk on.
    pub at: u64,
    /// With this many bytes.
    pub bytes: u32,
}

impl Request {
    /// From `struct ublksrv_io_desc`.
    ///
    /// # Errors
    /// Unsupported: an operation that the device does not offer.
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> io::Result<Self> {
        let flags = u32::from_ne_bytes(take(bytes, 0));
        let operation = match flags & 0xff {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Flush,
            3 => Operation::Discard,
            5 if flags & KEEPS_ROOM != 0 => Operation::Zero,
            5 => Operation::ZeroAndFree,
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        // A flush has no range: its fields hold anything.
        if operation == Operation::Flush {
            return Ok(Self { operation, at: 0, bytes: 0 });
        }
        let sectors = u32::from_ne_bytes(take(bytes, 4));
        let too_large = || io::Error::from(io::ErrorKind::InvalidInput);
        let length = sectors.checked_mul(SECTOR_BYTES as u32).ok_or_else(too_large)?;
        let at = u64::from_ne_bytes(take(bytes, 8)).checked_mul(SECTOR_BYTES).ok_or_else(too_large)?;
        Ok(Self { operation, at, bytes: length })
    }
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a range of N bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Little-endian hexadecimal digits of some bytes.
    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn numbers_are_those_of_the_kernels_header() {
        assert_eq!(Numbers::Plain.command(Command::Start), 0x06);
        assert_eq!(Numbers::Ioctl.command(Command::Info), 0x8020_7502);
        assert_eq!(Numbers::Ioctl.command(Command::Add), 0xc020_7504);
        assert_eq!(Numbers::Plain.exchange(Exchange::Fetch), 0x20);
        assert_eq!(Numbers::Ioctl.exchange(Exchange::CommitAndFetch), 0xc010_7521);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn commands_and_devices_have_the_bytes_of_the_kernels_header() {
        let command = control(3, Some((0x1122, 64)), 7);
        assert_eq!(hex(&command[..32]), "03000000ffff4000221100000000000007000000000000000000000000000000");
        assert_eq!(hex(&exchange(5, -5, 0x1000)), "00000500fbffffff0010000000000000");
        let info = Info { number: ANY_NUMBER, depth: 18, request_bytes_max: 1 << 20, is_live: false };
        assert_eq!(hex(&info.encode()[..24]), "010012000000000000001000ffffffff0000000000000000");
        assert_eq!(Info::decode(&info.encode()), info);
        let expected = concat!(
            "4000000003000000", // length, kinds
            "050000000c0c0c0c", // read-only with a cache; blocks of 4096 bytes
            "0008000000000000", // a MiB in sectors; no chunks
            "0000200000000000", // a GiB in sectors
            "0000000000000000", // any memory
            "0010000000100000", // discards of whole blocks
            "0000200000002000", // each of a GiB at most
            "0100000000000000", // one range
        );
        assert_eq!(hex(&parameters(1 << 30, 1 << 20, 12, true)), expected);
    }

    #[test]
    fn requests_are_read_and_unknown_or_endless_ones_refused() {
        let encoded = |flags: u32, sectors: u32, at: u64| {
            let mut bytes = [0; REQUEST_BYTES];
            put(&mut bytes, 0, flags.to_ne_bytes());
            put(&mut bytes, 4, sectors.to_ne_bytes());
            put(&mut bytes, 8, at.to_ne_bytes());
            Request::decode(&bytes)
        };
        let write = Request { operation: Operation::Write, at: 4096, bytes: 8192 };
        assert_eq!(encoded(1 | 1 << 13, 16, 8).unwrap(), write);
        let flush = Request { operation: Operation::Flush, at: 0, bytes: 0 };
        assert_eq!(encoded(2, 0, u64::MAX).unwrap(), flush);
        assert_eq!(encoded(5, 8, 0).unwrap().operation, Operation::ZeroAndFree);
        assert_eq!(encoded(5 | KEEPS_ROOM, 8, 0).unwrap().operation, Operation::Zero);
        assert_eq!(encoded(4, 8, 0).unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert!(encoded(0, u32::MAX, 0).is_err() && encoded(0, 8, u64::MAX).is_err());
    }
}
