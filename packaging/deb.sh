#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# deb.sh COMMAND DAEMON SHARED ARCHIVE: makes Debian packages of what cargo built, from what install.sh puts in place:
# memferry (the command and the daemon, with its unit and configuration), libmemferryN (the shared library), libmemferry-dev
# (header, libraries and pkg-config file for C programs). The maintainer scripts of memferry are in deb/.
#
# OUT (target/deb) is emptied and gets the packages. REVISION (1~memferry1, older than Debian's first would be) is the
# version's part after the hyphen. DEBFULLNAME and DEBEMAIL name the maintainer. Times are those of the last commit, or
# SOURCE_DATE_EPOCH. Nobody has to be root.
set -eu
umask 022
export LC_ALL=C

[ $# = 4 ] || { echo "usage: deb.sh COMMAND DAEMON SHARED ARCHIVE" >&2; exit 2; }
packaging=$(cd "$(dirname "$0")" && pwd)
source=$packaging/..
out=${OUT:-target/deb}
upstream=$(sed -n 's/^#define MEMFERRY_VERSION "\(.*\)"$/\1/p' "$source/crates/memferry-c/include/memferry.h")
version=$upstream-${REVISION:-1~memferry1}
abi=${upstream%%.*}
maintainer="${DEBFULLNAME:-The Memferry authors} <${DEBEMAIL:-memferry@example.invalid}>"
arch=$(dpkg-architecture -qDEB_HOST_ARCH)
libdir=usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$source" log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
all=$work/all
DESTDIR=$all PREFIX=/usr LIBDIR=/$libdir "$packaging/install.sh" install "$@" >/dev/null
install -D -m 644 "$packaging/memferry.service" "$all/usr/lib/systemd/system/memferry.service"
install -D -m 644 "$packaging/memferry.toml" "$all/etc/memferry/memferry.toml"
# Debian's zsh does not look into site-functions below /usr.
mkdir "$all/usr/share/zsh/vendor-completions"
mv "$all"/usr/share/zsh/site-functions/* "$all/usr/share/zsh/vendor-completions/"
rmdir "$all/usr/share/zsh/site-functions"
gzip -9n "$all"/usr/share/man/man?/*
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$all"/usr/bin/* "$all/$libdir"/*.so.*.*
strip --strip-debug --enable-deterministic-archives --remove-section=.comment --remove-section=.note "$all/$libdir"/*.a
chmod 644 "$all/$libdir"/*.so.*.*

# The crates that are linked in, each under the one of its licences whose text follows.
crates() {
    cargo tree --manifest-path "$source/Cargo.toml" --locked --package memferry-cli --package memferryd --package memferry-c \
        --edges normal,no-proc-macro --prefix none --format '{p}|{l}' >"$work/tree"
    sed 's/ (\*)$//; /(.*)|/d; /^$/d; s/ v/-/' "$work/tree" | sort -u | while IFS='|' read -r crate licences; do
        case $licences in
            *AND*) licence= ;;
            *MIT*) licence=MIT ;;
            *Apache-2.0*) licence=Apache-2.0 ;;
            *) licence= ;;
        esac
        [ -n "$licence" ] || { echo "$crate: no text for its licence, $licences; add it to deb.sh" >&2; exit 1; }
        authors=$(cat "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$crate"/LICEN[CS]E* 2>/dev/null |
            sed -n 's/^ *Copyright \((c) \)\{0,1\}\([^[{]*\)$/ \2/p' | sort -u)
        printf '\nFiles: %s/*\nCopyright:\n%s\nLicense: %s\n' "$crate" "${authors:- The authors of $crate}" "$licence"
    done
}

copyright() {
    cat <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Memferry
Comment: The crates and Rust's standard library are linked into the programs.

Files: *
Copyright: 2026 The Memferry authors
License: MIT or Apache-2.0

Files: core/*
Copyright: 2026 The Memferry authors
License: GPL-2 or MIT

Files: rust-std/*
Copyright: The Rust Project contributors
License: MIT or Apache-2.0
END
    crates
    printf '\nLicense: MIT\n'
    sed -n '/^Permission/,$ { s/^$/./; s/^/ /; p }' "$source/LICENSE-MIT"
    cat <<END

License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.

License: GPL-2
 Version 2 only. On Debian systems the text is in /usr/share/common-licenses/GPL-2.
END
}

copyright >"$work/copyright"
gzip -9n <"$source/CHANGELOG.md" >"$work/changelog.gz"
gzip -9n >"$work/changelog.Debian.gz" <<END
memferry ($version) unstable; urgency=medium

  * Packages made by the project itself. changelog.gz says what is new.

 -- $maintainer  $(date -uR -d "@$SOURCE_DATE_EPOCH")
END

# What dpkg-shlibdeps wants to find.
mkdir "$work/debian"
printf 'Source: memferry\n\nPackage: memferry\nArchitecture: any\n' >"$work/debian/control"
needs() { # FILE...
    (cd "$work" && dpkg-shlibdeps -O "$@") >"$work/needs"
    sed -n 's/^shlibs:Depends=//p' "$work/needs"
}

take() { # PACKAGE PATH...
    package=$1
    shift
    for path; do
        mkdir -p "$work/$package/$(dirname "$path")"
        mv "$all/$path" "$work/$package/$path"
    done
}

pack() { # PACKAGE SECTION DEPENDS SUMMARY <DESCRIPTION
    tree=$work/$1
    mkdir -p "$tree/DEBIAN" "$tree/usr/share/doc/$1"
    cp "$work/copyright" "$work/changelog.gz" "$work/changelog.Debian.gz" "$tree/usr/share/doc/$1/"
    (cd "$tree" && find usr -type f | sort | xargs md5sum) >"$tree/DEBIAN/md5sums"
    description=$(sed 's/^$/./; s/^/ /')
    cat >"$tree/DEBIAN/control" <<END
Package: $1
Source: memferry
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(du -sk --apparent-size "$tree" | cut -f1)
Depends: $3
Section: $2
Priority: optional
Description: $4
$description
END
    dpkg-deb --root-owner-group --build "$tree" "$out"
}

rm -rf "$out"
mkdir -p "$out"
library=libmemferry$abi
programs=$(needs "$all"/usr/bin/*)
shared=$(needs "$all/$libdir/libmemferry.so.$upstream")
take "$library" "$libdir/libmemferry.so.$upstream" "$libdir/libmemferry.so.$abi"
take libmemferry-dev usr/include "$libdir"
take memferry etc usr

mkdir "$work/$library/DEBIAN"
echo "libmemferry $abi $library (>= $upstream)" >"$work/$library/DEBIAN/shlibs"
echo 'activate-noawait ldconfig' >"$work/$library/DEBIAN/triggers"
pack "$library" libs "$shared" 'moves memory pages between memory tiers (library)' <<END
Memferry moves memory pages between DRAM, remote DRAM, CXL memory and HBM.

This is the library with which a program moves memory of its own while all
its threads use it.
END

pack libmemferry-dev libdevel "$library (= $version)" 'moves memory pages between memory tiers (development)' <<END
Memferry moves memory pages between DRAM, remote DRAM, CXL memory and HBM.

Header, static library and pkg-config file for C and C++ programs that use
the library.
END

install -D -m 755 -t "$work/memferry/DEBIAN" "$packaging"/deb/*
echo /etc/memferry/memferry.toml >"$work/memferry/DEBIAN/conffiles"
pack memferry admin "$programs" 'moves memory pages between memory tiers' <<END
Memferry moves memory pages between DRAM, remote DRAM, CXL memory and HBM.

The command moves the pages of running programs, measures, and sets the
kernel. Its daemon keeps memory that is in use in the top tier, on kernels
without a patch. Installing it neither enables nor starts the daemon, which
only watches until its configuration says act = true.
END
