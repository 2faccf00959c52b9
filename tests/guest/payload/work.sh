#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# work.sh JOB [ARGS]: memory-hungry work inside the guest
#
# Every job prints what the programs made; the host knows the right answers
# (workload.py) and compares. Only Debian's own programs work here.
set -eu

job=$1
shift
case $job in
hold)
	# Fill a tmpfs file with numbered lines and leave it: memory that goes
	# cold, and must come back right when somebody asks for it.
	seq "$1" "$2" >/dev/shm/held
	stat -c 'bytes %s' /dev/shm/held
	;;
held)
	sha256sum </dev/shm/held
	;;
unhold)
	rm -f /dev/shm/held
	;;
stress)
	# Verifying stressor: METHOD, bytes each of two workers, seconds at most,
	# operations of both (none: as many as there is time for).
	stress-ng --vm 2 --vm-method "$1" --vm-bytes "$2" --vm-keep --verify \
		--timeout "$3" ${4:+--vm-ops "$4"} --metrics --oomable --temp-path /tmp 2>&1
	;;
sort)
	# Shuffle numbers at random, sort them again: the result is known.
	seq "$1" "$2" | shuf >/dev/shm/shuffled
	sort -n -S "$3" --parallel=2 </dev/shm/shuffled | sha256sum
	rm -f /dev/shm/shuffled
	;;
sqlite)
	# An in-memory database: fill, index, update, check, query.
	sqlite3 :memory: <query.sql
	;;
xz)
	seq "$1" "$2" >/dev/shm/plain
	xz -T1 -"$3" -c /dev/shm/plain >/dev/shm/plain.xz
	xz -t /dev/shm/plain.xz
	xz -dc /dev/shm/plain.xz | sha256sum
	rm -f /dev/shm/plain /dev/shm/plain.xz
	;;
redis)
	# Many small objects, written in order and read back in another.
	redis-server --port 0 --unixsocket /run/work/redis.sock --save '' \
		--appendonly no --daemonize yes --logfile /run/work/redis.log >/dev/null
	until redis-cli -s redis.sock ping 2>/dev/null | grep -q PONG; do sleep 0.2; done
	seq 1 "$1" | awk '{ printf "SET k:%d %0200d\r\n", $1, $1 * 7919 }' |
		redis-cli -s redis.sock --pipe | tail -n 1
	seq 1 "$1" | awk '
		{ printf "%s k:%d", NR % 100 == 1 ? "MGET" : "", ($1 * 7919) % N + 1 }
		NR % 100 == 0 { print "" }' N="$1" | redis-cli -s redis.sock | sha256sum
	redis-cli -s redis.sock shutdown nosave 2>/dev/null || true
	;;
scratch)
	# Through the disk with O_DIRECT on the host's side: the host's kernel
	# reads and writes guest pages itself, so they must not move meanwhile.
	seq "$1" "$2" >/dev/shm/out
	dd if=/dev/shm/out of=/dev/vdc bs=1M oflag=direct conv=fsync status=none iflag=fullblock
	bytes=$(stat -c %s /dev/shm/out)
	rm -f /dev/shm/out
	dd if=/dev/vdc bs=1M iflag=direct status=none | head -c "$bytes" | sha256sum
	;;
*)
	echo "work.sh: no job $job" >&2
	exit 2
	;;
esac
