#!/bin/sh
# Tries lode as a stranger would: a bare Debian 12, a clean clone, the two commands of the README.
#
#   tests/fresh.sh [DIR]                  as root, needs debootstrap; DIR: /tmp/lode-fresh
#   SUITE=noble MIRROR=URL tests/fresh.sh [DIR]      the same in Ubuntu 24.04, from that mirror
#
# Twice: once as root, once as a user with sudo.  Nothing of this machine is visible in there but the
# clone of HEAD, git and make.  KEEP=1 keeps DIR; ONLY=root or ONLY=user does one of the two;
# FAST=1 leaves `make check` out.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
dir=${1:-/tmp/lode-fresh}
case $dir in /?*) ;; *) echo "DIR must be an absolute path" >&2; exit 2 ;; esac
[ "$(id -u)" = 0 ] || { echo "fresh.sh must run as root (debootstrap, chroot)" >&2; exit 1; }
mkdir -p "$dir"

suite=${SUITE:-bookworm}
base=$dir/$suite
if [ ! -f "$base/.complete" ]; then
    rm -rf "$base"
    # A Debian's debootstrap need not know Ubuntu's newest names; all its suites are made alike.
    script=/usr/share/debootstrap/scripts/$suite
    [ -f "$script" ] || script=/usr/share/debootstrap/scripts/jammy
    [ "$suite" = bookworm ] || parts=--components=main,universe
    debootstrap --variant=minbase ${parts:-} "$suite" "$base" "${MIRROR:-}" "$script" >"$dir/debootstrap.log"
    touch "$base/.complete"
fi

now=
leave() {
    [ -z "$now" ] || umount "$now/dev/pts" "$now/proc" 2>/dev/null || true
    [ -n "${KEEP:-}" ] || rm -rf --one-file-system "$dir/root" "$dir/user"
}
trap leave EXIT

say() { printf '\n== %s\n' "$*"; }

# in_it USER COMMAND: runs it in $now, in the clone, with a bare environment and no terminal.
in_it() {
    chroot "$now" su - "$1" -s /bin/sh -c "cd ~/lode && $2"
}

try() { # who
    now=$dir/$1
    umount "$now/dev/pts" "$now/proc" 2>/dev/null || true # of a run that was killed
    rm -rf --one-file-system "$now"
    cp -a "$base" "$now"
    mount -t proc proc "$now/proc"
    mount -t devpts -o newinstance,ptmxmode=666 devpts "$now/dev/pts" # tests open terminals
    ln -sf pts/ptmx "$now/dev/ptmx"
    extra='make'
    [ "$1" = user ] && extra='make sudo'
    chroot "$now" sh -c "apt-get update && apt-get install -y --no-install-recommends $extra" \
        >"$dir/$1.log" 2>&1 </dev/null
    home=$now/root
    if [ "$1" = user ]; then
        chroot "$now" useradd -m -s /bin/sh user
        echo 'user ALL=(ALL) NOPASSWD: ALL' >"$now/etc/sudoers.d/user"
        home=$now/home/user
    fi
    git clone -q --no-hardlinks "$root" "$home/lode"
    [ "$1" = root ] || chroot "$now" chown -R user:user /home/user/lode

    say "$1: make demo </dev/null"
    in_it "$1" 'make demo </dev/null'
    say "$1: make demo again, with a prompt, must install and build nothing"
    echo 'What is the capital of Peru?' | in_it "$1" 'make demo' >"$dir/$1.again" 2>&1
    cat "$dir/$1.again"
    ! grep -q 'Installing' "$dir/$1.again"
    if [ -z "${FAST:-}" ]; then
        say "$1: make check"
        in_it "$1" 'make check </dev/null'
    fi
    umount "$now/dev/pts" "$now/proc"
    now=
}

for who in ${ONLY:-root user}; do
    try "$who"
done
say 'fresh: all of it worked'
