//! The figures of a mounted volume in commands, as text and as JSON, and their schema.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{BINARY, Place, Run, content, in_own_namespace, oncefs};

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&oncefs(arguments).succeeds().out).expect("the command prints JSON")
}

fn schema() -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/stats.json");
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

/// All violations of a schema by a value. Knows only the keywords of our schemas.
fn objections(value: &Value, schema: &Value, path: &str) -> Vec<String> {
    let rules = schema.as_object().unwrap_or_else(|| panic!("{path}: a schema is an object"));
    let mut found = Vec::new();
    for (word, rule) in rules {
        match word.as_str() {
            "type" if !is_of(value, rule) => found.push(format!("{path} is not {rule}: {value}")),
            "const" if value != rule => found.push(format!("{path} is not {rule}: {value}")),
            "enum" if !rule.as_array().unwrap().contains(value) => found.push(format!("{path} is none of {rule}")),
            "minimum" if value.as_f64() < rule.as_f64() => found.push(format!("{path} is below {rule}: {value}")),
            "maximum" if value.as_f64() > rule.as_f64() => found.push(format!("{path} is above {rule}: {value}")),
            "required" => {
                let missing =
                    rule.as_array().unwrap().iter().filter(|name| value.get(name.as_str().unwrap()).is_none());
                found.extend(missing.map(|name| format!("{path} has no {name}")));
            }
            "items" => {
                let items = value.as_array().into_iter().flatten().enumerate();
                found.extend(items.flat_map(|(at, item)| objections(item, rule, &format!("{path}[{at}]"))));
            }
            "properties" => {
                let known = rule.as_object().unwrap().iter();
                let there = known.filter_map(|(name, rule)| Some((name, value.get(name)?, rule)));
                found.extend(there.flat_map(|(name, value, rule)| objections(value, rule, &format!("{path}.{name}"))));
            }
            "additionalProperties" => {
                let values = value.as_object().into_iter().flatten();
                found.extend(values.flat_map(|(name, value)| objections(value, rule, &format!("{path}.{name}"))));
            }
            "type" | "const" | "enum" | "minimum" | "maximum" | "$schema" | "title" | "description" => {}
            other => panic!("{path}: this test does not know the word {other}"),
        }
    }
    found
}

fn is_of(value: &Value, types: &Value) -> bool {
    let one = |name: &Value| match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        other => panic!("there is no type {other}"),
    };
    types.as_array().map_or_else(|| one(types), |types| types.iter().any(one))
}

/// Names in a value that its schema does not have.
fn untold(value: &Value, schema: &Value, path: &str) -> Vec<String> {
    let (Some(fields), Some(told)) = (value.as_object(), schema.get("properties").and_then(Value::as_object)) else {
        return Vec::new();
    };
    fields
        .iter()
        .flat_map(|(name, value)| match told.get(name) {
            Some(schema) => untold(value, schema, &format!("{path}.{name}")),
            None => vec![format!("{path}.{name}")],
        })
        .collect()
}

#[test]
fn the_json_of_stats_keeps_to_its_schema_and_names_nothing_else() {
    let place = Place::mounted();
    let data = content(9, 1 << 20);
    for name in ["one", "two"] {
        fs::write(place.file(name), &data).unwrap();
    }
    oncefs(&["sync", place.mnt_str()]).succeeds();
    let (stats, schema) = (json(&["stats", "--json", place.mnt_str()]), schema());
    assert_eq!(objections(&stats, &schema, "stats"), [""; 0]);
    assert_eq!(untold(&stats, &schema, "stats"), [""; 0]);
    assert_eq!(stats["space"]["held_bytes"], 2 << 20);
    assert_eq!(stats["volume"], place.volume_str());
    assert_eq!(stats["mount"], place.mnt_str());
    assert!(stats["settings"]["inline_percent_min"].is_u64(), "{stats:#}");
    assert_eq!(json(&["stats", "--schema"]), schema);
}

#[test]
fn a_value_of_another_type_or_a_missing_one_is_noticed() {
    let schema = schema();
    let stats = serde_json::json!({ "form": 2, "program": 7, "health": { "is_well": true } });
    let found = objections(&stats, &schema, "stats").join("\n");
    for part in
        ["stats.form is not 1", "stats.program is not", "stats.health has no \"findings\"", "stats has no \"space\""]
    {
        assert!(found.contains(part), "no '{part}' in\n{found}");
    }
}

#[test]
fn figures_are_explained_without_a_mount() {
    let all = oncefs(&["stats", "--explain"]).succeeds().out;
    assert!(all.contains("caches.*.hits\n") && all.contains("settings.inline\n"), "{all}");
    let one = oncefs(&["stats", "--explain", "counters.blocks_shared"]).succeeds().out;
    assert_eq!(one.lines().count(), 4, "{one}");
    oncefs(&["stats", "--explain", "blocks_shred"]).fails(2, &["blocks_shred", "oncefs stats --explain"]);
}

/// The entry of a list or a status that is about this volume.
fn about<'a>(answer: &'a Value, place: &Place) -> &'a Value {
    let volumes = answer["volumes"].as_array().unwrap();
    volumes.iter().find(|volume| volume["volume"] == place.volume_str()).unwrap_or_else(|| panic!("{answer:#}"))
}

/// A table of file systems with a line for the volume.
fn fstab(place: &Place, options: &str) -> String {
    let file = place.str("fstab");
    fs::write(&file, format!("{} {} oncefs {options} 0 0\n", place.volume_str(), place.mnt_str())).unwrap();
    file
}

