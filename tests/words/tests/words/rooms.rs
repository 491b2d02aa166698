//! Which folder of the engine may import which.

use oncefs_words::structure::circles::between_rooms;

use super::assert_none;
use super::circles::imports;

/// The bottom, the lowest first: each imports only those before it. All others may import them.
const BOTTOM: [&str; 7] = ["sync", "error", "device", "settings", "types", "format", "kv"];

/// The rooms between, and those that each may import besides the bottom.
const BETWEEN: [(&str, &[&str]); 14] = [
    ("stats", &[]),
    ("signals", &["stats"]),
    ("backlog", &[]),
    ("state", &["base", "damage", "signals", "space", "stats"]),
    ("space", &["base", "signals", "state", "stats", "volume", "write"]),
    ("commit", &["base", "read", "signals", "space", "state", "stats"]),
    ("read", &["base", "damage", "policy", "space", "state", "stats", "write"]),
    (
        "write",
        &[
            "backlog", "base", "commit", "damage", "hints", "policy", "read", "signals", "space", "state", "stats",
            "worker",
        ],
    ),
    ("policy", &["backlog", "base", "signals", "state", "stats"]),
    ("hints", &["base", "commit", "signals", "state", "stats"]),
    ("damage", &["base", "commit", "hints", "layout", "read", "signals", "space", "state", "stats", "worker", "write"]),
    (
        "worker",
        &[
            "backlog", "base", "commit", "damage", "hints", "policy", "read", "signals", "space", "state", "stats",
            "write",
        ],
    ),
    (
        "layout",
        &[
            "backlog", "base", "commit", "damage", "hints", "policy", "read", "signals", "space", "state", "stats",
            "worker", "write",
        ],
    ),
    ("background", &["signals", "volume"]),
];

/// The top: rooms that hold all others together, and may import any but those that only check.
const TOP: [&str; 3] = ["base", "store", "volume"];

/// What checks a volume from outside. Nothing else imports it.
const OUTSIDE: &str = "fsck";

fn may_import(room: &str, other: &str) -> Option<bool> {
    let place = |room: &str| BOTTOM.iter().position(|bottom| *bottom == room);
    if let Some(place_of_room) = place(room) {
        return Some(place(other).is_some_and(|place| place < place_of_room));
    }
    let between = BETWEEN.iter().find(|(name, _)| *name == room);
    match between {
        _ if place(other).is_some() => Some(true),
        Some((_, allowed)) => Some(allowed.contains(&other)),
        None if TOP.contains(&room) => Some(other != OUTSIDE),
        None if room == OUTSIDE => Some(true),
        None => None,
    }
}

#[test]
fn rooms_of_the_engine_import_each_other_only_along_the_arrows() {
    let mut found = Vec::new();
    for (room, others) in between_rooms(&imports("crates/engine")) {
        for other in others {
            match may_import(&room, &other) {
                Some(true) => {}
                Some(false) => found.push(format!("{room} imports {other}")),
                None => found.push(format!("{room} is in no list of tests/words/tests/words/rooms.rs")),
            }
        }
    }
    assert_none("arrows that are not allowed", found);
}
