#!/usr/bin/env bash
# Runs the tests of node QoS on control groups of version 2, in a virtual machine with Debian's newest kernel. The tests
# are those that `make test` runs on the control groups of this machine, which may be of version 1.
#
#   scripts/test-v2.sh
#
# KERNEL=FILE boots another kernel. It has to have control groups, tmpfs, devtmpfs and a serial console built in.
#
# The machine has no disk and no network: its initial file system holds the test programs and the libraries that they
# need. It says on its serial console how each test ended. A test that was skipped there is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$PWD/target}
# Fetched once; `make clean` removes it.
store=$target/test-v2
package=linux-image-cloud-amd64
# Without the processor's help, which a kernel may pretend to have, QEMU emulates every instruction: five times as slow.
accelerator=tcg
if [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then accelerator=kvm; fi
limit_s=1200

# Tests that are not run there, by program (`qos` or `cli`), each with the reason. They count neither as passed nor as skipped,
# and are named at the end. A test that skips itself for what the machine could have does not belong here.
declare -A left_out=(
    ["qos threads::tests::threads_for_offline_callers_yield_and_are_put_back"]="of version 1 only, which alone lets the threads of one process be in different groups"
    ["qos threads::tests::a_disk_that_refuses_leaves_no_file_and_an_empty_one_says_nothing"]="of version 1 only, as well"
    ["cli qos::proxy::threads_of_the_proxy_alone_are_placed_and_what_is_in_the_way_is_named"]="of version 1 only, as well"
    ["cli qos::node::a_holder_runs_the_agent_beside_proxies_that_come_and_go"]="the holder intercepts by nftables, whose kernel modules are not in the machine; what it asks of control groups, other tests do"
)
if [ "$accelerator" = tcg ]; then
    left_out["cli qos::an_agent_that_is_killed_two_hundred_times_overwrites_no_foreign_value"]="starts hundreds of processes, which takes more than $limit_s seconds when it is emulated"
fi

say() { printf 'test-v2: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

[ "$(uname -m)" = x86_64 ] || die "only for x86-64: the kernel is Debian's $package"

find_kernel() { # sets kernel
    kernel=${KERNEL:-}
    [ -z "$kernel" ] || return 0
    local newest
    newest=$(apt-cache depends "$package" | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n1)
    [ -n "$newest" ] || die "apt knows no $package: run apt-get update as root, or name a kernel with KERNEL=FILE"
    kernel=$store/$newest/boot/vmlinuz-${newest#linux-image-}
    [ ! -e "$kernel" ] || return 0
    say "fetching $newest into $store (30 MB); it is not installed on this machine"
    rm -rf "$store"
    mkdir -p "$store"
    (cd "$store" && apt-get download -qq -o APT::Sandbox::User=root "$newest") || die "apt-get could not fetch it: run apt-get update as root"
    dpkg-deb --extract "$store"/"$newest"_*.deb "$store/$newest"
    rm "$store"/*.deb
    [ -e "$kernel" ] || die "$newest has no kernel"
}

test_program() { # test_program ARGUMENT...: builds a test program and prints its path
    local said
    if ! said=$(cargo test --locked --no-run "$@" 2>&1); then
        printf '%s\n' "$said" >&2
        return 1
    fi
    said=$(sed -n 's/^ *Executable .*(\(.*\))$/\1/p' <<<"$said")
    [ -n "$said" ] || die "cargo says no path for: $*"
    realpath "$said"
}

take() { # take PROGRAM AT: copies a program without its symbols, and the libraries that it needs
    local library
    mkdir -p "$root$(dirname "$2")"
    strip -o "$root$2" "$1"
    # A static program has none.
    { ldd "$1" 2>/dev/null || true; } | sed -n 's,^[^/]*\(/[^ ]*\) .*,\1,p' | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp --dereference --update "$library" "$root$library"
    done
}

write_left_out() { # write_left_out PROGRAM PATH: writes the arguments that leave out tests of a program
    local test
    local tests
    tests=$("$2" --list)
    touch "$root/tests/$1.left-out"
    for test in "${!left_out[@]}"; do
        [ "${test%% *}" = "$1" ] || continue
        test=${test#* }
        # A test of another name would be run, and skip itself.
        grep -qx "$test: test" <<<"$tests" || die "left out, but no test of $1: $test"
        echo "--skip $test" >>"$root/tests/$1.left-out"
    done
}

write_init() {
    cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp RUST_BACKTRACE=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
ip link set lo up
mount -t cgroup2 cgroup /sys/fs/cgroup
echo '+cpu +memory +io' >/sys/fs/cgroup/cgroup.subtree_control
# Nothing of the kernel between the lines of the tests.
echo 1 >/proc/sys/kernel/printk
echo "test-v2: kernel $(uname -r), controllers of version 2: $(cat /sys/fs/cgroup/cgroup.subtree_control)"
failed=0
# The simulations of the controllers need no control groups. The kernel of this machine has no interfaces to limit.
/tests/qos --skip controllers:: --skip network:: $(cat /tests/qos.left-out) || failed=1
/tests/cli qos:: --skip network:: $(cat /tests/cli.left-out) || failed=1
echo "test-v2: ended with $failed"
poweroff -f
INIT
    chmod 755 "$root/init"
}

find_kernel
qos=$(test_program --package heddle-qos --lib)
cli=$(test_program --package heddle --test cli)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,dev,etc,proc,run,sys,tmp}
echo 'root:x:0:0::/tmp:/bin/sh' >"$root/etc/passwd"
take "$(command -v busybox)" /bin/busybox
take "$qos" /tests/qos
take "$cli" /tests/cli
write_left_out qos "$qos"
write_left_out cli "$cli"
# The tests start it by the path that it was built at.
take "$target/debug/heddle" "$(realpath "$target/debug/heddle")"
write_init
(cd "$root" && find . -print0 | cpio --null --create --format newc --owner root:root --quiet) >"$work/initrd"

log=$work/log
timeout "$limit_s" qemu-system-x86_64 -accel "$accelerator" -smp 2 -m 2G -nodefaults -no-reboot \
    -display none -serial stdio -kernel "$kernel" -initrd "$work/initrd" \
    -append "console=ttyS0 quiet panic=-1" </dev/null | sed -u 's,\r$,,' | tee "$log" ||
    die "the machine did not end within $limit_s seconds, or QEMU failed"

sed -n 's/^SKIPPED: \([^ ]*\): /\1\t/p' "$log" >"$work/skips"
touch "$work/none"
failed=0
scripts/tally.sh "$log" "$work/skips" "$work/none" || failed=1
grep -qx 'test-v2: ended with 0' "$log" || failed=1
for test in "${!left_out[@]}"; do
    say "not run: ${test#* }: ${left_out[$test]}"
done
[ "$failed" -eq 0 ] || die "failed"
