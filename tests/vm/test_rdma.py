# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory over RDMA: real donors and pagers on rxe, in L1.

One machine, one dummy network device, queue pairs from it to itself: what a network does to packets
is not tested here, all else is. rdma_peer.py, in L1, is the hosts that a donor must stand.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.framework.paths import BUILD, TOP
from tests.vm.bed import Bed
from tests.vm.job import Job
from tests.vm.conftest import NewBed
from tests.vm.rdma import ADDRESS, rxe

HERE = "/root/rdma"
PROGRAMS = [BUILD / "bin" / "dcm-donord", BUILD / "tests-vm" / "rdma_raw",
            BUILD / "tests-pager" / "pager_test", BUILD / "tests-pager" / "loss_test"]
SCENARIOS = ["memory", "killed", "vanished"] + [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("tickets", "revoked", "forced", "foreign", "lanes")
]

pytestmark = [
    pytest.mark.rdma,
    pytest.mark.skipif(
        not all(p.exists() for p in PROGRAMS),
        reason="run make programs, make -C tests/pager and make -C tests/vm",
    ),
]


def prepare(bed: Bed) -> Bed:
    """L1 with an RDMA device and the programs."""
    rxe(bed)
    bed.must(["mkdir", "-p", HERE])
    for path in PROGRAMS:
        if bed.run(["test", "-e", f"{HERE}/{path.name}"]).rc:
            bed.put(path, f"{HERE}/{path.name}")
    for name in ("vm/rdma_peer.py", "donor/rawtls.py"):
        bed.put(TOP / "tests" / name, f"{HERE}/tests/{name}")
    bed.put(f"alice:{'11' * 32}\nbob:{'22' * 32}\n".encode(), f"{HERE}/keys", 0o600)
    return bed


@pytest.fixture
def rdma(bed: Bed) -> Bed:
    """The shared L1, with an RDMA device."""
    return prepare(bed)


def ini(sections: dict[str, dict[str, str]]) -> bytes:
    return "".join(f"[{name}]\n" + "".join(f"{k} = {v}\n" for k, v in options.items())
                   for name, options in sections.items()).encode()


@contextmanager
def donor(bed: Bed, name: str = "donor", port: int = 7400, evict: str = "30s",
          **options: str) -> Iterator[Job]:
    """A donor in L1, ready; it ends, well, with the block."""
    values = {"listen": f"{ADDRESS}:{port}", "keys": f"{HERE}/keys", "capacity": "512M",
              "head-room": "64M", "slab-size": "16M", "spare-slabs": "1",
              "data-encryption": "no", "rdma": "yes"} | {
                  k.replace("_", "-"): v for k, v in options.items()}
    bed.put(ini({"donor": values, "eviction": {"evict-timeout": evict},
                 "http": {"listen": f"127.0.0.1:{port + 2350}"},
                 "tenant bob": {"connections": "4"}}), f"{HERE}/{name}.ini", 0o600)
    job = bed.spawn([f"{HERE}/dcm-donord", "--config", f"{HERE}/{name}.ini", "--log-level", "7"])
    try:
        deadline = time.monotonic() + 30
        while "lending up to" not in job.output().stderr:
            assert job.poll() is None and time.monotonic() < deadline, job.output()
            time.sleep(0.1)
        yield job
        if job.poll() is None:
            assert job.end(30) == 0, job.output()
    finally:
        job.end()
        print(f"--- {name}\n{job.output().stderr[-6000:]}")


def status(bed: Bed, port: int = 7400) -> dict[str, Any]:
    return bed.status(port + 2350)


def pager(bed: Bed, ports: dict[str, int], **vm: str) -> str:
    """A libdcm configuration; its path in L1."""
    values = {"name": "test", "budget": "16M", "size": "256M", "mode": "program",
              "threshold": "1M", "on-loss": "sigbus", "data-encryption": "no",
              "transport": "verbs"} | {k.replace("_", "-"): v for k, v in vm.items()}
    sections = {"vm": values} | {f"donor {name}": {"address": f"tcp:{ADDRESS}:{port}"}
                                 for name, port in ports.items()}
    sections["key"] = {"tenant": "alice", "file": f"{HERE}/keys"}
    return bed.put(ini(sections), f"{HERE}/host.ini", 0o600)


