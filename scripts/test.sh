#!/usr/bin/env bash
# Runs every check, also after one has failed, and ends with one line per check, the names of the tests that failed or were
# skipped, and the sum: `N passed, N failed, N skipped`.
#
# Tests wait much: for time limits, kills, processes. Checks whose outcome no load changes use the processors in that time,
# at idle priority. What they say is shown after the tests.
#
#   scripts/test.sh [deny]      with deny: the dependencies' licences, bans and advisories too
#
# A compiler other than the one in rust-toolchain.toml may know more lints and count other
# instructions. With such a one, lints are shown but not refused and counts are not compared.
#
# Under CI, as root, on a kernel with BPF nothing has a reason to be skipped: what is, and is not in scripts/skips.txt, fails.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

pinned=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
compiler=$(rustc --version | awk '{print $2}')
binaries=${CARGO_TARGET_DIR:-$PWD/target}/debug
has_avx2=$(grep -cw avx2 /proc/cpuinfo)
# Everything is compiled once, and what it costs is compared with what is on record: no part from an earlier build.
export CARGO_INCREMENTAL=0
log=$(mktemp)
# Tests that cannot be made here append a line to it (crates/skips).
HEDDLE_SKIPS=$(mktemp)
export HEDDLE_SKIPS
asides=$(mktemp -d)
trap 'rm -rf "$log" "$HEDDLE_SKIPS" "$asides"' EXIT
summary=()
failed=0

step() { # step NAME COMMAND...
    local name=$1 started=$SECONDS state=ok
    shift
    printf '\n== %s\n' "$name"
    "$@" || { state=FAILED; failed=$((failed + 1)); }
    summary+=("$(printf '%-14s %-8s %4d s' "$name" "$state" $((SECONDS - started)))")
}
# Runs checks at idle priority, once cargo has begun to run tests: it builds for one command at a time.
aside() { # aside NAME...
    local name started state
    chrt --idle --pid 0 "$BASHPID" 2>/dev/null || renice -n 19 "$BASHPID" >/dev/null
    until grep -q '^ *Running' "$log" || [ -e "$asides/over" ]; do sleep 1; done
    for name in "$@"; do
        started=$SECONDS state=ok
        "$name" >"$asides/$name.out" 2>&1 || state=FAILED
        printf '%-14s %-8s %4d s, beside tests' "$name" "$state" $((SECONDS - started)) >"$asides/$name"
    done
}
told() { # told NAME: what a check aside has said
    printf '\n== %s\n' "$1"
    cat "$asides/$1.out"
    summary+=("$(cat "$asides/$1")")
    grep -q ' ok ' "$asides/$1" || failed=$((failed + 1))
}
skip() { # skip NAME WHY
    summary+=("$(printf '%-14s %-8s %s' "$1" skipped "$2")")
    printf 'step %s\t%s\n' "$1" "$2" >>"$HEDDLE_SKIPS"
}

lints() {
    local refuse=()
    [ "$compiler" = "$pinned" ] && refuse=(-D warnings)
    cargo clippy --locked --workspace --all-targets --quiet -- "${refuse[@]}"
}
docs() { RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet; }
build() { cargo test --locked --workspace --no-run --quiet; }
tests() { cargo test --locked --workspace --no-fail-fast 2>&1 | tee -a "$log"; }
# What threads hand over, and the line before a full endpoint, under every interleaving that a model checker finds.
interleavings() {
    cargo test --locked --quiet --package heddle-proxy --features loom --lib -- intake interleavings
}
instructions() { scripts/instructions.sh; }
cost() { PATH="$binaries:$PATH" heddle-lab bench cost --expect crates/bench/cost.txt; }
demo() { PATH="$binaries:$PATH" heddle-lab demo --seconds 12; }
# The advisory database is fetched from the network: without it, the rest is still checked.
dependencies() {
    cargo deny --locked --log-level error check licenses bans sources || return 1
    if cargo deny --locked --log-level error fetch db 2>/dev/null; then
        cargo deny --locked --log-level error check advisories
    else
        skip advisories "the advisory database cannot be reached from here"
    fi
}
all_should_run() {
    local probe
    [ -n "${CI:-}" ] && [ "$(id -u)" -eq 0 ] || return 1
    probe=$("${CARGO_TARGET_DIR:-target}/debug/heddle" check --probe 2>/dev/null)
    [[ $probe == *"hooks by bpf"* ]]
}
tally() {
    if all_should_run; then
        scripts/tally.sh "$log" "$HEDDLE_SKIPS" scripts/skips.txt
    else
        echo "skips fail only under CI, as root, on a kernel with BPF"
        scripts/tally.sh "$log" "$HEDDLE_SKIPS"
    fi
}

asides_wanted=(lints docs interleavings)
if [ "$compiler" = "$pinned" ] && [ "$has_avx2" -gt 0 ]; then
    asides_wanted+=(instructions)
else
    skip instructions "on record for Rust $pinned on x86-64 with AVX2, this is $compiler"
fi

step format cargo fmt --all --check
step build build
aside "${asides_wanted[@]}" &
step tests tests
touch "$asides/over"
wait
for name in "${asides_wanted[@]}"; do told "$name"; done
cat "$asides/interleavings.out" >>"$log"
# What the demo shows is what is measured, and what the tests are built with.
if [ "$compiler" = "$pinned" ] && [ "$has_avx2" -gt 0 ]; then
    step cost cost
else
    skip cost "on record for Rust $pinned on x86-64 with AVX2, this is $compiler"
fi
step demo demo
if [ "${1:-}" = deny ]; then
    step dependencies dependencies
fi

printf '\n== summary\n'
printf '%s\n' "${summary[@]}"
# The sum of the tests is the last line.
counted=$(tally) || failed=$((failed + 1))
[ "$failed" -eq 0 ] || echo "$failed of the checks failed"
printf '%s\n' "$counted"
[ "$failed" -eq 0 ]
