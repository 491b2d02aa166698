//! One mount: INIT, the choice of the transport, and the threads that serve it until it is gone.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};

use crate::classic::serve as classic;
use crate::device::{Device, Received};
use crate::knob::ENABLE_RINGS;
use crate::notifier::Notifier;
use crate::protocol::flags::init;
use crate::protocol::header::{IN_BYTES, InHeader};
use crate::protocol::negotiation::Negotiation;
use crate::protocol::wire::Reader;
use crate::protocol::{Malformed, opcode};
use crate::rings::buffers::Buffers;
use crate::rings::plan::Plan;
use crate::rings::serve::{Post, RingThread};
use crate::rings::spares::Spares;
use crate::server::Server;
use crate::service::Service;
use crate::way::{Transport, Way};
use crate::workers::Workers;
use rustix::param::page_size;

/// How a mount is served.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Which way.
    pub transport: Transport,
    /// Most threads that read `/dev/fuse`, if requests come that way.
    pub threads: usize,
    /// Memory that the buffers of rings may take.
    pub ring_bytes_max: u64,
}

/// Threads with rings, which wait for a message to register them.
struct Rings {
    go: Vec<Sender<()>>,
    plan: Plan,
}

/// A mounted file system. INIT is answered, and requests are held back until `run`.
pub struct Session {
    server: Arc<Server>,
    threads: usize,
    way: Way,
    workers: Workers,
    rings: Option<Rings>,
}

impl Session {
    /// Answers INIT. To be called after mount(2), with the descriptor that was mounted.
    ///
    /// # Errors
    /// The kernel is too old, the mount is gone, the service refuses, or rings are demanded but not available. The
    /// caller unmounts.
    pub fn start(device: OwnedFd, mut service: impl Service, settings: &Settings) -> io::Result<Self> {
        let device = Device::new(device);
        let (unique, mut negotiation) = receive_init(&device)?;
        service.init(&mut negotiation)?;
        let server = Arc::new(Server::new(device, service, &negotiation));
        let mut workers = Workers::new();
        let rings = match make_rings(&server, settings, &mut negotiation, &mut workers) {
            Ok(rings) => Ok(rings),
            Err(why) if settings.transport == Transport::Rings => {
                return Err(io::Error::other(format!("no rings between kernel and daemon: {why}")));
            }
            Err(why) => Err(why),
        };
        server.device().reply(unique, 0, &negotiation.encode());
        let way = match &rings {
            Ok(rings) => Way::Rings(rings.plan.clone()),
            Err(why) => Way::Classic(why.clone()),
        };
        log::info!("requests come {way}");
        Ok(Self { server, threads: settings.threads.max(1), way, workers, rings: rings.ok() })
    }

    /// Which way requests come.
    pub fn way(&self) -> &Way {
        &self.way
    }

    /// Tells the kernel about its caches.
    pub fn notifier(&self) -> Notifier {
        self.server.notifier()
    }

    /// Serves requests until the mount is gone everywhere, then tells the service.
    ///
    /// # Errors
    /// Threads could not be started, or a reply failed while the mount existed. The caller of that request waits until
    /// the connection is aborted: by [`crate::AbortSwitch`], or at the end of this process. A process does not end
    /// while one of its own threads waits, so a process with such threads must abort first.
    pub fn run(mut self) -> io::Result<()> {
        let has_rings = self.rings.is_some();
        self.server.has_rings.store(has_rings, Ordering::Relaxed);
        for go in self.rings.into_iter().flat_map(|rings| rings.go) {
            // Fails only if the thread ended, which `wait` finds.
            let _ = go.send(());
        }
        let mut readers = classic::Pool::new(self.server.clone(), self.threads);
        readers.grow(if has_rings { 1 } else { self.threads }, &mut self.workers)?;
        let (server, threads) = (self.server.clone(), self.threads);
        self.workers.wait(|workers| {
            server.has_rings.store(false, Ordering::Relaxed);
            readers.grow(threads, workers)
        })?;
        self.server.destroy();
        Ok(())
    }
}

