//! The sections of a manual page after its options: exit codes, files that belong to the command, and where to read on.

/// Where the package puts the pages of `docs`.
const DOCS: &str = "/usr/share/doc/oncefs/docs";

/// A page's files, the manual pages to read on, and the page of `docs` about it.
struct Around {
    page: &'static str,
    files: &'static [(&'static str, &'static str)],
    see: &'static [&'static str],
    docs: &'static [&'static str],
}

const MOUNT_FILES: &[(&str, &str)] = &[
    ("/etc/fstab", "Volumes to mount when the machine starts; revive and mount -a use only the options there."),
    (
        "/var/log/oncefs",
        "For -o logfile=FILE; logrotate rotates what lies there. Without logfile: journalctl -t oncefs.",
    ),
];

const AROUND: &[Around] = &[
    Around {
        page: "oncefs",
        files: &[
            ("/etc/fstab", "Volumes to mount when the machine starts."),
            ("/usr/share/doc/oncefs/README.md", "What oncefs is, with all documentation beside it."),
            ("/usr/share/doc/oncefs/examples", "Lines for fstab, and a mount unit."),
        ],
        see: &["mount(8)", "umount(8)", "fsck(8)", "fstab(5)"],
        docs: &["promises", "security"],
    },
    Around { page: "oncefs-estimate", files: &[], see: &["oncefs-mkfs(8)"], docs: &["estimate"] },
    Around { page: "oncefs-mkfs", files: &[], see: &["oncefs-mount(8)", "oncefs-estimate(8)"], docs: &["profiles"] },
    Around {
        page: "oncefs-mount",
        files: MOUNT_FILES,
        see: &["mount(8)", "fstab(5)", "oncefs-umount(8)", "oncefs-revive(8)", "oncefs-tune(8)"],
        docs: &["profiles", "metrics", "transport"],
    },
    Around {
        page: "mount.oncefs",
        files: MOUNT_FILES,
        see: &["mount(8)", "fstab(5)", "oncefs-mount(8)"],
        docs: &["profiles", "metrics", "transport"],
    },
    Around { page: "oncefs-umount", files: &[], see: &["umount(8)", "fuser(1)", "oncefs-mount(8)"], docs: &[] },
    Around { page: "oncefs-fsck", files: &[], see: &["fsck(8)", "oncefs-scrub(8)"], docs: &["fsck"] },
    Around {
        page: "oncefs-scrub",
        files: &[(
            "/lib/systemd/system/oncefs-scrub@.timer",
            "Scrubs a mount every month: systemctl enable --now oncefs-scrub@mnt-data.timer for /mnt/data; \
             systemd-escape --path /mnt/data prints the name.",
        )],
        see: &["oncefs-fsck(8)", "systemd-escape(1)"],
        docs: &["scrub"],
    },
    Around {
        page: "oncefs-metrics",
        files: &[
            (
                "/lib/systemd/system/oncefs-metrics.timer",
                "Writes the file for node_exporter every minute: systemctl enable --now oncefs-metrics.timer.",
            ),
            ("/usr/share/oncefs/prometheus/oncefs-rules.yml", "Alerts for Prometheus."),
            ("/usr/share/oncefs/grafana/oncefs.json", "A dashboard for Grafana."),
        ],
        see: &["oncefs-status(8)", "oncefs-stats(8)"],
        docs: &["metrics"],
    },
    Around {
        page: "oncefs-stats",
        files: &[("/usr/share/oncefs/schema/stats.json", "The schema of --json.")],
        see: &["oncefs-top(8)", "oncefs-metrics(8)", "oncefs-report(8)"],
        docs: &["stats", "fragmentation"],
    },
    Around {
        page: "oncefs-revive",
        files: &[("/lib/systemd/system/oncefs-revive.service", "Looks every five seconds; enabled by the package.")],
        see: &["oncefs-mount(8)", "fstab(5)"],
        docs: &["faults"],
    },
    Around { page: "oncefs-list", files: &[], see: &["oncefs-status(8)"], docs: &["stats"] },
    Around { page: "oncefs-status", files: &[], see: &["oncefs-list(8)", "oncefs-metrics(8)"], docs: &["stats"] },
    Around { page: "oncefs-top", files: &[], see: &["oncefs-stats(8)"], docs: &["stats"] },
    Around { page: "oncefs-report", files: &[], see: &["oncefs-stats(8)"], docs: &["report"] },
    Around { page: "oncefs-tune", files: &[], see: &["oncefs-mount(8)", "oncefs-dedup(8)"], docs: &["profiles"] },
    Around { page: "oncefs-dedup", files: &[], see: &["oncefs-tune(8)"], docs: &["profiles"] },
    Around { page: "oncefs-explain", files: &[], see: &["oncefs-defrag(8)"], docs: &["fragmentation"] },
    Around { page: "oncefs-defrag", files: &[], see: &["oncefs-explain(8)", "oncefs-policy(8)"], docs: &["defrag"] },
    Around {
        page: "oncefs-compress",
        files: &[],
        see: &["oncefs-expand(8)", "oncefs-dedup(8)", "oncefs-mount(8)"],
        docs: &["compression"],
    },
    Around { page: "oncefs-expand", files: &[], see: &["oncefs-compress(8)"], docs: &["compression"] },
    Around { page: "oncefs-policy", files: &[], see: &["oncefs-tune(8)"], docs: &["policy"] },
    Around { page: "oncefs-policy-set", files: &[], see: &["oncefs-policy(8)"], docs: &["policy"] },
    Around { page: "oncefs-policy-show", files: &[], see: &["oncefs-policy(8)"], docs: &["policy"] },
    Around { page: "oncefs-clone", files: &[], see: &["cp(1)", "oncefs-snapshot(8)"], docs: &["snapshots"] },
    Around { page: "oncefs-snapshot", files: &[], see: &["oncefs-clone(8)"], docs: &["snapshots"] },
    Around {
        page: "oncefs-snapshot-create",
        files: &[
            (
                "/lib/systemd/system/oncefs-snapshot@.timer",
                "Makes a snapshot every hour: systemctl enable --now oncefs-snapshot@mnt.timer for /mnt; \
                 systemd-escape --path /mnt/data prints the name for /mnt/data.",
            ),
            (
                "/lib/systemd/system/oncefs-snapshot@.service",
                "Its command. SERIES and KEEP among its environment are the beginning of the names, and the number to keep.",
            ),
        ],
        see: &["oncefs-snapshot(8)", "systemd-escape(1)"],
        docs: &["snapshots"],
    },
    Around { page: "oncefs-snapshot-list", files: &[], see: &["oncefs-snapshot(8)"], docs: &["snapshots"] },
    Around { page: "oncefs-snapshot-diff", files: &[], see: &["oncefs-snapshot(8)"], docs: &["snapshots"] },
    Around { page: "oncefs-snapshot-remove", files: &[], see: &["oncefs-snapshot(8)"], docs: &["snapshots"] },
    Around { page: "oncefs-disk", files: &[], see: &["losetup(8)", "oncefs-mount(8)"], docs: &["disks"] },
    Around { page: "oncefs-disk-create", files: &[], see: &["oncefs-disk(8)"], docs: &["disks"] },
    Around { page: "oncefs-disk-attach", files: &[], see: &["oncefs-disk(8)", "losetup(8)"], docs: &["disks"] },
    Around { page: "oncefs-disk-detach", files: &[], see: &["oncefs-disk(8)"], docs: &["disks"] },
    Around { page: "oncefs-disk-list", files: &[], see: &["oncefs-disk(8)"], docs: &["disks"] },
    Around { page: "oncefs-disk-resize", files: &[], see: &["oncefs-disk(8)", "resize2fs(8)"], docs: &["disks"] },
    Around { page: "oncefs-disk-remove", files: &[], see: &["oncefs-disk(8)"], docs: &["disks"] },
    Around { page: "oncefs-grow", files: &[], see: &["oncefs-mkfs(8)"], docs: &[] },
];

