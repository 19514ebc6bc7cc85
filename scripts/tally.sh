#!/usr/bin/env bash
# Adds up the results of test programs, and names the tests that failed or were skipped.
#
#   scripts/tally.sh LOG SKIPS [EXPECTED]
#
# LOG is the output of cargo test. SKIPS has a line for each skipped test or step: its name, a tab, the reason. A test
# that leaves out a part counts as skipped. EXPECTED is a list of names: a skip that is not on it is a failure; a name
# on it that was not skipped is printed.
set -euo pipefail

log=$1
skips=$2
expected=${3:-}
if [ ! -r "$log" ] || [ ! -r "$skips" ]; then
    echo "tally: cannot read $log or $skips" >&2
    exit 1
fi

# A test program ends with `failures:` and the names of its failed tests. An earlier `failures:`, followed by an empty
# line, begins the output of these tests. At the end cargo names the failed programs, including those that crashed.
awk '/^failures:$/ { names = "test"; next }
     /^error: [0-9]+ targets? failed:$/ { names = "program"; next }
     names && /^    [^ ]/ { print "failed: " names " " substr($0, 5); next }
     { names = "" }' "$log"

# A test may give several reasons: the first one is printed.
declare -A why=()
unexpected=0
while IFS=$'\t' read -r name reason; do
    [ -z "${why[$name]+said}" ] || continue
    why[$name]=$reason
    note=
    if [ -n "$expected" ] && ! grep -qxF -e "$name" "$expected"; then
        note=" (it is not on $expected: a failure)"
        unexpected=$((unexpected + 1))
    fi
    echo "skipped: $name: $reason$note"
done <"$skips"
if [ -n "$expected" ]; then
    while read -r name; do
        case $name in '' | '#'*) continue ;; esac
        [ -n "${why[$name]+said}" ] || echo "no longer skipped: $name: remove it from $expected"
    done <"$expected"
fi

steps=0
for name in "${!why[@]}"; do
    case $name in 'step '*) steps=$((steps + 1)) ;; esac
done
tests=$((${#why[@]} - steps))
# The test harness counts skipped tests as passed.
awk -v tests="$tests" -v skipped="${#why[@]}" '
    /^test result:/ { passed += $4; failed += $6; ignored += $8 }
    END {
        if (ignored) printf "%d ignored: slow tests, which make soak runs, and functions that are not tests\n", ignored
        printf "%d passed, %d failed, %d skipped\n", passed - tests, failed, skipped
        # Fail if no test has run.
        exit passed + failed == 0
    }' "$log"
[ "$unexpected" -eq 0 ]
