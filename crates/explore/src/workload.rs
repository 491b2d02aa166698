//! Workloads: what is done before the crash. Each has a name that makes it again.

use std::sync::Arc;

use crate::directed;
use crate::image::Images;
use crate::live::{Live, Recording, Setup};
use crate::model::Model;
use crate::operation::Operation;
use crate::random_work;
use crate::states::Effort;
use crate::vocabulary;

/// A volume to begin with.
pub struct Base {
    /// How it was made and is opened.
    pub setup: &'static Setup,
    images: Images,
    model: Model,
}

impl Base {
    /// Makes the volume that workloads of this setup begin with.
    pub fn make(setup: &'static Setup) -> Result<Arc<Self>, String> {
        let (images, model) = setup.make().map_err(|error| error.to_string())?;
        let mut live = Live::open(setup, images, model, false)?;
        vocabulary::base().into_iter().try_for_each(|operation| live.run(operation))?;
        let (images, model) = live.into_base();
        Ok(Arc::new(Self { setup, images, model }))
    }

    /// What the parts of the volume hold.
    pub fn images(&self) -> &Images {
        &self.images
    }
}

/// What is done.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name after that of the setup, as `create-file,commit`, `directed:checkpoint` or `random:7`.
    pub name: String,
    /// The operations.
    pub operations: Vec<Operation>,
    /// How many of its states are looked at.
    pub effort: Effort,
    /// Whether commits fall into the operations.
    pub is_interrupted: bool,
}

impl Workload {
    fn new(name: String, operations: Vec<Operation>, effort: Effort) -> Self {
        Self { name, operations, effort, is_interrupted: false }
    }

    /// The workload of this name.
    pub fn named(name: &str) -> Result<Self, String> {
        if let Some(inner) = name.strip_prefix("interrupted:") {
            return Ok(Self { name: name.to_owned(), is_interrupted: true, ..Self::named(inner)? });
        }
        if let Some(seed) = name.strip_prefix("random:") {
            let seed = seed.parse().map_err(|_| format!("'{seed}' is not a seed: write a number"))?;
            return Ok(Self::random(seed));
        }
        if let Some(directed) = name.strip_prefix("directed:") {
            let found = directed::all().into_iter().find(|(name, _)| *name == directed);
            let (_, operations) = found.ok_or_else(|| format!("there is no directed workload '{directed}'"))?;
            return Ok(Self::new(name.to_owned(), operations, Effort::WHOLE));
        }
        let operations: Result<Vec<Vec<Operation>>, String> = name.split(',').map(vocabulary::named).collect();
        Ok(Self::new(name.to_owned(), operations?.concat(), Effort::WHOLE))
    }

    /// A seeded one of 20 to 200 operations.
    pub fn random(seed: u64) -> Self {
        Self::new(format!("random:{seed}"), random_work::operations(seed), Effort::SAMPLE)
    }

    /// Whether it runs on volumes of this setup, if it is a directed one.
    pub fn runs_on(&self, setup: &Setup) -> bool {
        let name = self.name.rsplit(':').next().unwrap_or_default();
        setup.directed.is_empty() || setup.directed.contains(&name)
    }

    /// Runs it on a volume. An error tells where real file system and model disagree without any crash.
    pub fn run(&self, base: &Base) -> Result<Recording, String> {
        let mut live = Live::open(base.setup, base.images.clone(), base.model.clone(), true)?;
        if self.is_interrupted {
            live.interrupt();
        }
        self.operations.iter().try_for_each(|operation| live.run(*operation))?;
        Ok(live.end())
    }
}

/// All that are made for a purpose.
pub fn directed() -> Vec<Workload> {
    let all = directed::all().into_iter();
    all.map(|(name, operations)| Workload::new(format!("directed:{name}"), operations, Effort::WHOLE)).collect()
}

/// The same work with commits within the operations.
pub fn interrupted(workloads: &[Workload]) -> Vec<Workload> {
    let interrupted = |workload: &Workload| {
        let name = format!("interrupted:{}", workload.name);
        Workload { name, is_interrupted: true, ..workload.clone() }
    };
    workloads.iter().map(interrupted).collect()
}

/// The words that sequences are made of.
pub fn words() -> Vec<&'static str> {
    vocabulary::words()
}

/// All sequences of `length` words of the vocabulary, with `between` between them, each with every ending.
pub fn sequences(length: usize, between: &str, endings: &[&str]) -> Vec<Workload> {
    let words = vocabulary::words();
    let mut all: Vec<String> = vec![String::new()];
    for at in 0..length {
        let between = if at == 0 { "" } else { between };
        all = all.iter().flat_map(|done| words.iter().map(move |word| format!("{done}{between}{word},"))).collect();
    }
    let named = all.iter().flat_map(|done| endings.iter().map(move |ending| format!("{done}{ending}")));
    named.map(|name| Workload::named(&name).expect("made of words of the vocabulary")).collect()
}