/// Takes the paragraphs about exit codes out of a help text: these, and the rest.
pub fn split_exit_codes(text: &str) -> (Option<String>, String) {
    let (codes, rest): (Vec<&str>, Vec<&str>) =
        text.split("\n\n").partition(|paragraph| paragraph.starts_with("Exit codes:"));
    let codes = codes.first().map(|codes| codes.trim_start_matches("Exit codes:").trim().to_owned());
    (codes, rest.join("\n\n"))
}

/// The exit codes of a command whose help does not name them.
pub fn exit_codes(page: &str) -> &'static str {
    match page {
        "oncefs-mount" | "mount.oncefs" => {
            "  0   mounted\n  1   not permitted; as a helper of mount(8) also: wrong options\n  2   wrong options; or the machine \
             lacks memory, processes or a device node\n  32  the mount failed"
        }
        "oncefs-umount" => {
            "  0   unmounted\n  1   as a helper of umount(8): wrong options\n  2   wrong options\n  32  it failed"
        }
        "oncefs-fsck" => {
            "The sum of:\n  0   clean\n  1   errors were repaired\n  4   errors are left\n  8   the check could not run\n  16  \
             wrong usage\n  32  cancelled"
        }
        _ => "  0   done\n  1   the command failed\n  2   wrong usage",
    }
}

/// The files that belong to a page, as rows.
pub fn files(page: &str) -> String {
    let around = AROUND.iter().filter(|around| around.page == page);
    let rows = around.flat_map(|around| around.files).map(|(file, what)| format!("  {file}  {what}\n"));
    rows.collect()
}

/// Where to read on.
pub fn see_also(page: &str) -> String {
    let around = AROUND.iter().find(|around| around.page == page);
    let pages = around.map_or(&[][..], |around| around.see).iter().map(|page| (*page).to_owned());
    let docs = around.map_or(&[][..], |around| around.docs).iter().map(|name| format!("{DOCS}/{name}.md"));
    let own = (page != "oncefs").then(|| "oncefs(8)".to_owned());
    own.into_iter().chain(pages).chain(docs).collect::<Vec<_>>().join(", ")
}
