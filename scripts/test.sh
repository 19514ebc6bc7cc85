#!/usr/bin/env bash
# Runs every check, also after one has failed, and ends with one line per check, the sum of the tests, and the names of
# those that failed.
#
#   scripts/test.sh [deny]      with deny: the dependencies' licences, bans and advisories too
#
# A compiler other than the one in rust-toolchain.toml may know more lints and count other
# instructions. With such a one, lints are shown but not refused and counts are not compared.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

pinned=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
compiler=$(rustc --version | awk '{print $2}')
binaries=${CARGO_TARGET_DIR:-target}/fast
log=$(mktemp)
log_of_interleavings=$(mktemp)
trap 'rm -f "$log" "$log_of_interleavings"' EXIT
summary=()
failed=0

step() { # step NAME COMMAND...
    local name=$1 started=$SECONDS state=ok
    shift
    printf '\n== %s\n' "$name"
    "$@" || { state=FAILED; failed=$((failed + 1)); }
    summary+=("$(printf '%-14s %-8s %4d s' "$name" "$state" $((SECONDS - started)))")
}
skip() { # skip NAME WHY
    summary+=("$(printf '%-14s %-8s %s' "$1" skipped "$2")")
}

lints() {
    local refuse=()
    [ "$compiler" = "$pinned" ] && refuse=(-D warnings)
    cargo clippy --locked --workspace --all-targets --quiet -- "${refuse[@]}"
}
docs() { RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet; }
tests() { cargo test --locked --workspace --no-fail-fast 2>&1 | tee "$log"; }
# What threads hand over, and the line before a full endpoint, under every interleaving that a model checker finds.
interleavings() {
    cargo test --locked --quiet --package heddle-proxy --features loom --lib -- intake interleavings 2>&1 |
        tee "$log_of_interleavings"
}
# What the demo shows is what is measured: both are optimised a little, and compiled in a part of the time of a release.
fast() { cargo build --locked --quiet --profile fast --package heddle --package heddle-lab-program --package bookstore; }
cost() { PATH="$binaries:$PATH" heddle-lab bench cost --expect crates/bench/cost.txt; }
demo() { PATH="$binaries:$PATH" heddle-lab demo --seconds 12; }
# The advisory database is fetched from the network: without it, the rest is still checked.
dependencies() {
    cargo deny --locked --log-level error check licenses bans sources || return 1
    if cargo deny --locked --log-level error fetch db 2>/dev/null; then
        cargo deny --locked --log-level error check advisories
    else
        echo "advisories were NOT checked: the advisory database cannot be reached from here"
    fi
}
passed_and_failed() {
    awk '/^test result:/ { passed += $4; failed += $6; ignored += $8 }
         END { printf "%d passed, %d failed, %d ignored\n", passed, failed, ignored }' "$log"
}
# A test program ends with `failures:` and a line for each. Another `failures:` before it has what they said, after an
# empty line.
names_of_failed() {
    awk '/^failures:$/ { names = 1; next }
         names && /^    [^ ]/ { print "failed:" substr($0, 4); next }
         { names = 0 }' "$log" "$log_of_interleavings"
}

step format cargo fmt --all --check
step lints lints
step docs docs
step tests tests
step interleavings interleavings
if [ "$compiler" = "$pinned" ]; then
    step instructions scripts/instructions.sh
else
    skip instructions "counted with Rust $pinned only, this is $compiler"
fi
step "fast build" fast
if [ "$compiler" = "$pinned" ] && grep -qw avx2 /proc/cpuinfo; then
    step cost cost
else
    skip cost "on record for Rust $pinned on x86-64 with AVX2"
fi
if cargo +nightly fuzz --version >/dev/null 2>&1; then
    # All but the one that takes ten minutes to build; `make fuzz` has it.
    mapfile -t targets < <(cd fuzz && cargo +nightly fuzz list | grep -vx certificate_request)
    step "fuzz smoke" scripts/fuzz.sh 5 "${targets[@]}"
else
    skip "fuzz smoke" "no nightly compiler with cargo-fuzz here: make fuzz brings them"
fi
step demo demo
if [ "${1:-}" = deny ]; then
    step dependencies dependencies
fi

printf '\n== summary\n'
printf '%s\n' "${summary[@]}"
passed_and_failed
names_of_failed
[ "$failed" -eq 0 ] || echo "$failed of the checks failed"
[ "$failed" -eq 0 ]
