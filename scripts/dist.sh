#!/usr/bin/env bash
# Builds the static, stripped binaries into dist/ and writes their checksums beside them.
#
# The binaries link the C library statically and are built for the host's own gnu target, so that every
# compiler that `make setup` may have found can build them: neither musl nor a second target is needed.
set -euo pipefail
cd "$(dirname "$0")/.."

host=$(rustc -vV | sed -n 's/^host: //p')
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
target_dir=${CARGO_TARGET_DIR:-target}
suffix="$version-${host%%-*}-linux"

# An explicit --target keeps the flag away from build scripts and procedural macros.
export RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=$PWD=."
cargo build --locked --profile dist --target "$host" --package heddle --package heddle-lab-program
# A separate build: in one build, cargo would give shared libraries the features that the other programs need, too.
cargo build --locked --profile dist --target "$host" --package heddle-node-program

mkdir -p dist
rm -f dist/heddle-* dist/SHA256SUMS
for name in heddle heddle-node heddle-lab; do
    built="$target_dir/$host/dist/$name"
    if ldd "$built" 2>/dev/null | grep -q '=>'; then
        echo "dist: $name is not static:" >&2
        ldd "$built" >&2
        exit 1
    fi
    install -m 0755 "$built" "dist/$name-$suffix"
done
(cd dist && sha256sum heddle-* >SHA256SUMS && sha256sum --check --quiet SHA256SUMS)
ls -l dist
cat dist/SHA256SUMS