/// Runs a script that sees only its own mounts, because another test's daemon may hang. `$V` is the volume, `$D` its
/// directory, and `$T` a table of file systems that names it.
fn alone(place: &Place, options: &str, script: &str) -> Run {
    let (volume, dir, fstab) = (place.volume_str(), place.mnt_str(), fstab(place, options));
    in_own_namespace(&format!("V={volume} D={dir} T={fstab}\noncefs() {{ {BINARY} \"$@\"; }}\n{script}"))
}

#[test]
fn list_shows_a_volume_mounted_dead_unmounted_and_missing() {
    let place = Place::with_volume();
    let script = "
        list() { oncefs list -T $T | tail -n 1 | sed \"s:$V *$D *::\" | sed 's/  .*//'; }
        list
        oncefs mount $V $D --memory 64M
        list
        oncefs list --json -T $T >$V.json
        oncefs umount $D
        oncefs mount $V $D --memory 64M -o ro
        list
        kill -9 $(pgrep -f \"serve .*$V $D\")
        until [ \"$(list)\" = dead ]; do sleep 0.1; done
        list
        oncefs umount $D
        rm -r $V
        list";
    let run = alone(&place, "defaults", script).succeeds();
    assert_eq!(run.out, "not mounted\nmounted\nread-only\ndead\nmissing\n");
    let listed: Value = serde_json::from_str(&fs::read_to_string(place.path("volume.json")).unwrap()).unwrap();
    let volume = about(&listed, &place);
    assert!(volume["in_fstab"] == true && volume["mount"] == place.mnt_str(), "{volume:#}");
    assert!(volume["state"] == "mounted" && volume["held_bytes"] == 0, "{volume:#}");
}

#[test]
fn status_says_in_a_line_and_its_code_whether_a_volume_is_well() {
    let place = Place::mounted();
    let (mnt, volume) = (place.mnt_str(), place.volume_str());
    // The host of a test may be full.
    let well = oncefs(&["status", mnt, "--free-min", "0"]).succeeds();
    assert_eq!(well.out, format!("{mnt}: healthy\n"));
    let status = |arguments: &[&str], code: i32| {
        let run = oncefs(&[&["status", "--free-min", "0"], arguments].concat());
        assert_eq!(run.code, Some(code), "{run:?}");
        run.out
    };
    assert_eq!(status(&[volume], 0), format!("{mnt}: healthy\n"), "by its volume");
    let full = oncefs(&["status", mnt, "--free-min", "100"]);
    assert!(full.code == Some(1) && full.out.contains("nearly full") && full.out.contains("oncefs grow"), "{full:?}");
    place.kill_daemon();
    let dead = status(&[mnt], 1);
    assert!(
        dead.starts_with(&format!("{mnt}: its daemon has died: mount it again with oncefs revive {mnt} if")),
        "{dead}"
    );
    let found = oncefs(&["status", "--json", mnt]);
    let found: Value = serde_json::from_str(&found.out).unwrap();
    assert!(found["is_well"] == false && about(&found, &place)["findings"][0]["cause"] == "dead", "{found:#}");
    place.umount().succeeds();
    let unmounted = status(&[volume], 1);
    assert!(unmounted.contains("not mounted: oncefs mount"), "{unmounted}");
}

#[test]
fn a_status_that_cannot_be_told_is_told_apart_from_a_bad_one() {
    let place = Place::with_volume();
    fs::create_dir(place.path("plain")).unwrap();
    let plain = oncefs(&["status", &place.str("plain")]);
    assert!(plain.code == Some(2) && plain.out.contains("cannot tell"), "{plain:?}");
    let both = oncefs(&["status", &place.str("plain"), place.volume_str()]);
    assert!(both.code == Some(1) && both.out.lines().count() == 2, "{both:?}");
    oncefs(&["status", "/nowhere"]).fails(2, &["/nowhere"]);
    oncefs(&["status", "--free-min", "many"]).fails(2, &["--free-min"]);
}

#[test]
fn what_fstab_names_ought_to_be_mounted_unless_it_says_noauto() {
    let place = Place::with_volume();
    for (options, code, line) in [("defaults", 1, "not mounted: oncefs mount"), ("ro,noauto", 0, "noauto")] {
        let run = alone(&place, options, "oncefs status -T $T");
        assert!(run.code == Some(code) && run.out.contains(line), "{run:?}");
    }
    let none = in_own_namespace(&format!("{BINARY} status -T /nowhere; {BINARY} list -T /nowhere")).succeeds();
    assert_eq!(none.out, "no volume is mounted, and /nowhere names none\n".repeat(2));
}

#[test]
fn metrics_are_printed_and_written_for_mounts_and_for_what_has_no_daemon() {
    let place = Place::mounted();
    fs::write(place.file("file"), content(3, 1 << 20)).unwrap();
    oncefs(&["sync", place.mnt_str()]).succeeds();
    let sample = |name: &str, value: &str| {
        format!("{name}{{volume=\"{}\",mount=\"{}\"}} {value}", place.volume_str(), place.mnt_str())
    };
    let file = place.str("oncefs.prom");
    let printed = oncefs(&["metrics", place.mnt_str()]).succeeds().out;
    assert!(oncefs(&["metrics", place.mnt_str(), "-o", &file]).succeeds().out.is_empty());
    for text in [printed, fs::read_to_string(&file).unwrap()] {
        for line in [sample("oncefs_mount_up", "1"), sample("oncefs_held_bytes", "1048576")] {
            assert!(text.lines().any(|other| other == line), "no line {line} in\n{text}");
        }
    }
    place.kill_daemon();
    oncefs(&["metrics", place.mnt_str(), "-o", &file]).succeeds();
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(&sample("oncefs_mount_up", "0")) && !text.contains("held"), "{text}");
    oncefs(&["metrics", place.mnt_str(), "-o", "/nowhere/file"]).fails(1, &["cannot write /nowhere/file"]);
}
