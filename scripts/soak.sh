#!/usr/bin/env bash
# Runs all slow tests of scripts/soak.txt in release builds, one after the other, even after one has failed, and
# ends with the totals. Tests of whole meshes need root.
#
#   scripts/soak.sh [NAME]...      only tests with one of these in their name
set -uo pipefail
cd "$(dirname "$0")/.." || exit

log=$(mktemp)
HEDDLE_SKIPS=$(mktemp)
export HEDDLE_SKIPS
trap 'rm -f "$log" "$log.one" "$HEDDLE_SKIPS"' EXIT

# Tests of whole meshes start these programs, which they find in the build directory.
cargo build --locked --release --package heddle --package heddle-lab-program || exit

mapfile -t proofs < <(grep -vE '^(#|-|$)' scripts/soak.txt)
if [ ${#proofs[@]} -eq 0 ]; then
    echo "soak: scripts/soak.txt lists no slow tests" >&2
    exit 1
fi
wanted=$(IFS='|' && echo "$*")
failed=0
number=0
for proof in "${proofs[@]}"; do
    read -r package program name <<<"$proof"
    number=$((number + 1))
    [[ $name =~ $wanted ]] || continue
    printf '\n== %d of %d: %s (%s)\n' "$number" "${#proofs[@]}" "$name" "$package"
    started=$SECONDS

    cargo test --locked --release --package "$package" "$program" -- \
        --ignored --nocapture --test-threads 1 "$name" 2>&1 | tee "$log.one"
    state=${PIPESTATUS[0]}
    # cargo also succeeds when no test has this name.
    grep -qE '^running [1-9]' "$log.one" || { echo "soak: no test is named $name" && state=1; }
    cat "$log.one" >>"$log"
    [ "$state" -eq 0 ] || failed=$((failed + 1))
    printf '== %s after %d s\n' "$([ "$state" -eq 0 ] && echo ok || echo FAILED)" $((SECONDS - started))
done

printf '\n== summary\n'
scripts/tally.sh "$log" "$HEDDLE_SKIPS" || failed=$((failed + 1))
[ "$failed" -eq 0 ]
