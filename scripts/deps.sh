#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# deps.sh GROUP... - install the packages that a group of tasks needs
#
# Debian 12 and 13. If all packages are installed, this takes a few milliseconds
# and changes nothing. Missing ones are installed with apt (as root), or named in
# one line. Python tools never go into the system's Python: scripts/py keeps a
# venv of its own in the cache.
set -euo pipefail

usage() {
	cat <<-EOF
	usage: scripts/deps.sh [--list] GROUP...
	Installs what is missing for the groups named (as root, with apt).

	  build    compile everything with gcc
	  test     clang, sanitizers, fuzzers, the Python for the tests
	  lint     make check
	  kernel   make kernel-check
	  pager    make test-pager
	  demo     make demo and the guest tests
	  vm       make test-kernel
	  ops      make test-ops
	  debug-kernel  make test-kernel-debug
	  qemu     scripts/qemu-build, make test-qemu
	  jdk      scripts/jdk-build, make test-jvm (and a JDK 25)
	  page     make test-page: a browser
	  packages make packages, make test-packages
	  bench    make bench

	  --list   print the packages of the groups instead
	DCM_SKIP_DEPS=1 in the environment makes it do nothing.
	EOF
}

# Debian 13 has another name for it.
tcmalloc() {
	if grep -qs '^VERSION_ID="12"' /etc/os-release; then
		echo libtcmalloc-minimal4
	else
		echo libtcmalloc-minimal4t64
	fi
}

packages() {
	case $1 in
	build)
		echo gcc libc6-dev make pkg-config libgnutls28-dev libuv1-dev \
			libmicrohttpd-dev libjansson-dev libxxhash-dev \
			librdmacm-dev libibverbs-dev liburing-dev
		;;
	test)
		packages build
		echo ccache clang libclang-rt-dev llvm libcmocka-dev libjemalloc2 "$(tcmalloc)" python3 \
			python3-venv openssl ca-certificates git \
			python3-libvirt libxml2-utils zsh
		;;
	lint)
		packages test
		echo sparse shellcheck codespell perl xz-utils valgrind
		;;
	kernel)
		echo mmdebstrap debian-archive-keyring xz-utils util-linux make
		;;
	pager)
		packages test
		echo redis-server qemu-system-x86 util-linux
		;;
	demo)
		packages build
		echo python3 "$(tcmalloc)" qemu-system-x86 qemu-utils mmdebstrap \
			debian-archive-keyring e2fsprogs cpio xz-utils zstd
		;;
	vm)
		packages kernel
		echo python3 qemu-system-x86 e2fsprogs cpio
		;;
	ops)
		packages test
		echo etcd-server prometheus openssl
		;;
	debug-kernel)
		packages vm
		echo flex bison bc libelf-dev libssl-dev gcc make xz-utils
		;;
	qemu)
		packages demo
		echo git patch ninja-build python3-venv libglib2.0-dev libfdt-dev \
			zlib1g-dev seabios qemu-system-data
		;;
	jdk)
		echo autoconf ccache curl debian-archive-keyring file g++ git libasound2-dev \
			libcups2-dev libfontconfig1-dev libfreetype-dev libx11-dev libxext-dev \
			libxrandr-dev libxrender-dev libxt-dev libxtst-dev make patch pkg-config \
			unzip util-linux xz-utils zip zlib1g-dev
		# Debian 12 has none: one of another maker is taken there.
		! grep -q '^VERSION_CODENAME=trixie' /etc/os-release || echo openjdk-25-jdk-headless
		;;
	page)
		packages test
		echo chromium fonts-dejavu-core
		;;
	packages)
		packages vm
		echo debian-archive-keyring util-linux
		;;
	bench)
		packages test
		echo valgrind redis-tools "$(tcmalloc)" sqlite3 python3-scipy \
			minimap2 coreutils kmod util-linux default-jdk-headless \
			xz-utils mawk jq xsltproc g++ curl ca-certificates
		;;
	*)
		echo "deps.sh: no group '$1'; known: build test lint kernel pager demo vm ops debug-kernel qemu jdk page packages bench" >&2
		return 2
		;;
	esac
}

list=
groups=()
for arg; do
	case $arg in
	-h | --help)
		usage
		exit 0
		;;
	--list) list=1 ;;
	*) groups+=("$arg") ;;
	esac
done
if [ ${#groups[@]} -eq 0 ]; then
	usage >&2
	exit 2
fi

all=
for g in "${groups[@]}"; do
	all+=" $(packages "$g")"
done
read -ra want <<<"$(tr -s '[:space:]' '\n' <<<"$all" | sort -u | tr '\n' ' ')"

if [ -n "$list" ]; then
	printf '%s\n' "${want[@]}"
	exit 0
fi
[ -z "${DCM_SKIP_DEPS:-}" ] || exit 0

if ! command -v dpkg-query >/dev/null; then
	echo "deps.sh: this is not Debian: install what these Debian packages hold" \
		"(${want[*]}), then set DCM_SKIP_DEPS=1" >&2
	exit 1
fi

# dpkg-query fails when a name is unknown to it; its output is still right.
have=$(dpkg-query -W -f '${Package} ${db:Status-Abbrev}\n' "${want[@]}" 2>/dev/null || true)
missing=()
for p in "${want[@]}"; do
	grep -q "^$p ii" <<<"$have" || missing+=("$p")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
	echo "deps.sh: missing packages; run: sudo apt-get install ${missing[*]}" >&2
	exit 1
fi

echo "deps.sh: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt_get() {
	# Another apt may hold the lock: wait for it instead of failing.
	apt-get -q -o DPkg::Lock::Timeout=300 -o APT::Get::Assume-Yes=1 \
		-o Acquire::Retries=3 "$@" >"$log" 2>&1 </dev/null
}
install() {
	apt_get install --no-install-recommends "${missing[@]}"
}
# Installed for tests and `make bench` only: they run these themselves and want no service.
masks=()
for p in "${missing[@]}"; do
	case $p in
	redis-server | prometheus) masks+=("$p.service") ;;
	etcd-server) masks+=(etcd.service) ;;
	esac
done
if [ -d /run/systemd/system ] && [ ${#masks[@]} -gt 0 ]; then
	systemctl -q mask --runtime "${masks[@]}"
	trap 'systemctl -q unmask --runtime "${masks[@]}"; rm -f "$log"' EXIT
fi
# The lists may be absent (a fresh image) or older than the mirror.
if ! install; then
	if ! apt_get update || ! install; then
		tail -n 20 "$log" >&2
		echo "deps.sh: apt-get could not install: ${missing[*]}" >&2
		exit 1
	fi
fi
