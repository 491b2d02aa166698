//! One mount: INIT, the choice of the way, and the threads that serve it until it is gone.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use crate::classic::serve::{self as classic, Duty};
use crate::device::{Device, Received};
use crate::knob::ENABLE_RINGS;
use crate::notifier::Notifier;
use crate::protocol::flags::init;
use crate::protocol::header::{IN_BYTES, InHeader};
use crate::protocol::negotiation::Negotiation;
use crate::protocol::wire::Reader;
use crate::protocol::{Malformed, opcode};
use crate::rings::plan::Plan;
use crate::rings::serve::{Post, RingThread};
use crate::rings::turns::{Class, Pair, Seat, Turns};
use crate::server::Server;
use crate::service::Service;
use crate::way::{Transport, Way};
use crate::workers::Workers;

/// How a mount is served.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Which way.
    pub transport: Transport,
    /// Threads that read `/dev/fuse`, at most, where requests come that way.
    pub threads: usize,
    /// Memory that the buffers of rings may take.
    pub ring_bytes_max: u64,
}

/// Threads with rings, which wait for the word to register them.
struct Rings {
    workers: Workers,
    go: Vec<Sender<()>>,
    plan: Plan,
}

/// A mounted file system: INIT is answered, requests are held back until `run`.
pub struct Session {
    server: Arc<Server>,
    threads: usize,
    way: Way,
    rings: Option<Rings>,
}

impl Session {
    /// Answers INIT. To be called after mount(2), with the descriptor that was mounted.
    ///
    /// # Errors
    /// The kernel is too old, the mount is gone, the service refuses, or rings are demanded and cannot be had. The caller
    /// unmounts.
    pub fn start(device: OwnedFd, mut service: impl Service, settings: &Settings) -> io::Result<Self> {
        let device = Device::new(device);
        let (unique, mut negotiation) = receive_init(&device)?;
        service.init(&mut negotiation)?;
        let server = Arc::new(Server::new(device, service, &negotiation)?);
        let rings = match make_rings(&server, settings, &mut negotiation) {
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
        Ok(Self { server, threads: settings.threads.max(1), way, rings: rings.ok() })
    }

    /// Which way requests come.
    pub fn way(&self) -> &Way {
        &self.way
    }

    /// Tells the kernel about its caches.
    pub fn notifier(&self) -> Notifier {
        self.server.notifier()
    }

    /// Serves requests until the mount is gone everywhere, then tells the service so.
    ///
    /// # Errors
    /// Threads could not be started, or serving failed while the mount was there.
    pub fn run(self) -> io::Result<()> {
        let (threads, duty) = match self.rings {
            Some(_) => (1, Duty::BesideRings),
            None => (self.threads, Duty::All),
        };
        let mut workers = Workers::default();
        if let Some(rings) = self.rings {
            for go in rings.go {
                // Fails only if the thread ended, which `join` finds.
                let _ = go.send(());
            }
            workers = rings.workers;
        }
        classic::start(&self.server, threads, duty, &mut workers)?;
        let ended = workers.join();
        self.server.destroy();
        ended
    }
}

fn receive_init(device: &Device) -> io::Result<(u64, Negotiation)> {
    /// INIT is a hundred bytes; the kernel wants room for this many.
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
    Ok((header.unique, Negotiation::decode(&buffer[IN_BYTES..len]).map_err(refused)?))
}

/// Makes all rings and agrees on them, or says why not. Nothing is left of them then.
fn make_rings(server: &Arc<Server>, settings: &Settings, negotiation: &mut Negotiation) -> Result<Rings, String> {
    if settings.transport == Transport::Classic {
        return Err("as it was set".to_owned());
    }
    if !negotiation.is_offered(init::OVER_IO_URING) {
        return Err(format!("the kernel does not offer them (Linux 6.14, and {} is Y)", ENABLE_RINGS));
    }
    let (cpus, bytes_max) = (server.cpus().len(), settings.ring_bytes_max);
    let plan = Plan::of(server.cpus(), server.payload_bytes_max(), bytes_max)
        .ok_or_else(|| format!("rings for {cpus} CPUs do not fit into {bytes_max} bytes of memory"))?;
    let rings = start_ring_threads(server, plan).map_err(|e| format!("io_uring: {e}"))?;
    negotiation.want(init::OVER_IO_URING);
    Ok(rings)
}

fn start_ring_threads(server: &Arc<Server>, plan: Plan) -> io::Result<Rings> {
    let (made, results) = channel();
    let (mut workers, mut go) = (Workers::default(), Vec::new());
    for (name, post) in posts(&plan) {
        let (server, made) = (server.clone(), made.clone());
        let (word, told) = channel();
        workers.spawn(name, move || RingThread::run(&server, post, made, &told))?;
        go.push(word);
    }
    drop(made);
    // On an error `go` is dropped with the others, and all threads end.
    results.iter().collect::<io::Result<()>>()?;
    Ok(Rings { workers, go, plan })
}

/// What each thread serves, with its name.
fn posts(plan: &Plan) -> Vec<(String, Post)> {
    let (now, payload_bytes) = (Instant::now(), plan.payload_bytes);
    let mut turns: HashMap<&[u16], Arc<Turns>> = HashMap::new();
    let mut posts = Vec::new();
    for (number, queues) in plan.threads.iter().enumerate() {
        let turns = turns.entry(queues).or_insert_with(|| Arc::new(Turns::new(now)));
        let pair = plan.has_low().then(|| Arc::new(Pair::new(turns.clone())));
        let mut add = |name: String, class| {
            let seat = pair.clone().map(|pair| Seat { pair, class });
            posts.push((name, Post { queues: queues.clone(), payload_bytes, seat }));
        };
        add(format!("fuse-ring-{number}"), Class::Normal);
        if plan.has_low() {
            add(format!("fuse-low-{number}"), Class::Low);
        }
    }
    posts
}