fn receive_init(device: &Device) -> io::Result<(u64, Negotiation)> {
    /// INIT has a hundred bytes, but the kernel requires this much room.
    const BUFFER_BYTES: usize = 8192;
    let mut buffer = vec![0; BUFFER_BYTES];
    let Received::Message(len) = device.receive(&mut buffer)? else {
        return Err(io::Error::other("it was unmounted before it was ready"));
    };
    let refused = |why: Malformed| io::Error::other(format!("the kernel's first message is not understood: {why}"));
    let header = InHeader::decode(&mut Reader::new(&buffer[..len])).map_err(refused)?;
    if header.opcode != opcode::INIT {
        return Err(refused(Malformed("it is not INIT")));
    }
    Ok((header.unique, Negotiation::decode(&buffer[IN_BYTES..len], page_size() as u32).map_err(refused)?))
}

/// Makes all rings and agrees on them with the kernel, or returns the reason why not and removes them.
fn make_rings(
    server: &Arc<Server>,
    settings: &Settings,
    negotiation: &mut Negotiation,
    workers: &mut Workers,
) -> Result<Rings, String> {
    if settings.transport == Transport::Classic {
        return Err("as it was set".to_owned());
    }
    if !negotiation.is_offered(init::OVER_IO_URING) {
        return Err(format!("the kernel does not offer them (Linux 6.14, and {} is Y)", ENABLE_RINGS));
    }
    if server.cpus().is_empty() {
        return Err("the kernel does not say on which CPUs this process may run".to_owned());
    }
    let bytes_max = settings.ring_bytes_max;
    let plan = Plan::of_machine(server.payload_bytes_max(), bytes_max).map_err(|e| e.to_string())?;
    let plan = plan.ok_or_else(|| format!("two rings for each CPU do not fit into {bytes_max} bytes of memory"))?;
    let rings = start_ring_threads(server, plan, workers).map_err(|e| format!("io_uring: {e}"))?;
    negotiation.want(init::OVER_IO_URING);
    Ok(rings)
}

fn start_ring_threads(server: &Arc<Server>, plan: Plan, workers: &mut Workers) -> io::Result<Rings> {
    let (made, results) = channel();
    let mut go = Vec::new();
    for (number, post) in posts(&plan, server.cpus(), workers)?.into_iter().enumerate() {
        let (server, made) = (server.clone(), made.clone());
        let (word, told) = channel();
        workers.spawn(format!("fuse-ring-{number}"), move || RingThread::run(&server, post, made, &told))?;
        go.push(word);
    }
    drop(made);
    // On an error all senders of `go` are dropped, and all threads end.
    let mailboxes = results.iter().collect::<io::Result<Vec<_>>>()?;
    server.set_mailboxes(mailboxes);
    Ok(Rings { go, plan })
}

/// The queues of each thread. A thread runs on the queue's CPU if the process may, otherwise on the process's other
/// CPUs.
fn posts(plan: &Plan, allowed: &[usize], workers: &Workers) -> io::Result<Vec<Post>> {
    let queues = plan.threads.iter().chain(&plan.parked).max().map_or(0, |last| usize::from(*last) + 1);
    let spares = Arc::new(Spares::new(plan.spares, queues, plan.spares_of_queue()));
    let used = Buffers::new(plan.threads.len() + plan.spares, plan.payload_bytes)?;
    let parked = Buffers::plain(plan.parked.len(), plan.payload_bytes)?;
    let post = |queues: Vec<u16>, cpus: Vec<usize>, buffers: &Arc<Buffers>| {
        let (buffers, spare_buffers, spares) = (buffers.clone(), used.clone(), spares.clone());
        Post { queues, buffers, spare_buffers, cpus, spares, news: workers.sender() }
    };
    let own = |queue: u16| if allowed.contains(&queue.into()) { vec![queue.into()] } else { allowed.to_vec() };
    let mut posts: Vec<Post> = plan.threads.iter().map(|queue| post(vec![*queue], own(*queue), &used)).collect();
    if !plan.parked.is_empty() {
        posts.push(post(plan.parked.clone(), allowed.to_vec(), &parked));
    }
    Ok(posts)
}
