# SPDX-License-Identifier: GPL-2.0-or-later
"""GC workers in cgroups: a donor that was given one of its own divides it among tenants."""

from __future__ import annotations

import json

import pytest

from tests.framework.paths import TOP
from tests.vm import debug
from tests.vm.bed import Bed
from tests.vm.host import until

HERE = "/tmp/share"
GROUP = "/sys/fs/cgroup/share"
CONFIG = f"""[donor]
unix = {HERE}/donor.sock
keys = {HERE}/keys
capacity = 64M
head-room = 16M
slab-size = 2M
[gc]
workers = 4
threads = 1
"""
# Says of each tenant's worker which cgroup it is in, and has it trace: in its sandbox.
CLIENT = f"""
import json, sys
sys.path.insert(0, "{HERE}")
from tests.donor.rawtls import Control
from tests.donor.rawgc import REGION, Worker, children

donor, found = int(sys.argv[1]), []
for name, key in ("a", 1), ("b", 2):
    before = set(children(donor))
    c = Control("unix:{HERE}/donor.sock", name, bytes.fromhex("%064d" % key))
    slab = c.map()
    w = Worker(c)
    [pid] = set(children(donor)) - before
    w.slab(slab.id)
    # Its answer: by now the worker is in the cgroup that it enters before all else.
    assert w.create(8) == 0 and w.node_type() == 0
    found.append([open(f"/proc/{{pid}}/cgroup").read().strip(),
                  open(f"{GROUP}/gc/t-{{name}}/cpu.weight").read().strip(),
                  open(f"{GROUP}/gc/t-{{name}}/pids.max").read().strip()])
    assert w.place([(r, 0, 0, r * REGION) for r in range(8)]) == 0
    assert w.trace_start(1, [0] * 8) == 0 and w.finish(1) == 0
    w.close()
    c.goodbye()
print(json.dumps(found))
"""


@pytest.mark.timeout(300)
def test_a_cgroup_is_divided(bed: Bed) -> None:
    """The daemon in one part, each tenant's workers in one of their own, and none is left."""
    debug.build_programs()
    for program in ("dcm-donord", "dcm-gc-worker"):
        bed.put(debug.PROGRAMS / program, f"{HERE}/{program}", 0o755)
    for module in ("rawtls", "rawgc"):
        bed.put(TOP / f"tests/donor/{module}.py", f"{HERE}/tests/donor/{module}.py")
    bed.put(CONFIG.encode(), f"{HERE}/donor.ini")
    bed.put("".join(f"{t}:{k:064}\n" for t, k in (("a", 1), ("b", 2))).encode(), f"{HERE}/keys",
            0o600)
    bed.put(CLIENT.encode(), f"{HERE}/client.py")
    bed.must(f"echo +cpu +pids >/sys/fs/cgroup/cgroup.subtree_control; mkdir {GROUP}")
    donor = bed.spawn(f"echo $$ >{GROUP}/cgroup.procs; "
                      f"exec {HERE}/dcm-donord --config {HERE}/donor.ini")
    # it listens a moment before it has divided its cgroup
    until(lambda: "lending up to" in donor.output().stderr, lambda: str(donor.output()))
    pid = bed.must(f"cat {GROUP}/donor/cgroup.procs").strip()
    assert bed.must(f"cat {GROUP}/cgroup.procs") == ""
    assert bed.must(f"cat {GROUP}/gc/cpu.weight").strip() == "33"
    found = json.loads(bed.must(["python3", f"{HERE}/client.py", pid]))
    group = GROUP.removeprefix("/sys/fs/cgroup")
    # two workers each: a share of four; three threads in each
    assert found == [[f"0::{group}/gc/t-{t}", "100", "6"] for t in "ab"]
    until(lambda: bed.run(f"ls -d {GROUP}/gc/t-*").rc != 0, lambda: "tenants' cgroups stay")
    bed.must(f"kill {pid}")
    donor.wait(30)
    donor.end()
    bed.must(f"rmdir {GROUP}/gc {GROUP}/donor {GROUP}; rm -r {HERE}")
