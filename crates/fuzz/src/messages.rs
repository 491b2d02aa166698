//! Decodes any bytes as messages of the kernel's FUSE protocol: unchanged, and with their true length in the header, so
//! that decoding reaches the operation.
//!
//! Asserted: (1) decoding ends without a panic; (2) it takes memory only in proportion to the message; (3) an accepted
//! message keeps the promises of the types: names are not empty and have no NUL byte, data has the stated length, times
//! have less than a second of nanoseconds; (4) an accepted message without its last byte is refused, if its header has
//! the new length.

use std::mem::{Discriminant, discriminant};

use oncefs_transport::protocol::operation::SetTime;
use oncefs_transport::{Operation, Protocol, Request};

use crate::input::Input;
use crate::memory::bounded;

/// Bytes of the header of every message.
const HEADER_BYTES: usize = 40;
/// More operations than there are.
const OPCODES: u64 = 64;

/// The parts of an input: the negotiated protocol, an operation, and the message.
fn parts(bytes: &[u8]) -> (Protocol, u32, &[u8]) {
    let mut input = Input::new(bytes);
    let protocol = Protocol { is_setxattr_extended: input.one_in(2) };
    (protocol, input.below(OPCODES) as u32, input.all())
}

/// The operation of an input whose message is accepted unchanged, if it is known.
pub fn kind_of(bytes: &[u8]) -> Option<Discriminant<Operation<'_>>> {
    let (protocol, _, message) = parts(bytes);
    let operation = Request::decode(message, protocol).ok()?.operation;
    (operation != Operation::Unknown).then(|| discriminant(&operation))
}

/// The target: the first byte chooses the negotiated protocol, the second the operation, the rest is the message.
pub fn run(bytes: &[u8]) {
    let (protocol, opcode, message) = parts(bytes);
    let mut message = message.to_vec();
    check(&message, protocol);
    if message.len() >= HEADER_BYTES {
        message[4..8].copy_from_slice(&opcode.to_ne_bytes());
        say_length(&mut message);
        check(&message, protocol);
    }
}

fn say_length(message: &mut [u8]) {
    let len = message.len() as u32;
    message[..4].copy_from_slice(&len.to_ne_bytes());
}

/// Decodes within the memory that the message justifies: a label takes at least 11 bytes of it and 32 decoded.
fn check(message: &[u8], protocol: Protocol) {
    let decoded = bounded(1024 + 8 * message.len(), || Request::decode(message, protocol).ok());
    let Some(request) = decoded else { return };
    assert_eq!(request.header.len as usize, message.len(), "a message of another length than it says was accepted");
    assert_operation(&request.operation);
    if !matches!(request.operation, Operation::Unknown) && message.len() > HEADER_BYTES {
        let mut shorter = message[..message.len() - 1].to_vec();
        say_length(&mut shorter);
        assert!(Request::decode(&shorter, protocol).is_err(), "{:?} was accepted without its end", request.operation);
    }
}

fn assert_name(name: &[u8]) {
    assert!(!name.is_empty() && !name.contains(&0), "a name is {name:?}");
}

fn assert_operation(operation: &Operation<'_>) {
    match operation {
        Operation::Lookup { name }
        | Operation::Unlink { name }
        | Operation::Rmdir { name }
        | Operation::Link { name, .. }
        | Operation::Create { name, .. }
        | Operation::Mknod { name, .. }
        | Operation::Mkdir { name, .. }
        | Operation::Symlink { name, .. }
        | Operation::Setxattr { name, .. }
        | Operation::Getxattr { name, .. }
        | Operation::Removexattr { name } => assert_name(name),
        Operation::Rename { name, new_name, .. } => {
            assert_name(name);
            assert_name(new_name);
        }
        Operation::Write { offset, data, .. } => {
            assert!(*offset <= i64::MAX as u64 - data.len() as u64, "{} bytes at {offset}", data.len());
        }
        Operation::Setattr(set) => {
            for time in [set.atime, set.mtime].into_iter().flatten() {
                if let SetTime::At(at) = time {
                    assert!(at.nanoseconds < 1_000_000_000, "{} ns", at.nanoseconds);
                }
            }
        }
        Operation::Forget(forgotten) => {
            let mut count = 0_u64;
            forgotten.each(|_, _| count += 1);
            assert!(count < 1 << 32, "{count} inodes are forgotten");
        }
        _ => {}
    }
}
