//! Which folder of the engine may import which, as `ARROWS` says it of crates.

use std::collections::BTreeSet;

use super::circles::imports;
use super::structure::circles::between_rooms;

/// The rooms of `crates/engine/src`, folders and files at the top, and those that each may import. The lowest first.
const ROOMS: [(&str, &[&str]); 23] = [
    ("sync", &[]),
    ("error", &[]),
    ("device", &["sync"]),
    ("settings", &["sync", "error"]),
    ("types", &["error", "device", "settings"]),
    ("format", &["error", "device", "settings", "types"]),
    ("kv", &["error", "device", "settings", "format"]),
    ("stats", &["core"]),
    ("state", &["sync", "error", "device", "types", "kv", "format", "stats", "space", "damage", "core"]),
    ("space", &["sync", "error", "device", "types", "format", "state", "write", "volume", "core"]),
    ("commit", &["sync", "error", "device", "kv", "format", "stats", "state", "space", "core"]),
    ("read", &["sync", "error", "device", "types", "format", "stats", "state", "space", "policy", "damage", "core"]),
    (
        "write",
        &[
            "sync", "error", "device", "settings", "types", "format", "stats", "state", "space", "read", "policy",
            "worker", "core",
        ],
    ),
    ("policy", &["sync", "error", "settings", "types", "format", "stats", "state", "core", "store"]),
    ("hints", &["sync", "error", "device", "settings", "format", "stats", "core"]),
    (
        "damage",
        &[
            "sync", "error", "device", "settings", "types", "format", "state", "space", "read", "write", "worker",
            "core",
        ],
    ),
    (
        "worker",
        &[
            "sync", "error", "device", "settings", "types", "format", "stats", "state", "write", "policy", "read",
            "core", "store",
        ],
    ),
    ("layout", &["error", "types", "format", "state", "space", "read", "write", "worker", "core"]),
    ("background", &["sync", "error", "types", "format", "commit", "core"]),
    (
        "volume",
        &[
            "sync",
            "error",
            "device",
            "settings",
            "types",
            "kv",
            "format",
            "state",
            "space",
            "commit",
            "write",
            "hints",
            "worker",
            "background",
            "core",
        ],
    ),
    (
        "core",
        &[
            "sync",
            "device",
            "settings",
            "kv",
            "stats",
            "state",
            "space",
            "commit",
            "read",
            "write",
            "policy",
            "hints",
            "damage",
            "worker",
            "layout",
            "background",
            "volume",
        ],
    ),
    (
        "store",
        &[
            "sync",
            "error",
            "settings",
            "types",
            "kv",
            "format",
            "stats",
            "write",
            "damage",
            "worker",
            "layout",
            "background",
            "volume",
            "core",
        ],
    ),
    ("fsck", &["error", "device", "types", "format", "space", "damage", "volume", "core", "store"]),
];

/// The last of the rooms that import only rooms before them. Those after it have both parts of `Core` and steps over
/// all of it.
const LAST_OF_THE_BOTTOM: &str = "format";

#[test]
fn rooms_of_the_engine_import_each_other_only_along_the_arrows() {
    let found = between_rooms(&imports("engine"));
    let rooms: BTreeSet<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(rooms, ROOMS.iter().map(|(room, _)| *room).collect(), "rooms in crates/engine/src, and of ROOMS");
    for (room, allowed) in ROOMS {
        let imported: BTreeSet<&str> = found[room].iter().map(String::as_str).collect();
        assert_eq!(imported, allowed.iter().copied().collect(), "what {room} imports, and what it may");
    }
}

#[test]
fn the_bottom_of_the_engine_and_with_it_the_format_import_nothing_above() {
    let place = |room: &str| ROOMS.iter().position(|(other, _)| *other == room).unwrap();
    let bottom = &ROOMS[..=place(LAST_OF_THE_BOTTOM)];
    let arrows = bottom.iter().flat_map(|(room, others)| others.iter().map(|other| (*room, *other)));
    let upwards: Vec<(&str, &str)> = arrows.filter(|(room, other)| place(other) > place(room)).collect();
    assert_eq!(upwards, [], "arrows from the bottom upwards");
}
