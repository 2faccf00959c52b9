# SPDX-License-Identifier: GPL-2.0-or-later
"""Drills: donors in use die, stop, are cut off, want memory back, and return wrong bytes.

The load is bench/drill.c, which checks each page that it touches, and prints a line with its
figures each tenth of a second. access() and swapped() run bench/access.c; their figures are
compared in pairs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.faults.net import Leaf, Net, NetError, entered
from tests.framework.donor import Donor, DonorError
from tests.framework.fdstore import Store

from . import donors, gc, host, spoil

COPIES = "replica:2"
SLAB_MIB = 16
RATE_MIB = 20  # rebuild-rate: so slow that a rebuild of this size takes some seconds
READY_S = 120.0
HITS = {"sigkill": signal.SIGKILL, "sigstop": signal.SIGSTOP}


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much to measure. @tiny: sizes that only show that everything runs."""

    build: Path
    repeat: int
    tiny: bool = False

    @property
    def budget(self) -> int:
        return (16 if self.tiny else 64) << 20

    @property
    def window_s(self) -> float:
        return 3.0 if self.tiny else 60.0


@dataclasses.dataclass(frozen=True)
class Line:
    """A line that drill.c prints each tenth of a second."""

    at: float
    touches: int
    gap_s: float


@dataclasses.dataclass(frozen=True)
class Drill:
    """One donor's death: touches a second before and after, the longest waits, the rebuild."""

    before: float
    after: float
    gap_before_s: float
    gap_s: float
    rebuild_s: float | None
    rebuilt_bytes: int
    lost_pages: int
    failovers: int


