#!/bin/sh
# What lode is built and tested with, and how to get it on Debian and Ubuntu.
#
#   packages.sh check   build|test    says in one sentence what is missing; exit 1 if anything is
#   packages.sh install build|test    installs what is missing, and calls no package manager when
#                                     nothing is.  Exit 0: nothing was missing, 3: installed now
#
# A thing counts as present when it can be used, whatever package it came from.
set -u

# kind name package: how to see that it is there, and the package that has it.
#   cmd  a program                       pc   a pkg-config module
#   cc   a C program links with these flags of the compiler named before the colon
table_build='
cmd gcc|clang                            gcc
cc  cc:                                  libc6-dev
cmd meson                                meson
cmd ninja                                ninja-build
cmd pkg-config|pkgconf                   pkg-config
pc  libpcre2-8                           libpcre2-dev
pc  libutf8proc                          libutf8proc-dev
pc  jansson                              libjansson-dev
pc  libxxhash                            libxxhash-dev
pc  libedit                              libedit-dev
pc  libmicrohttpd                        libmicrohttpd-dev
pc  gnutls                               libgnutls28-dev
pc  liburing                             liburing-dev
pc  sqlite3                              libsqlite3-dev
'
table_test='
cmd gcc                                  gcc
cmd g++                                  g++
cmd clang                                clang
cmd nm                                   binutils
cmd python3                              python3
pc  cmocka                               libcmocka-dev
cc  clang:-fsanitize=fuzzer,address      libclang-rt-dev
cmd llvm-symbolizer                      llvm
'
table_test_x86_64='
cmd aarch64-linux-gnu-gcc                gcc-aarch64-linux-gnu
cc  aarch64-linux-gnu-gcc:-static        libc6-dev-arm64-cross
cmd qemu-aarch64                         qemu-user
'

any_cmd() {
    for c in $(echo "$1" | tr '|' ' '); do
        command -v "$c" >/dev/null 2>&1 && return 0
    done
    return 1
}

links() { # compiler:flags
    t=$(mktemp -d) || return 1
    entry=main
    case $1 in *fuzzer*) entry=LLVMFuzzerTestOneInput ;; esac
    echo "#include <stdlib.h>
int $entry(void); int $entry(void) { return getenv(\"x\") != 0; }" >"$t/a.c"
    cc=${1%%:*}
    [ "$cc" = cc ] && cc=$(command -v gcc || command -v clang)
    # shellcheck disable=SC2086 # the flags are words
    "$cc" -w ${1#*:} "$t/a.c" -o "$t/a" >/dev/null 2>&1
    r=$?
    rm -rf "$t"
    return $r
}

missing() { # sets names, packages
    names= packages=
    while read -r kind name package; do
        [ -n "$kind" ] || continue
        case $kind in
        cmd) any_cmd "$name" ;;
        pc) pkg-config --exists "$name" 2>/dev/null || pkgconf --exists "$name" 2>/dev/null ;;
        cc) links "$name" ;;
        esac && continue
        names="$names${names:+, }$(echo "$name" | sed 's/|/ or /; s/^cc:$/the C library headers/; s/:/ /')"
        packages="$packages${packages:+ }$package"
    done <<END
$table
END
}

verb=${1:-} what=${2:-}
case $what in
build) table=$table_build ;;
test)
    table=$table_build$table_test
    [ "$(uname -m)" = x86_64 ] && table=$table$table_test_x86_64
    ;;
*) verb= ;;
esac

case $verb in
check)
    missing
    # libedit is a comfort (history and keys in the chat), libmicrohttpd is the server, gnutls reaches
    # servers by https://, liburing makes reads of models larger than memory cheaper, sqlite3 keeps the
    # chats of the server's page: lode builds without them.
    for n in libedit libmicrohttpd gnutls liburing sqlite3; do
        names=$(echo "$names" | sed "s/^$n\$//; s/, $n\$//; s/$n, //")
    done
    [ -z "$names" ] && exit 0
    echo "lode needs $names: on Debian or Ubuntu, apt-get install $packages" >&2
    exit 1
    ;;
install)
    missing
    [ -z "$packages" ] && exit 0
    id=$(. /etc/os-release 2>/dev/null && echo "${ID:-} ${ID_LIKE:-}")
    case " $id " in
    *" debian "* | *" ubuntu "*) ;;
    *)
        echo "lode needs $names: please install them (Debian calls them $packages)" >&2
        exit 1
        ;;
    esac
    if [ "$(id -u)" = 0 ]; then
        sudo= how='as root'
    elif command -v sudo >/dev/null 2>&1; then
        sudo=sudo how='through sudo'
    else
        echo "lode needs $names: please run as root apt-get install $packages" >&2
        exit 1
    fi
    echo "Installing from the distribution, $how: $packages"
    log=$(mktemp)
    # An update that fails for one of several sources may still leave what we need within reach:
    # the installation decides.
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get update >"$log" 2>&1 </dev/null
    # shellcheck disable=SC2086 # the packages are words
    if ! $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        $packages >>"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        echo "apt-get could not install $packages (the whole log: $log)" >&2
        exit 1
    fi
    rm -f "$log"
    missing
    [ -z "$names" ] && exit 3
    echo "still missing after the installation: $names" >&2
    exit 1
    ;;
*)
    echo "usage: packages.sh check|install build|test" >&2
    exit 2
    ;;
esac
