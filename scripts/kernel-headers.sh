#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# kernel-headers.sh [newest] - print the directory of a root with Debian 13's
# kernel headers, its compiler, sparse and DKMS; make it in the cache when it is
# not there. newest: the headers of Debian 13's backports, the newest there are
#
# Headers come with tools of their own (kbuild, modpost, objtool) that are built
# against Debian 13's C library and expect its gcc 14, so they are kept in a
# small Debian 13 root. The host's apt is not touched; packages are verified
# with Debian's archive keys. checkpatch.pl is taken from 6.12's source package,
# into the first root's /checkpatch. What "newest" was when its root was made
# it stays until the root is removed from the cache.
set -euo pipefail

case ${1:-} in
-h | --help)
	sed -n '4,15s/^# \{0,1\}//p' "$0"
	exit 0
	;;
'' | newest) ;;
*)
	echo "kernel-headers.sh: no kernel '$1'" >&2
	exit 2
	;;
esac

suite=trixie
mirror=${DCM_MIRROR:-http://deb.debian.org/debian}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
source=linux-source-6.12
cache=${DCM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvm-dcm}
which=${1:-}
root=$cache/kernel${which:+-$which}-$(sha256sum <"$0" | cut -c1-16)

if [ -e "$root/.complete" ]; then
	echo "$root"
	exit 0
fi

for tool in mmdebstrap flock xz; do
	if ! command -v "$tool" >/dev/null; then
		echo "kernel-headers.sh: no $tool; run: scripts/deps.sh kernel" >&2
		exit 1
	fi
done
if [ ! -r "$keyring" ]; then
	echo "kernel-headers.sh: no $keyring; run: scripts/deps.sh kernel" >&2
	exit 1
fi

from=("$mirror")
headers=linux-headers-amd64
options=(--customize-hook="mkdir \"\$1\"/checkpatch \"\$1\"/src")
if [ -n "$which" ]; then
	from=("deb [signed-by=$keyring] $mirror $suite main"
		"deb [signed-by=$keyring] $mirror $suite-backports main")
	headers+=/$suite-backports
else
	options+=(
		--customize-hook="chroot \"\$1\" sh -c 'cd /tmp && apt-get -q download $source'"
		--customize-hook="dpkg-deb --fsys-tarfile \"\$1\"/tmp/${source}_*.deb |
			tar -xO ./usr/src/$source.tar.xz |
			tar -xJ -C \"\$1\"/checkpatch --strip-components=2 \
			$source/scripts/checkpatch.pl $source/scripts/spelling.txt \
			$source/scripts/const_structs.checkpatch"
		--customize-hook="rm -f \"\$1\"/tmp/${source}_*.deb"
	)
fi

mkdir -p "$cache"
exec 9>"$cache/kernel.lock"
flock 9
if [ ! -e "$root/.complete" ]; then
	echo "kernel-headers.sh: fetching Debian 13's kernel headers into $root" \
		"(about 2 minutes, once)" >&2
	rm -rf "$root"
	log=$root.log
	if ! mmdebstrap --variant=apt --keyring="$keyring" \
		--include="$headers,make,sparse,dkms" \
		--aptopt='APT::Install-Recommends "false"' \
		--dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' \
		"${options[@]}" \
		"$suite" "$root" "${from[@]}" >"$log" 2>&1 </dev/null; then
		tail -n 15 "$log" >&2
		echo "kernel-headers.sh: could not make the root; full log: $log" >&2
		exit 1
	fi
	touch "$root/.complete"
fi
echo "$root"
