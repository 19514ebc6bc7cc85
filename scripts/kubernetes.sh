#!/usr/bin/env bash
# Builds programs of Kubernetes and Istio from their published Go modules, and prints the folder that they are in. A program that
# is there already is not built again.
#
#   scripts/kubernetes.sh [--built] PROGRAM...     of etcd, kube-apiserver, kubelet, kubectl and istiod
#
# With --built nothing is built: it fails if one is not there.
# The first run takes about ten minutes of two processors at the lowest priority for Kubernetes, as many for Istio, and some 5 GB
# in Go's own caches. The programs are kept in $XDG_CACHE_HOME/heddle/kubernetes-VERSION; there istiod is a link into
# istio-VERSION-vtprotobuf. GOFLAGS=-p=1 builds on one processor.
set -euo pipefail

kubernetes=1.36.3
etcd=3.6.8
istio=0.0.0-20260827124520-eed52ebb66ad

cache=${XDG_CACHE_HOME:-$HOME/.cache}/heddle
all_work=$(mktemp -d)
trap 'rm -rf "$all_work"' EXIT
say() { printf 'kubernetes: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# The folder of a module in Go's cache, which is filled when it is not there.
folder_of() { # folder_of MODULE VERSION
    go mod download -json "$1@v$2" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p'
}

# Builds packages of a module that cannot be installed by itself, because its go.mod points at folders beside it: an empty
# module requires it, and takes the modules of those folders at the version that was published with it.
build() { # build MODULE VERSION VERSION-OF-THE-MODULES-BESIDE-IT VERSION-VARIABLE NAME=PACKAGE...
    local module=$1 version=$2 beside=$3 variable=$4 source work name
    shift 4
    local missing=()
    for name in "$@"; do
        [ -x "$out/${name%%=*}" ] || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$only_built" = no ] || die "not built: ${missing[*]%%=*}"
    command -v go >/dev/null || die "go is missing: install Go 1.26 or newer"
    source=$(folder_of "$module" "$version")
    work=$(mktemp -d -p "$all_work")
    cp "$source/go.sum" "$work/go.sum"
    {
        printf 'module heddle.dev/test\n\n'
        grep -E '^(go|godebug) ' "$source/go.mod"
        printf 'require %s v%s\n' "$module" "$version"
        # A line in a block, with a tab before it. etcd forbids some modules in lines of their own.
        sed -n 's,^\t\([^ ]*\) => \.\{1\,2\}/.*$,\1,p' "$source/go.mod" | while read -r name; do
            printf 'replace %s => %s v%s\n' "$name" "$name" "$beside"
        done
    } >"$work/go.mod"
    mkdir -p "$out"
    for name in "${missing[@]}"; do
        say "building ${name%%=*} $version"
        (cd "$work" && GOFLAGS="${GOFLAGS:-} -mod=mod -buildvcs=false -trimpath" CGO_ENABLED=0 nice -n 19 \
            go build -ldflags "-s -w${variable:+ -X $variable=v$version}" -o "$out/.${name%%=*}" "${name#*=}")
        mv "$out/.${name%%=*}" "$out/${name%%=*}"
    done
}

out=$cache/kubernetes-$kubernetes
only_built=no
if [ "${1:-}" = --built ]; then
    only_built=yes
    shift
fi
[ $# -gt 0 ] || die "name the programs: etcd, kube-apiserver, kubelet, kubectl, istiod"
for program in "$@"; do
    case $program in
        etcd) build go.etcd.io/etcd/server/v3 "$etcd" "$etcd" "" etcd=go.etcd.io/etcd/server/v3 ;;
        kube-apiserver | kubelet | kubectl)
            build k8s.io/kubernetes "$kubernetes" "0.${kubernetes#*.}" k8s.io/component-base/version.gitVersion \
                "$program=k8s.io/kubernetes/cmd/$program"
            ;;
        istiod)
            # With the tags that its Makefile has: messages are encoded by code that is made for them, not by reflection.
            tagged=istio-$istio-vtprotobuf
            out=$cache/$tagged GOFLAGS="${GOFLAGS:-} -tags=vtprotobuf,disable_pgv" \
                build istio.io/istio "$istio" "" "" istiod=istio.io/istio/pilot/cmd/pilot-discovery
            mkdir -p "$out"
            ln -sfn "../$tagged/istiod" "$out/istiod"
            ;;
        *) die "there is no program $program to build" ;;
    esac
done
printf '%s\n' "$out"
