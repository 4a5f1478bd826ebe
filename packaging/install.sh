#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# install.sh install COMMAND DAEMON SHARED ARCHIVE, install.sh uninstall: puts what cargo built into place, or takes it away: the
# command and the daemon, their manual pages, documents and completions, and for C programs the header, the libraries and the pkg-config file.
#
# PREFIX (/usr/local) is where it will be found, LIBDIR (PREFIX/lib) where libraries are; DESTDIR goes before both, for
# packagers. Nothing else is touched.
set -eu

case $#${1-} in
    5install | 1uninstall) ;;
    *) echo "usage: install.sh install COMMAND DAEMON SHARED ARCHIVE, or install.sh uninstall" >&2; exit 2 ;;
esac
action=$1 command=${2-} daemon=${3-} shared=${4-} archive=${5-}

prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
root=${DESTDIR:-}
case $prefix$libdir in
    /*) ;;
    *) echo "PREFIX is $prefix and LIBDIR $libdir; give absolute paths" >&2; exit 2 ;;
esac
source=$(dirname "$0")/..
header=$source/crates/memferry-c/include/memferry.h
version=$(sed -n 's/^#define MEMFERRY_VERSION "\(.*\)"$/\1/p' "$header")
abi=${version%%.*}

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
man=$root$prefix/share/man
if [ "$action" = install ]; then
    man=$made/man
    "$command" generate man --out "$man/man1"
    mkdir "$man/man8"
    mv "$man"/man1/*.8 "$man/man8/"
    "$command" generate completions --out "$made/completions"
fi
cat >"$made/memferry.pc" <<END
prefix=$prefix
libdir=$libdir
includedir=\${prefix}/include

Name: memferry
Description: Moves memory pages between tiers at the speed of the memory
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -lmemferry
Libs.private: -pthread -ldl -lm
END

place() { # MODE FILE PATH
    if [ "$action" = install ]; then
        install -D -m "$1" "$2" "$root$3"
    else
        rm -f "$root$3"
    fi
}
symlink() { # TARGET PATH
    if [ "$action" = install ]; then
        ln -sf "$1" "$root$2"
    else
        rm -f "$root$2"
    fi
}

place 755 "$command" "$prefix/bin/memferry"
place 755 "$daemon" "$prefix/bin/memferryd"
for page in "$man"/man1/memferry.1 "$man"/man1/memferry-*.1 "$man"/man8/memferryd.8 "$man"/man8/memferryd-*.8; do
    place 644 "$page" "$prefix/share/man${page#"$man"}"
done
# The command names them as docs/daemon.md. Those of another version may have other names.
docs=$prefix/share/doc/memferry/docs
rm -rf "$root$docs"
if [ "$action" = install ]; then
    (cd "$source/docs" && find . -name '*.md') | while read -r page; do
        place 644 "$source/docs/$page" "$docs/$page"
    done
fi
for name in memferry memferryd; do
    place 644 "$made/completions/$name.bash" "$prefix/share/bash-completion/completions/$name"
    place 644 "$made/completions/_$name" "$prefix/share/zsh/site-functions/_$name"
    place 644 "$made/completions/$name.fish" "$prefix/share/fish/vendor_completions.d/$name.fish"
done
place 644 "$header" "$prefix/include/memferry.h"
place 755 "$shared" "$libdir/libmemferry.so.$version"
[ "$action" = install ] || rm -f "$root$libdir"/libmemferry.so.*
symlink "libmemferry.so.$version" "$libdir/libmemferry.so.$abi"
symlink "libmemferry.so.$abi" "$libdir/libmemferry.so"
place 644 "$archive" "$libdir/libmemferry.a"
place 644 "$made/memferry.pc" "$libdir/pkgconfig/memferry.pc"

# The loader finds libraries of the system's folders by its cache.
if [ -z "$root" ] && [ "$(id -u)" = 0 ] && command -v ldconfig >/dev/null; then
    ldconfig
fi
if [ "$action" = install ]; then
    echo "installed under $root$prefix; PREFIX=$prefix make uninstall takes it away"
fi
