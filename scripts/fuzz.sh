#!/usr/bin/env bash
# Fuzzes every parser for some time each, from the corpus in fuzz/corpus.
#
#   scripts/fuzz.sh [SECONDS] [TARGET]...   default: 60 seconds for each of all targets
#   scripts/fuzz.sh --minimise [TARGET]...  merges new inputs into fuzz/corpus, keeping as few as cover the same
#
# New inputs are kept outside the repository, in the build directory. After a finding (a crash, a timeout, too
# much memory) the script fails and prints how to reproduce it.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/../target}
found=$CARGO_TARGET_DIR/fuzz-corpus
bounds=(-max_len=4096 -timeout=10 -rss_limit_mb=2048)

minimise() { # minimise TARGET
    mkdir -p "$found/$1" "corpus/$1"
    cargo run --quiet --manifest-path ../Cargo.toml --package heddle-fuzz-checks --example seeds "$found"
    cp -n "corpus/$1"/* "$found/$1" 2>/dev/null || true
    rm -rf "corpus/$1"
    mkdir -p "corpus/$1"
    # Coverage counts edges, not how often each edge is taken: this keeps a tenth of the inputs.
    cargo +nightly fuzz run $(features "$1") "$1" "corpus/$1" "$found/$1" -- \
        -merge=1 -use_counters=0 "${bounds[@]}" >"$found/$1.merge.log" 2>&1
    echo "$1: $(find "corpus/$1" -type f | wc -l) inputs kept"
}

run() { # run TARGET SECONDS
    local log=$found/$1.log
    mkdir -p "$found/$1" "corpus/$1"
    if ! cargo +nightly fuzz run $(features "$1") "$1" "$found/$1" "corpus/$1" -- \
        -max_total_time="$2" -print_final_stats=1 "${bounds[@]}" >"$log" 2>&1; then
        tail -n 60 "$log"
        echo "$1: FINDING after $(executions "$log") inputs, see above"
        return 1
    fi
    if [ "$(executions "$log")" -eq 0 ]; then
        tail -n 20 "$log"
        echo "$1: no input was executed, see above"
        return 1
    fi
    echo "$1: $2 s, $(executions "$log") inputs, no finding"
}
# The features that a target requires in Cargo.toml.
features() { awk -v name="$1" '/^name = /{ is = $3 == "\"" name "\"" } is && /^required-features/{ print "--features=mesh" }' Cargo.toml; }
executions() { awk '/stat::number_of_executed_units/ { n = $2 } END { print n + 0 }' "$1"; }

seconds=60
action=run
case ${1:-} in
--minimise) action=minimise && shift ;;
[0-9]*) seconds=$1 && shift ;;
esac
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    # No process substitution: its failure would be lost, and the script would succeed without fuzzing anything.
    listed=$(cargo +nightly fuzz list)
    mapfile -t targets <<<"$listed"
    if [ -z "$listed" ]; then
        echo "fuzz: cargo fuzz lists no targets" >&2
        exit 1
    fi
fi

failed=0
for target in "${targets[@]}"; do
    "$action" "$target" "$seconds" || failed=1
done
exit $failed
