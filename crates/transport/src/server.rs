//! Passes messages to the service and replies back, over rings and `/dev/fuse` alike.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use crate::cpus;
use crate::device::Device;
use crate::errno::Errno;
use crate::interrupts::Interrupts;
use crate::notifier::Notifier;
use crate::protocol::flags::init;
use crate::protocol::negotiation::Negotiation;
use crate::protocol::opcode;
use crate::protocol::operation::Operation;
use crate::protocol::request::{Protocol, Refused, Request};
use crate::reply::{Back, Connection, Reply};
use crate::rings::slot::Mailbox;
use crate::service::Service;
use crate::waiting;

/// The state that the threads of a session share.
pub(crate) struct Server {
    service: Box<dyn Service>,
    connection: Arc<Connection>,
    protocol: Protocol,
    payload_bytes_max: usize,
    /// Empty if the kernel does not list them. Only rings need them.
    cpus: Vec<usize>,
    /// The mailboxes of the threads that serve rings.
    mailboxes: Mutex<Vec<Arc<Mailbox>>>,
    /// Requests come over rings, and only the other messages by `/dev/fuse`.
    pub(crate) has_rings: AtomicBool,
}

impl Server {
    pub(crate) fn new(device: Device, service: impl Service, negotiation: &Negotiation) -> Self {
        Self {
            service: Box::new(service),
            connection: Arc::new(Connection { device, interrupts: Interrupts::default() }),
            protocol: Protocol { is_setxattr_extended: negotiation.has(init::SETXATTR_EXT) },
            payload_bytes_max: negotiation.payload_bytes_max(),
            cpus: cpus::allowed().unwrap_or_default(),
            mailboxes: Mutex::default(),
            has_rings: AtomicBool::new(false),
        }
    }

    pub(crate) fn notifier(&self) -> Notifier {
        Notifier::new(self.connection.clone())
    }

    /// All rings exist, with these mailboxes.
    pub(crate) fn set_mailboxes(&self, mailboxes: Vec<Arc<Mailbox>>) {
        *self.mailboxes.lock() = mailboxes;
    }

    /// Ends the threads that serve rings, because the mount is gone. Missing replies do not matter.
    pub(crate) fn end_rings(&self) {
        self.mailboxes.lock().iter().for_each(|mailbox| mailbox.close());
    }

    /// No thread serves requests any more.
    pub(crate) fn destroy(&self) {
        self.service.destroy();
    }

    /// Bytes of the largest payload.
    pub(crate) fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    pub(crate) fn device(&self) -> &Device {
        &self.connection.device
    }

    /// CPUs that this process may run on. Empty: not known.
    pub(crate) fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// Bytes of the largest message.
    pub(crate) fn message_bytes_max(&self) -> usize {
        /// Headers of the message and of its operation, with room to spare.
        const HEADERS_BYTES: usize = 4096;
        self.payload_bytes_max + HEADERS_BYTES
    }

    /// Serves a message. True: it was a FORGET.
    pub(crate) fn serve(&self, message: &[u8], back: Back) -> bool {
        match Request::decode(message, self.protocol) {
            Ok(request) => {
                let is_forget = matches!(request.operation, Operation::Forget(_));
                self.serve_request(request, back);
                is_forget
            }
            Err(refused) => {
                self.refuse(refused, back);
                false
            }
        }
    }

    fn serve_request(&self, request: Request<'_>, back: Back) {
        let reply = Reply::new(self.connection.clone(), &request.header, back);
        match request.operation {
            Operation::Forget(forgotten) => {
                forgotten.each(|inode, lookups| self.service.forget(inode, lookups));
                reply.none();
            }
            Operation::Interrupt { unique } => {
                // Remembered first, so that a request that begins to wait now is either found or finds this.
                self.connection.interrupts.remember(unique);
                if self.service.interrupt(unique) {
                    self.connection.interrupts.take(unique);
                }
                reply.none();
            }
            Operation::Unknown => reply.error(Errno::new(libc::ENOSYS)),
            Operation::Destroy => reply.ok(),
            _ => {
                if request.operation.is_long() {
                    waiting::is_long();
                }
                if request.operation.may_wait() {
                    waiting::may_wait();
                }
                self.service.serve(request, reply);
            }
        }
    }

    fn refuse(&self, refused: Refused, back: Back) {
        let Some(header) = refused.header else {
            return log::error!("a message that is not one: {}", refused.why);
        };
        let opcode = header.opcode;
        log::error!("a message {} ({opcode}) is refused: {}", opcode::name(opcode), refused.why);
        let reply = Reply::new(self.connection.clone(), &header, back);
        match opcode {
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => reply.none(),
            _ => reply.error(Errno::new(libc::EIO)),
        }
    }
}
