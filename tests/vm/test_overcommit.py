# SPDX-License-Identifier: GPL-2.0-or-later
"""A donor whose host promises no more memory than it has: vm.overcommit_memory = 2."""

from __future__ import annotations

import json

import pytest

from tests.framework.paths import TOP
from tests.vm import debug
from tests.vm.bed import Bed
from tests.vm.host import until

HERE = "/tmp/overcommit"
SLABS = 32
CONFIG = f"""[donor]
unix = {HERE}/donor.sock
keys = {HERE}/keys
capacity = {2 * SLABS}M
head-room = 0
slab-size = 2M
data-encryption = no
[limits]
connections = 64
handshakes = 16
"""
# Maps what it is given while 24 MiB are left to promise, then writes and reads all of it.
CLIENT = f"""
import json, pathlib, sys
sys.path.insert(0, "{HERE}")
from tests.donor.rawtls import NO_MEMORY, Control, Refused

vm = pathlib.Path("/proc/sys/vm")
c = Control("unix:{HERE}/donor.sock", "a", bytes.fromhex("%064d" % 1), timeout=60)
d = c.data()
info = pathlib.Path("/proc/meminfo").read_text().splitlines()
kib = {{line.split(":")[0]: int(line.split()[1]) for line in info}}
# root's own commands may have 32 MiB more than the donor, which has lost the right to them
(vm / "admin_reserve_kbytes").write_text(str(32 << 10))
(vm / "user_reserve_kbytes").write_text("0")
(vm / "overcommit_kbytes").write_text(
    str(kib["Committed_AS"] - kib["SwapTotal"] + (32 << 10) + (24 << 10)))
(vm / "overcommit_memory").write_text("2")
slabs, refused = [], None
while len(slabs) < {SLABS} and refused is None:
    try:
        slabs.append(c.map().id)
    except Refused as e:
        refused = e.status
wrong = 0
for n, slab in enumerate(slabs):
    for at in range(0, 2 << 20, 1 << 16):
        d.write(slab, at, bytes([n + 1]) * (1 << 16))
for n, slab in enumerate(slabs):
    for at in range(0, 2 << 20, 1 << 16):
        wrong += d.read(slab, at, 1 << 16) != bytes([n + 1]) * (1 << 16)
(vm / "overcommit_memory").write_text("0")
more = c.map().id
assert d.read(more, 0) == bytes(4096)
c.goodbye()
print(json.dumps([len(slabs), refused == NO_MEMORY, wrong]))
"""
# PR_CAPBSET_DROP of CAP_SYS_ADMIN, which would let it have what is kept for root's commands
LIMITED = """
import ctypes, os, sys
assert ctypes.CDLL(None).prctl(24, 21, 0, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
KNOBS = ("overcommit_memory", "overcommit_ratio", "admin_reserve_kbytes", "user_reserve_kbytes")


@pytest.mark.timeout(300)
def test_a_write_under_strict_overcommit_does_not_kill_the_donor(bed: Bed) -> None:
    """A slab that is lent has its pages; one that can't have them is refused: no SIGBUS."""
    debug.build_programs()
    bed.put(debug.PROGRAMS / "dcm-donord", f"{HERE}/dcm-donord", 0o755)
    bed.put(TOP / "tests/donor/rawtls.py", f"{HERE}/tests/donor/rawtls.py")
    bed.put(CONFIG.encode(), f"{HERE}/donor.ini")
    bed.put(f"a:{1:064}\n".encode(), f"{HERE}/keys", 0o600)
    bed.put(CLIENT.encode(), f"{HERE}/client.py")
    before = {k: bed.get(f"/proc/sys/vm/{k}").decode().strip() for k in KNOBS}
    donor = bed.spawn(["python3", "-c", LIMITED, f"{HERE}/dcm-donord", "--config",
                       f"{HERE}/donor.ini"])
    try:
        until(lambda: donor.poll() is not None or bed.run(f"test -S {HERE}/donor.sock").rc == 0,
              "no socket")
        assert donor.poll() is None, donor.output().stderr
        done = bed.run(["python3", f"{HERE}/client.py"], timeout=120)
        bed.must("echo 0 >/proc/sys/vm/overcommit_memory")
        assert donor.poll() is None, f"the donor ended with {donor.returncode}: {done.stderr}"
        assert done.rc == 0, done.stderr + donor.output().stderr
        slabs, refused, wrong = json.loads(done.stdout)
        print(f"{slabs} slabs of 2 MiB with 24 MiB to be had; wrong: {wrong}")
        assert 4 <= slabs < SLABS and refused and wrong == 0
    finally:
        bed.must("; ".join(f"echo {v} >/proc/sys/vm/{k}" for k, v in before.items()))
        if donor.poll() is None:
            donor.signal(15)
            donor.wait(30)
        donor.end()
