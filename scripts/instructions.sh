#!/usr/bin/env bash
# Counts the instructions that operations of heddle-wire take, and compares them with the counts on record.
#
#   scripts/instructions.sh             fails if an operation takes over 5 % more than in crates/wire/instructions.txt
#   scripts/instructions.sh --update    rewrites that file
#
# An operation's cost is the difference between a run of 2N operations and a run of N, divided by N, so that
# the start of the program does not count. The counts depend on vector instructions: searches and copies select
# them at run time, and the compiler emits some for x86-64. The counts on record are for x86-64 with AVX2; on
# other machines the counts are shown but not compared.
set -euo pipefail
cd "$(dirname "$0")/.."

record=crates/wire/instructions.txt
times=200
tolerance_percent=5

cargo build --locked --quiet --release --package heddle-wire --example instructions
program=${CARGO_TARGET_DIR:-target}/release/examples/instructions

count() { # count OPERATION TIMES: instructions of the whole run
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$2" 2>&1 |
        awk '/Collected/ { print $NF; found = 1 } END { exit !found }'
}
recorded() { [ ! -e "$record" ] || awk -v name="$1" '$2 == name { print $1 }' "$record"; }

compare=1
if [ "${1:-}" = --update ] || ! grep -qw avx2 /proc/cpuinfo; then
    compare=
fi
failed=0
counts=$(mktemp)
trap 'rm -f "$counts"' EXIT
# An assignment of its own: a failure of --list ends the script here, but would not in the line of the loop.
operations=$("$program" --list)
if [ -z "$operations" ]; then
    echo "instructions: $program lists no operations" >&2
    exit 1
fi
for operation in $operations; do
    once=$(count "$operation" "$times")
    twice=$(count "$operation" $((2 * times)))
    now=$(((twice - once + times / 2) / times))
    before=$(recorded "$operation")
    printf '%8d %s\n' "$now" "$operation" >>"$counts"
    printf '%8d instructions, on record %8s  %s\n' "$now" "${before:-none}" "$operation"
    if [ -n "$compare" ] && [ "$((now * 100))" -gt "$((${before:-0} * (100 + tolerance_percent)))" ]; then
        echo "         ^ more than $tolerance_percent % above the record"
        failed=1
    fi
done
# An operation that is on record but no longer listed would otherwise go unnoticed.
if [ -n "$compare" ]; then
    for name in $(sed '/^#/d' "$record" | awk '{ print $2 }'); do
        if ! grep -qx " *[0-9]* $name" "$counts"; then
            echo "instructions: $name is on record but not listed any more: run scripts/instructions.sh --update"
            failed=1
        fi
    done
fi
if [ "${1:-}" = --update ]; then
    {
        echo "# Instructions per operation; written by scripts/instructions.sh --update."
        cat "$counts"
    } >"$record"
fi
exit $failed
