#!/usr/bin/env bash
# Sums up what test programs said, and names what failed and what was skipped.
#
#   scripts/tally.sh LOG SKIPS [EXPECTED]
#
# LOG is what cargo test printed. SKIPS has a line for each test or step that was skipped: its name, a tab, why. A test
# that leaves a part out counts as skipped. With EXPECTED, a list of names, a skip that is not on it fails; a name on it
# that was not skipped is said.
set -euo pipefail

log=$1
skips=$2
expected=${3:-}
if [ ! -r "$log" ] || [ ! -r "$skips" ]; then
    echo "tally: $log and $skips must be there" >&2
    exit 1
fi

# A test program ends with `failures:` and a line for each. Another `failures:` before it has what they said, after an
# empty line. At the end cargo names the programs that failed, those among them that did not get to their end.
awk '/^failures:$/ { names = "test"; next }
     /^error: [0-9]+ targets? failed:$/ { names = "program"; next }
     names && /^    [^ ]/ { print "failed: " names " " substr($0, 5); next }
     { names = "" }' "$log"

# One test may say several times why.
declare -A why=()
unexpected=0
while IFS=$'\t' read -r name reason; do
    [ -z "${why[$name]+said}" ] || continue
    why[$name]=$reason
    note=
    if [ -n "$expected" ] && ! grep -qxF -e "$name" "$expected"; then
        note=" (it is not on $expected, and so fails)"
        unexpected=$((unexpected + 1))
    fi
    echo "skipped: $name: $reason$note"
done <"$skips"
if [ -n "$expected" ]; then
    while read -r name; do
        case $name in '' | '#'*) continue ;; esac
        [ -n "${why[$name]+said}" ] || echo "no longer skipped: $name: take it off $expected"
    done <"$expected"
fi

steps=0
for name in "${!why[@]}"; do
    case $name in 'step '*) steps=$((steps + 1)) ;; esac
done
tests=$((${#why[@]} - steps))
# The harness counts a skipped test as one that passed.
awk -v tests="$tests" -v skipped="${#why[@]}" '
    /^test result:/ { passed += $4; failed += $6; ignored += $8 }
    END {
        if (ignored) printf "%d ignored: slow proofs, of which make soak runs all, and what is no proof\n", ignored
        printf "%d passed, %d failed, %d skipped\n", passed - tests, failed, skipped
        # Nothing was tested.
        exit passed + failed == 0
    }' "$log"
[ "$unexpected" -eq 0 ]
