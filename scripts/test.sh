#!/usr/bin/env bash
# Runs every check, even after one has failed. Ends with one line per check, the names of the tests that failed or were
# skipped, and the totals: `N passed, N failed, N skipped`.
#
# Tests spend much time waiting: for timeouts, and for processes to start and to end. In that time, checks whose result
# does not depend on load run at idle priority. Their output is shown after the tests.
#
#   scripts/test.sh [deny]      with deny: also checks licences, bans and advisories of dependencies
#
# Another compiler than that of rust-toolchain.toml may have other lints and generate other code. With such a compiler
# lints are shown but do not fail, and instruction counts and costs are not compared.
#
# Under CI, as root, on a kernel with BPF, every test can run: a skip that is not in scripts/skips.txt is a failure.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

pinned=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
compiler=$(rustc --version | awk '{print $2}')
binaries=${CARGO_TARGET_DIR:-$PWD/target}/debug
has_avx2=$(grep -cw avx2 /proc/cpuinfo)
# No incremental builds: everything is compiled once, and the counts on record were made with this setting.
export CARGO_INCREMENTAL=0
log=$(mktemp)
# A test that cannot run here appends a line to this file (crates/skips).
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
# Runs checks at idle priority. Waits until cargo runs tests: before, the build holds the lock of the build directory.
aside() { # aside NAME...
    local name started state
    chrt --idle --pid 0 "$BASHPID" 2>/dev/null || renice -n 19 "$BASHPID" >/dev/null
    until grep -q '^ *Running' "$log" || [ -e "$asides/over" ]; do sleep 1; done
    for name in "$@"; do
        started=$SECONDS state=ok
        "$name" >"$asides/$name.out" 2>&1 || state=FAILED
        printf '%-14s %-8s %4d s, during tests' "$name" "$state" $((SECONDS - started)) >"$asides/$name"
    done
}
told() { # told NAME: prints the output of a check that ran aside
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
# The hand-over between threads and the queue of a full endpoint, under every interleaving that loom explores.
interleavings() {
    cargo test --locked --quiet --package heddle-proxy --features loom --lib -- intake interleavings
}
instructions() { scripts/instructions.sh; }
cost() { PATH="$binaries:$PATH" heddle-lab bench cost --expect crates/bench/cost.txt; }
demo() { PATH="$binaries:$PATH" heddle-lab demo --seconds 12; }
# The advisory database is fetched from the network. If that fails, everything else is still checked.
dependencies() {
    cargo deny --locked --log-level error check licenses bans sources || return 1
    if cargo deny --locked --log-level error fetch db 2>/dev/null; then
        cargo deny --locked --log-level error check advisories
    else
        skip advisories "the advisory database cannot be fetched"
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
        echo "skips are failures only under CI, as root, on a kernel with BPF"
        scripts/tally.sh "$log" "$HEDDLE_SKIPS"
    fi
}

asides_wanted=(lints docs interleavings)
if [ "$compiler" = "$pinned" ] && [ "$has_avx2" -gt 0 ]; then
    asides_wanted+=(instructions)
else
    skip instructions "the counts on record are for Rust $pinned on x86-64 with AVX2; this is Rust $compiler"
fi

step format cargo fmt --all --check
step build build
aside "${asides_wanted[@]}" &
step tests tests
touch "$asides/over"
wait
for name in "${asides_wanted[@]}"; do told "$name"; done
cat "$asides/interleavings.out" >>"$log"
# Costs are measured with the same programs that the demo runs, from the same build as the tests.
if [ "$compiler" = "$pinned" ] && [ "$has_avx2" -gt 0 ]; then
    step cost cost
else
    skip cost "the counts on record are for Rust $pinned on x86-64 with AVX2; this is Rust $compiler"
fi
step demo demo
if [ "${1:-}" = deny ]; then
    step dependencies dependencies
fi

printf '\n== summary\n'
printf '%s\n' "${summary[@]}"
# Printed further below: the totals of the tests are the last line.
counted=$(tally) || failed=$((failed + 1))
[ "$failed" -eq 0 ] || echo "$failed of the checks failed"
printf '%s\n' "$counted"
[ "$failed" -eq 0 ]
