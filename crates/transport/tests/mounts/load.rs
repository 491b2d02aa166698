//! Processes that use a mount without a pause, so that mishaps come under load.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::tree::{Tree, ends};
use super::waiting::{PATIENCE, eventually};

/// Small files made, written, read, listed and deleted until the mount fails.
pub struct Load(Vec<Child>);

impl Load {
    pub fn start(tree: &Tree, clients: usize) -> Self {
        let clients: Vec<Child> = (0..clients).map(|number| client(tree.root(), number)).collect();
        eventually("files come and go", || tree.path("done-0").exists());
        Self(clients)
    }

    /// Whether all of them make progress.
    pub fn goes_on(&mut self, tree: &Tree) -> bool {
        let round = |tree: &Tree| std::fs::read_to_string(tree.path("done-0")).unwrap_or_default();
        let before = round(tree);
        eventually("the load goes on", || !round(tree).is_empty() && round(tree) != before);
        self.0.iter_mut().all(|client| client.try_wait().unwrap().is_none())
    }

    /// Waits until all have noticed the end of the mount.
    pub fn ends(mut self) {
        for client in &mut self.0 {
            ends(client, "a program that uses the mount");
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|client| {
            drop(client.kill());
            drop(client.wait());
        });
    }
}

fn client(root: &Path, number: usize) -> Child {
    // Ends by itself if no test ends it.
    let seconds = 6 * PATIENCE.as_secs();
    let script = format!(
        "set -e; mkdir own-{number}; end=$((SECONDS + {seconds})); i=0
         while [ $SECONDS -lt $end ]; do
             for k in 1 2 3 4 5 6 7 8; do echo $k > own-{number}/$k; done
             read line < own-{number}/8; [ $line = 8 ]
             for k in own-{number}/*; do [ -s $k ]; done
             rm own-{number}/*; i=$((i + 1)); echo $i > done-{number}
         done"
    );
    let mut command = Command::new("bash");
    command.arg("-c").arg(script).current_dir(root).stderr(Stdio::null()).spawn().unwrap()
}