def torture(bed: Bed, config: str, seconds: int, seed: int) -> Job:
    return bed.spawn(f"mkdir -p /run/dcm; DCM_RUNTIME_DIR=/run/dcm exec {HERE}/pager_test torture "
                     f"{config} 64 {seconds} 2 {seed}")


def passed(job: Job, seconds: float = 120) -> str:
    """It ended well; what it and libdcm said."""
    status = job.wait(seconds)
    said = job.output()
    print(said.stdout, said.stderr)
    assert status == 0 and "every byte right" in said.stdout, said
    return said.stderr


def play(bed: Bed, scenario: str) -> None:
    """One of rdma_peer.py's, to its good end."""
    done = bed.run(f"cd {HERE} && timeout 100 python3 -m tests.vm.rdma_peer {scenario}", 120)
    print(done.stdout, done.stderr)
    assert done.rc == 0 and done.stdout.endswith("ok\n"), done.stderr[-3000:]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_donor_stands(rdma: Bed, scenario: str) -> None:
    """Tickets, memory, keys taken back, hosts that are hostile or die; the donor lives."""
    with donor(rdma, evict="2s" if scenario == "forced" else "30s") as job:
        play(rdma, scenario)
        assert job.poll() is None


@pytest.mark.slow
def test_large_slab(new_bed: NewBed) -> None:
    """1 GiB in one region, allocated before it is registered."""
    bed = prepare(new_bed(kvm=False, guest=False, memory_mib=2048))
    with donor(bed, capacity="1G", slab_size="1G", spare_slabs="0"):
        play(bed, "large")


@pytest.mark.parametrize("transport", ["verbs", pytest.param("auto", marks=pytest.mark.slow)])
def test_pages(rdma: Bed, transport: str) -> None:
    """A pager under torture; every byte by RDMA, none through the donor."""
    with donor(rdma):
        config = pager(rdma, {"a": 7400}, transport=transport)
        said = passed(torture(rdma, config, 8, 11))
        assert "reached by RDMA" in said
        found = status(rdma)
        assert found["rdma"]["connections_made"] >= 2 and not found["rdma"]["errors"]
        assert found["data"]["reads"] == 0 and found["data"]["writes"] == 0


@pytest.mark.slow
def test_evicted(rdma: Bed) -> None:
    """A donor wants memory back under torture: extents move to another, over verbs."""
    with donor(rdma) as a, donor(rdma, "second", 7401) as b:
        config = pager(rdma, {"a": 7400, "b": 7401})
        job = torture(rdma, config, 20, 12)
        deadline = time.monotonic() + 60
        while not status(rdma)["memory"]["slabs_mapped"]:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        time.sleep(3)
        rdma.must(f"sed -i 's/^capacity = .*/capacity = 16M/' {HERE}/donor.ini")
        a.signal(1)
        time.sleep(6)
        rdma.must(f"sed -i 's/^capacity = .*/capacity = 16M/' {HERE}/second.ini; "
                  f"sed -i 's/^capacity = .*/capacity = 512M/' {HERE}/donor.ini")
        a.signal(1)
        b.signal(1)
        said = passed(job)
        assert "wants extent" in said and "is lost" not in said
        found = status(rdma)["evictions"], status(rdma, 7401)["evictions"]
        assert found[0]["done"] + found[1]["done"] > 0
        assert found[0]["forced"] + found[1]["forced"] == 0, found


@contextmanager
def losing(bed: Bed, config: str, until: str) -> Iterator[None]:
    """A pager whose memory is full; in the block it loses some, which it says as `until`."""
    bed.must(f"rm -f {HERE}/fifo; mkfifo {HERE}/fifo; mkdir -p /run/dcm")
    run = bed.spawn(f"DCM_RUNTIME_DIR=/run/dcm DCM_WITHOUT=poison exec "
                    f"{HERE}/loss_test look {config} {HERE}/fifo")
    deadline = time.monotonic() + 60

    def wait(what: str, error: bool) -> None:
        while what not in (run.output().stderr if error else run.output().stdout):
            assert run.poll() is None and time.monotonic() < deadline, run.output()
            time.sleep(0.1)

    try:
        wait("ready", False)
        yield
        wait(until, True)
        bed.must(f"echo go > {HERE}/fifo")
        status = run.wait(120)
        said = run.output()
        print(said.stdout, said.stderr)
        assert status == 0 and "lost" in said.stdout and "had no other copy" in said.stderr
    finally:
        run.end()


