# shellcheck shell=bash disable=SC2034
# Sourced by the other scripts: answers --help, sets paths, and shows progress.

set -euo pipefail

# A script's help is the comment below its first line. --help prints it and does nothing else.
if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit
fi

export LC_ALL=C.UTF-8 HOME="${HOME:-/root}" DEBIAN_FRONTEND=noninteractive

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/oncefs

# One target directory for all checkouts, so that libraries are built once.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}
# Test tools that cargo installs are beside it.
export ONCEFS_TOOLS=${ONCEFS_TOOLS:-$(dirname "$CARGO_TARGET_DIR")/tools}
export PATH=$ONCEFS_TOOLS/bin:$HOME/.cargo/bin:$PATH:/usr/sbin:/sbin
oncefs=$CARGO_TARGET_DIR/release/oncefs
logs=$cache/logs
mkdir -p "$logs"

die() {
    echo "error: $*" >&2
    exit 1
}

no_arguments() {
    [ $# = 0 ] || die "$(basename "$0") takes no arguments; see $(basename "$0") --help"
}

require_root() {
    [ "$(id -u)" = 0 ] || die "$(basename "$0") needs root: run it with sudo"
}

# "1m 05s"
spent() {
    local seconds=$(($(date +%s) - $1))
    if [ $seconds -ge 60 ]; then printf '%dm %02ds' $((seconds / 60)) $((seconds % 60)); else printf '%ds' $seconds; fi
}

# A bar of 20 characters. Empty if the total is not known.
bar() {
    local count=$1 total=$2
    [ "$total" -gt 0 ] || return 0
    [ "$count" -le "$total" ] || count=$total
    local full=$((20 * count / total)) line=####################
    printf ' [%-20s]' "${line:0:full}"
}

# "12 of 120 crates": counts the lines of a log that match a pattern. "12 crates" if the total is not known.
counted() {
    local log=$1 pattern=$2 total=$3 noun=$4 count
    [ -n "$pattern" ] || return 0
    count=$(grep -cE "$pattern" "$log" || true)
    if [ "$total" -gt 0 ]; then printf '%s %d of %d %s' "$(bar "$count" "$total")" "$count" "$total" "$noun"; else printf ' %d %s' "$count" "$noun"; fi
}

# A command that takes longer counts as hanging, and is ended with all its child processes.
step_seconds_max=5400

# step TITLE [--count PATTERN TOTAL NOUN] COMMAND...
# Runs a command with its output in a log and shows progress. If the command fails, shows the end of the log and ends
# the script.
step() {
    try_step "$@"
    [ $step_status = 0 ] || die "$1 failed"
}

# As step, but sets `step_status` to the command's status and continues. Sets `log` and `took` (seconds) too. Must not
# be part of a condition, because bash would ignore errors within a function that it runs.
try_step() {
    local title=$1 pattern='' total=0 noun=''
    shift
    if [ "$1" = --count ]; then
        pattern=$2 total=$3 noun=$4
        shift 4
    fi
    log=$logs/$(basename "$0")-$(tr -c 'a-z0-9\n' '-' <<<"${title,,}").log
    local start said=0
    start=$(date +%s) step_status=0
    # A process group of its own, so that it can be ended as a whole.
    set -m
    "$@" >"$log" 2>&1 </dev/null &
    step_group=$!
    set +m
    while kill -0 $step_group 2>/dev/null; do
        show_progress
        if [ $(($(date +%s) - start)) -ge "$step_seconds_max" ]; then
            echo "ended after $step_seconds_max s" >>"$log"
            end_step
            step_status=124
            break
        fi
        sleep 0.2
    done
    [ $step_status != 0 ] || wait $step_group || step_status=$?
    step_group=''
    took=$(($(date +%s) - start))
    [ ! -t 1 ] || printf '\r\033[K'
    if [ $step_status != 0 ]; then
        tail -n 100 "$log"
        echo "$title: FAILED after $(spent "$start"); the whole log is $log"
    else
        echo "$title: done in $(spent "$start")$(counted "$log" "$pattern" 0 "$noun")"
    fi
}

# Ends the step under way. A script that runs as a step gets the signal and ends its own step first.
end_step() {
    kill -TERM -- "-$step_group" 2>/dev/null || return 0
    local tries
    for tries in {1..100}; do
        kill -0 -- "-$step_group" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -KILL -- "-$step_group" 2>/dev/null || true
}

step_group=''
trap '[ -z "$step_group" ] || end_step; exit 143' INT TERM HUP

# On a terminal one changing line, elsewhere a line after 2 s and then every half minute.
show_progress() {
    local seconds=$(($(date +%s) - start))
    if [ -t 1 ]; then
        printf '\r\033[K%s: %s%s' "$title" "$(spent "$start")" "$(counted "$log" "$pattern" "$total" "$noun")"
    elif [ $seconds -ge 2 ] && [ $((seconds / 30)) -ge "$said" ]; then
        echo "$title ... $(spent "$start")$(counted "$log" "$pattern" "$total" "$noun")"
        said=$((seconds / 30 + 1))
    fi
}

# The most crates that a command compiles: crates_in_lock [DIRECTORY]
crates_in_lock() {
    grep -c '^name = ' "${1:-$repository}/Cargo.lock"
}

# Passes the library of scripts/rocksdb to cargo, and builds it first if it is missing.
use_rocksdb() {
    ROCKSDB_LIB_DIR=$("$repository/scripts/rocksdb")
    export ROCKSDB_LIB_DIR ROCKSDB_STATIC=1
}

build_oncefs() {
    use_rocksdb
    step "Building oncefs" --count '^ *Compiling' "$(crates_in_lock)" crates \
        env -C "$repository" cargo build --release --locked -p oncefs
}
