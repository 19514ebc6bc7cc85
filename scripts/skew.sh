#!/usr/bin/env bash
# Runs nodes and control planes of this version beside those of an older one, which it builds.
#
#   scripts/skew.sh [REVISION]     a tag or a commit; by default the one below
#
# HEDDLE_OLDER=PROGRAM uses a program that is already built.
set -euo pipefail
cd "$(dirname "$0")/.."

# The newest one that others may run. Once there are releases: the last one.
default=708a3846
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

if [ -n "${HEDDLE_OLDER:-}" ]; then
    [ $# -eq 0 ] || { echo "skew: HEDDLE_OLDER names a program: a revision beside it has no effect" >&2 && exit 1; }
    HEDDLE_OLDER=$(realpath "$HEDDLE_OLDER")
    export HEDDLE_OLDER
else
    revision=$(git rev-parse --verify --quiet "${1:-$default}^{commit}") || {
        echo "skew: there is no revision ${1:-$default} here: git fetch --unshallow may bring it" >&2
        exit 1
    }
    store=$target/skew
    tree=$store/tree
    trap 'git worktree remove --force "$tree" 2>/dev/null || true' EXIT
    git worktree remove --force "$tree" 2>/dev/null || true
    git worktree add --detach "$tree" "$revision" >/dev/null
    echo "skew: building ${revision:0:12}" >&2
    (cd "$tree" && CARGO_TARGET_DIR="$store/target" cargo build --locked --package heddle)
    export HEDDLE_OLDER=$store/target/debug/heddle
fi
cargo test --locked --package heddle --test cli -- --ignored --test-threads 1 nodes::skew
