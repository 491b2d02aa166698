//! Which folder of the engine may import which.

use oncefs_words::structure::circles::between_rooms;

use super::assert_none;
use super::circles::imports;

/// The rooms, the lowest first: each imports only those before it, so there is no circle.
const ROOMS: [&str; 30] = [
    "sync",
    "error",
    "device",
    "settings",
    "announcement",
    "types",
    "format",
    "objects",
    "kv",
    "hash",
    "stats",
    "backlog",
    "known_damage",
    "pace",
    "signals",
    "space",
    "state",
    "policy",
    "place",
    "read",
    "commit",
    "hints",
    "write",
    "layout",
    "damage",
    "worker",
    "volume",
    "background",
    "store",
    "fsck",
];

/// The parts that own state. It imports their rooms, and all rooms import it, because the constructors of their parts
/// take it as a whole. This is the one circle.
const BASE: &str = "base";

/// The last room that `base` may import.
const BELOW_BASE: &str = "write";

fn place(room: &str) -> Option<usize> {
    ROOMS.iter().position(|known| *known == room)
}

fn may_import(room: &str, other: &str) -> Option<bool> {
    match (room, other) {
        (BASE, other) => Some(place(other)? <= place(BELOW_BASE)?),
        (_, BASE) => place(room).map(|_| true),
        _ => Some(place(other)? < place(room)?),
    }
}

#[test]
fn rooms_of_the_engine_import_only_those_below_them() {
    let mut found = Vec::new();
    for (room, others) in between_rooms(&imports("crates/engine")) {
        for other in others {
            match may_import(&room, &other) {
                Some(true) => {}
                Some(false) => found.push(format!("{room} imports {other}")),
                None => found.push(format!("{room} or {other} is not in tests/words/tests/words/rooms.rs")),
            }
        }
    }
    assert_none("arrows that are not allowed", found);
}