def test_donor_killed(rdma: Bed) -> None:
    """Pages that only the dead donor had are lost, and a line says so: never zeroes."""
    with donor(rdma, slab_size="4M") as job:
        # each page that is lost is a signal, which takes long there
        with losing(rdma, pager(rdma, {"a": 7400}, budget="4M"), "is lost"):
            job.signal(9)


@pytest.mark.slow
def test_taken_by_force(rdma: Bed) -> None:
    """The donor takes slabs that nobody else has room for: these are lost, the others are not."""
    with donor(rdma, evict="100ms", slab_size="2M") as job:
        with losing(rdma, pager(rdma, {"a": 7400}), "has taken a slab back"):
            rdma.must(f"sed -i 's/^capacity = .*/capacity = 24M/' {HERE}/donor.ini")
            job.signal(1)
            deadline = time.monotonic() + 60
            while (found := status(rdma))["memory"]["used_bytes"] > 24 << 20:
                assert time.monotonic() < deadline, found
                time.sleep(0.2)
            assert found["evictions"]["forced"] > 0
            assert found["rdma"]["registered_bytes"] <= 24 << 20
            assert len(found["sessions"]) == 1 and found["rdma"]["connections"] > 0
            # what is written from now on needs somewhere to go
            rdma.must(f"sed -i 's/^capacity = .*/capacity = 512M/' {HERE}/donor.ini")
            job.signal(1)


@pytest.mark.slow
def test_falls_back(rdma: Bed) -> None:
    """The donor can be reached by TCP and not by RDMA: a line, and TCP."""
    with donor(rdma):
        config = pager(rdma, {"a": 7400}, transport="auto")
        # what may be locked is less than a queue pair's ring
        job = rdma.spawn(f"mkdir -p /run/dcm; ulimit -l 64; DCM_RUNTIME_DIR=/run/dcm exec "
                         f"setpriv --bounding-set -ipc_lock "
                         f"{HERE}/pager_test torture {config} 64 5 2 13")
        said = passed(job)
        assert "can't be reached by it: using tcp" in said
        assert status(rdma)["data"]["reads"] > 0


@pytest.mark.slow
def test_little_locked(rdma: Bed) -> None:
    """Rings can be locked, the lanes' landing buffers can't: pages are copied once more."""
    with donor(rdma):
        config = pager(rdma, {"a": 7400})
        job = rdma.spawn(f"mkdir -p /run/dcm; ulimit -l 6144; DCM_RUNTIME_DIR=/run/dcm exec "
                         f"setpriv --bounding-set -ipc_lock "
                         f"{HERE}/pager_test torture {config} 64 5 2 15")
        said = passed(job)
        assert "every page is copied once more" in said and "reached by RDMA" in said
        assert status(rdma)["data"]["reads"] == 0


@pytest.mark.slow
def test_device_goes(new_bed: NewBed) -> None:
    """The RDMA device is taken away under torture: pages go on over TCP.

    In an L1 of its own, which goes with it, since removing rxe has been known to hang kernels.
    """
    bed = prepare(new_bed(kvm=False, guest=False))
    with donor(bed, slab_size="2M") as job:
        config = pager(bed, {"a": 7400}, transport="auto")
        run = torture(bed, config, 15, 14)
        deadline = time.monotonic() + 60
        while not status(bed)["rdma"]["registered_bytes"]:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        # it waits until nobody has it open any more
        delete = bed.spawn(["rdma", "link", "delete", "rxe0"])
        said = passed(run)
        assert "data connection:" in said
        found = status(bed)
        assert job.poll() is None and found["rdma"]["listen"] == "off"
        assert found["data"]["reads"] > 0 and not found["evictions"]["forced"]
    assert delete.wait(30) == 0, delete.output()