class Load:
    """A running drill.c, and the lines that it has printed."""

    def __init__(
        self,
        s: Scale,
        config: Path,
        runtime: Path,
        write: int,
        network: donors.Network = contextlib.nullcontext,
    ) -> None:
        self.lines: list[Line] = []
        program, mib = s.build / "bench" / "bin" / "drill", 4 * s.budget >> 20
        with network():
            self._process = host.spawn(
                [program, config, str(mib), "2", str(write)],
                cpus=gc.cpus()[0],
                env=gc.with_libdcm(s.build, runtime),
                stdin=subprocess.PIPE,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for text in self._process.stdout:
            found = json.loads(text)
            self.lines.append(Line(time.monotonic(), found["touches"], found["gap_us"] / 1e6))

    def ended(self) -> bool:
        """Whether drill.c has ended, as it does when a page is wrong."""
        return self._process.poll() is not None

    def check(self) -> None:
        """BenchError if drill.c has ended: a page was wrong."""
        if self.ended():
            assert self._process.stderr
            raise host.BenchError(self._process.stderr.read().decode(errors="replace")[-300:])

    def between(self, begin: float, end: float) -> list[Line]:
        return [line for line in self.lines if begin <= line.at < end]

    def end(self) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        host.kill_group(self._process)


def network_of(leaf: Leaf | None) -> donors.Network:
    """A context in the network of a leaf; without a leaf, in this program's network."""
    return functools.partial(entered, leaf.name) if leaf else contextlib.nullcontext


@contextlib.contextmanager
def group(
    s: Scale,
    folder: Path,
    number: int,
    more: str = "",
    files: bool = False,
    net: Net | None = None,
) -> Iterator[list[donors.Donor]]:
    """Run `number` donors over TCP without encryption, on a CPU of their own.

    `files`: run another one, which lends files. `more`: further lines of their configurations.
    `net`: a network that has a leaf with the name of each donor.
    """
    with contextlib.ExitStack() as stack:
        made: list[donors.Donor] = []
        for name in "abcd"[:number] + "f" * files:
            options = {"slab-size": f"{SLAB_MIB}M", "capacity": "1G"}
            if name == "f":
                slabs = folder / "slabs"
                slabs.mkdir(parents=True)
                options |= {"medium": "file", "path": str(slabs)}
            leaf = net[name] if net else None
            made.append(
                stack.enter_context(
                    donors.donor(
                        s.build / "bin" / "dcm-donord",
                        folder / name,
                        cpus=gc.cpus()[1],
                        options=options,
                        keys=made[0].keys if made else None,
                        more=more,
                        network=network_of(leaf),
                        ip=leaf.address if leaf else "127.0.0.1",
                    )
                )
            )
        yield made


def configure(
    s: Scale,
    folder: Path,
    made: list[donors.Donor],
    redundancy: str,
    tunables: dict[str, int] | None = None,
    *,
    name: str = "bench",
    times: int = 5,
    encrypt: bool = False,
    seal: bool = False,
) -> tuple[Path, Path]:
    """Write the configuration of a pager on these donors; return its path and the runtime
    folder's. @times: the VM's size, in budgets."""
    runtime = folder / "run"
    runtime.mkdir(exist_ok=True)
    config = donors.pager_config(
        folder / f"{name}.ini",
        [d.tcp for d in made],
        made[0].keys,
        s.budget,
        times * s.budget,
        name=name,
        encrypt=encrypt,
        seal=seal,
        redundancy=redundancy,
        rebuild_rate=RATE_MIB << 20,
        tunables=tunables,
    )
    return config, runtime


def whole(status: dict[str, Any]) -> bool:
    """Whether there are mapped extents, and each has all of its copies."""
    return bool(status.get("extents", {}).get("mapped")) and not (
        status["exposed_bytes"] or status["filling"]
    )


def filled(s: Scale, status: dict[str, Any]) -> bool:
    """Whether all memory that the program uses is mapped, and has all of its copies."""
    mapped = status.get("extents", {}).get("mapped", 0)
    return mapped * SLAB_MIB << 20 >= 4 * s.budget and whole(status)


def wait(
    load: Load, sampler: donors.StatusSampler, good: Callable[[dict[str, Any]], bool]
) -> float:
    """Wait until the status is good; return the time of that status."""
    end = time.monotonic() + READY_S
    while not (sampler.last and good(sampler.last)):
        load.check()
        if time.monotonic() > end:
            raise host.BenchError(f"not reached: {sampler.last}")
        time.sleep(0.05)
    return time.monotonic()


def rate(lines: list[Line], seconds: float) -> float:
    return sum(line.touches for line in lines) / seconds


def longest(lines: list[Line]) -> float:
    """The longest time, in seconds, in which a thread finished no touch."""
    return max((line.gap_s for line in lines), default=0.0)


@contextlib.contextmanager
def loaded(
    s: Scale,
    folder: Path,
    number: int = 4,
    tunables: dict[str, int] | None = None,
    more: str = "",
    redundancy: str = COPIES,
    net: Net | None = None,
) -> Iterator[tuple[list[donors.Donor], Load, donors.StatusSampler]]:
    """Run donors, and drill.c with copies of its memory on them; half of its touches write."""
    disk = redundancy == "disk"
    with group(s, folder, number, more, disk, net) as made, contextlib.ExitStack() as stack:
        config, runtime = configure(s, folder, made, redundancy, tunables)
        load = Load(s, config, runtime, 50, network_of(net["host"] if net else None))
        stack.callback(load.end)
        sampler = donors.StatusSampler(runtime, every=0.1)
        sampler.start()
        stack.callback(sampler.stop)
        yield made, load, sampler


@contextlib.contextmanager
def hit(pid: int, leaf: Leaf | None, how: str) -> Iterator[None]:
    """Kill a donor; or stop it, or drop all its packets, until the end of the block."""
    if how == "link":
        assert leaf
        leaf.cut_from()
        leaf.cut_to()
    else:
        os.kill(pid, HITS[how])
    try:
        yield
    finally:
        if leaf:
            leaf.heal()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def drill(s: Scale, folder: Path, how: str) -> Drill:
    """Kill the busiest donor (sigkill), stop it (sigstop) or cut it off (link)."""
    try:
        with contextlib.ExitStack() as stack:
            # each donor in a network of its own, behind a router that can drop its packets
            net = stack.enter_context(Net("host", *"abcd")) if how == "link" else None
            return _drill(s, folder, how, net)
    except NetError as e:
        raise host.BenchError(str(e)) from e


def _drill(s: Scale, folder: Path, how: str, net: Net | None) -> Drill:
    with loaded(s, folder, net=net) as (made, load, sampler), contextlib.ExitStack() as stack:
        begin = wait(load, sampler, functools.partial(filled, s)) + 2.0
        time.sleep(2.0 + s.window_s)
        load.check()
        slabs = [d["slabs"] for d in sampler.last["donors"]]
        busiest = slabs.index(max(slabs))
        pages = sampler.last["counters"]["FILLED_PAGES"]
        killed = time.monotonic()
        stack.enter_context(hit(made[busiest].pid, net["abcd"[busiest]] if net else None, how))
        rebuild, bytes_ = None, 0
        if how == "sigkill":
            lost = wait(load, sampler, lambda st: st["donors"][busiest]["state"] == "lost")
            rebuild = wait(load, sampler, whole) - lost
            bytes_ = (sampler.last["counters"]["FILLED_PAGES"] - pages) * 4096
        time.sleep(max(0.0, killed + s.window_s - time.monotonic()))
        load.check()
        before = load.between(begin, begin + s.window_s)
        after = load.between(killed, killed + s.window_s)
        return Drill(
            rate(before, s.window_s),
            rate(after, s.window_s),
            longest(before),
            longest(after),
            rebuild,
            bytes_,
            sampler.last["lost_pages"],
            sampler.last["counters"]["FAILOVERS"],
        )


@dataclasses.dataclass(frozen=True)
class Twice:
    """The deaths of two donors at once: the loss that the status foretold, and the real one."""

    together: dict[str, int]
    pair: str
    lost: int

    @property
    def named(self) -> int:
        return self.together[self.pair]


def twice(s: Scale, folder: Path) -> Twice:
    """Kill those two of four donors that share the most extents."""
    with loaded(s, folder) as (made, load, sampler):
        wait(load, sampler, functools.partial(filled, s))
        # these figures of the status are up to a second old
        time.sleep(2.5)
        wait(load, sampler, lambda st: not any(d["alone_bytes"] for d in st["donors"]))
        together = {t["donors"]: t["bytes"] for t in sampler.last["together"]}
        pair = max(together, key=lambda names: together[names])
        dead = [i for i, d in enumerate(sampler.last["donors"]) if d["name"] in pair.split("+")]
        for i in dead:
            os.kill(made[i].pid, signal.SIGKILL)
        wait(load, sampler, lambda st: all(st["donors"][i]["state"] == "lost" for i in dead))
        # wait until each lost extent is marked and counted
        time.sleep(5.0)
        load.check()
        return Twice(together, pair, sampler.last["lost_pages"] * 4096)


@dataclasses.dataclass(frozen=True)
class Disk:
    """The death of all donors of memory: touches a second before and after, and what was lost."""

    before: float
    after: float
    gap_s: float
    gap_before_s: float
    lost_pages: int
    mapped_bytes: int


def disk(s: Scale, folder: Path) -> Disk:
    """Kill all three donors that lend memory at once; one that lends files is left."""
    # thin_after: so that each evicted page is on both of its donors
    with loaded(s, folder, 3, {"thin_after": 10000}, "", "disk") as (made, load, sampler):
        begin = wait(load, sampler, functools.partial(filled, s))
        time.sleep(s.window_s)
        load.check()
        for donor in made[:3]:
            os.kill(donor.pid, signal.SIGKILL)
        killed = time.monotonic()
        wait(load, sampler, lambda st: all(d["state"] == "lost" for d in st["donors"][:3]))
        time.sleep(max(0.0, killed + s.window_s - time.monotonic()))
        load.check()
        before = load.between(begin, begin + s.window_s)
        after = load.between(killed, killed + s.window_s)
        return Disk(
            rate(before, s.window_s),
            rate(after, s.window_s),
            longest(after),
            longest(before),
            sampler.last["lost_pages"],
            sampler.last["extents"]["mapped"] * SLAB_MIB << 20,
        )


@dataclasses.dataclass(frozen=True)
class Evicted:
    """A donor wants memory back: slabs it asked for, slabs it took by force, what was lost."""

    asked: int
    forced: int
    lost_pages: int


def evict(s: Scale, folder: Path) -> Evicted:
    """Halve the capacity of the busiest of three donors; hosts have a second to give slabs back."""
    more = "[eviction]\nevict-timeout = 1s\n"
    with loaded(s, folder, 3, {"thin_after": 10000}, more) as (made, load, sampler):
        wait(load, sampler, functools.partial(filled, s))
        slabs = [d["slabs"] for d in sampler.last["donors"]]
        busiest = made[slabs.index(max(slabs))]
        before = busiest.status()["evictions"]
        busiest.change("capacity = 1G", f"capacity = {max(slabs) // 2 * SLAB_MIB}M")
        wait(load, sampler, lambda _: busiest.status()["memory"]["slabs_mapped"] <= max(slabs) // 2)
        wait(load, sampler, whole)
        after = busiest.status()["evictions"]
        return Evicted(
            after["asked"] - before["asked"],
            after["forced"] - before["forced"],
            sampler.last["lost_pages"],
        )


@dataclasses.dataclass(frozen=True)
class Restart:
    """Donors are killed and started again: how often, a thread's longest stop, what was lost."""

    kills: int
    gap_before_s: float
    gap_s: float
    lost_pages: int


@contextlib.contextmanager
def kept(s: Scale, folder: Path) -> Iterator[list[Donor]]:
    """Run two donors whose descriptors a store keeps for them, as systemd does."""
    with contextlib.ExitStack() as stack:
        made: list[Donor] = []
        for name in "ab":
            one = Donor(
                folder / name,
                keys=made[0].keys if made else None,
                binary=s.build / "bin" / "dcm-donord",
                donor={
                    "slab-size": f"{SLAB_MIB}M", "capacity": "1G", "head-room": "512M",
                    "data-encryption": "no",
                },
            )  # fmt: skip
            one.store = Store(one.folder)
            stack.callback(one.store.close)
            stack.callback(one.stop)
            made.append(one.start())
        yield made


def restart(s: Scale, folder: Path) -> Restart:
    """Kill the one donor, the other, then both, under a program without copies of its memory."""
    try:
        with kept(s, folder) as made, contextlib.ExitStack() as stack:
            config, runtime = folder / "vm.ini", folder / "run"
            runtime.mkdir()
            addresses = [d.tcp_address for d in made]
            key = made[0].key_file
            donors.pager_config(config, addresses, key, s.budget, 5 * s.budget)
            load = Load(s, config, runtime, 50)
            stack.callback(load.end)
            sampler = donors.StatusSampler(runtime, every=0.1)
            sampler.start()
            stack.callback(sampler.stop)
            begin = wait(load, sampler, functools.partial(filled, s))
            time.sleep(s.window_s / 4)
            first = time.monotonic()
            for hit in ([0], [1], [0, 1]):
                for i in hit:
                    made[i].kill()
                for i in hit:
                    made[i].start()
                time.sleep(s.window_s / 4)
                wait(load, sampler, lambda st: all(d["state"] == "up" for d in st["donors"]))
            load.check()
            return Restart(
                4,
                longest(load.between(begin, first)),
                longest(load.between(first, time.monotonic())),
                sampler.last["lost_pages"],
            )
    except DonorError as e:
        raise host.BenchError(str(e)) from e


@dataclasses.dataclass(frozen=True)
class Flips:
    """Pages changed in a donor's memory; of these, how many the pager or the program noticed."""

    changed: dict[str, int]
    noticed: int
    lost: int
    seen: int


def flips(s: Scale, folder: Path) -> Flips:
    """Change pages in one donor's memory again and again; drill.c checks all that it reads."""
    want = 2000 if s.tiny else 100000
    # thin_after: so that no page is on the bad donor alone
    with loaded(s, folder, 2, {"thin_after": 10000}) as (made, load, sampler):
        wait(load, sampler, functools.partial(filled, s))
        with contextlib.closing(spoil.Spoiler(made[1].pid)) as spoiler:
            while not load.ended() and sampler.last["counters"]["WRONG_PAGES"] < want:
                spoiler.spoil()
        last = sampler.last
        noticed = last["counters"]["WRONG_PAGES"]
        return Flips(spoiler.changed, noticed, last["lost_pages"], int(load.ended()))


def metadata(s: Scale, folder: Path, *, seal: bool = False) -> float:
    """This host's metadata in bytes per page, for a VM whose extents all have copies."""
    with group(s, folder, 2) as made, contextlib.ExitStack() as stack:
        config, runtime = configure(s, folder, made, COPIES, times=4, seal=seal)
        load = Load(s, config, runtime, 50)
        stack.callback(load.end)
        sampler = donors.StatusSampler(runtime, every=0.1)
        sampler.start()
        stack.callback(sampler.stop)
        wait(
            load,
            sampler,
            lambda st: whole(st) and st["extents"]["mapped"] == st["extents"]["total"],
        )
        load.check()
        last = sampler.last
        return float(last["metadata_bytes"] * 4096 / last["size_bytes"])


def touch(
    s: Scale,
    write: int,
    *more: str,
    env: dict[str, str] | None = None,
    cgroup: host.Cgroup | None = None,
) -> dict[str, Any]:
    """Run bench/access.c on random pages of four times the budget; return its figures."""
    argv: list[str | os.PathLike[str]] = [
        s.build / "bench" / "bin" / "access",
        *("--pages", str(4 * s.budget >> 12), "--pattern", "rand", "--write", str(write)),
        *("--warm", "2000" if s.tiny else "20000", "--seconds", "1" if s.tiny else "8"),
        *more,
    ]
    return dict(host.run(argv, timeout=300, cpus=gc.cpus()[0], env=env, cgroup=cgroup).json())


def access(
    s: Scale,
    folder: Path,
    redundancy: str,
    write: int,
    *,
    number: int = 2,
    files: bool = False,
    alternate: str = "",
) -> dict[str, Any]:
    """Run touch() with memory on donors. `alternate`: a tunable whose two values alternate."""
    with group(s, folder, number, files=files) as made:
        config, runtime = configure(s, folder, made, redundancy)
        environment = gc.with_libdcm(s.build, runtime)
        more = ["--alternate", alternate] if alternate else []
        return touch(s, write, "--pager", str(config), *more, env=environment)


@dataclasses.dataclass(frozen=True)
class Way:
    """How a pager keeps its memory on donors."""

    redundancy: str = "none"
    encrypt: bool = False
    seal: bool = False


def beside(s: Scale, folder: Path, first: Way, second: Way, number: int) -> dict[str, Any]:
    """Time read faults of two pagers of one process, on the same donors, in turn.

    The figures are under `ns` and `ns_0`.
    """
    with group(s, folder, number) as made:
        (config, runtime), (other, _) = (
            configure(
                s, folder, made, w.redundancy, name=name, encrypt=w.encrypt, seal=w.seal
            )
            for name, w in (("first", first), ("second", second))
        )
        environment = gc.with_libdcm(s.build, runtime)
        return touch(
            s, 0, "--pager", str(config), "--beside", str(other), env=environment
        )


def swapped(s: Scale, folder: Path, ledger: host.Ledger) -> dict[str, Any]:
    """Run touch() with swap on a file, in a cgroup whose limit is the budget."""
    folder.mkdir(parents=True)
    with (
        host.swap_file(ledger, folder / "swap", 8 * s.budget),
        host.cgroup(ledger, s.budget) as group,
    ):
        return touch(s, 0, cgroup=group)
