# SPDX-License-Identifier: GPL-2.0-or-later
"""Networks that stop, lose and flap, and donors that stop: nobody's memory may be lost or wrong."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults.cell import Cell, CannotRun
from tests.faults.dcmfs import Dcmfs
from tests.faults.net import Leaf, Net
from tests.faults.paged import WAYS, Victim, donor_in, libdcm_config
from tests.faults.place import Place
from tests.framework.donor import Donor

SILENCE_S = 30.0
OVER_TCP = ("tcp", "tls")


@dataclass
class Rig:
    """A host, a donor for each label, and a victim for each label and pager."""

    host: Leaf | None
    donors: dict[str, Donor]
    leaves: dict[str, Leaf]
    victims: list[Victim] = field(default_factory=list)
    dcmfs: Dcmfs | None = None

    def judge(self, note: str = "") -> list[Cell]:
        return [victim.judge(note) for victim in self.victims]

    def use(self, seconds: float) -> None:
        """The victims go on for so long; one that has ended is told by its judge."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(min(0.5, max(0.0, deadline - time.monotonic())))


def way_of(label: str) -> str:
    """A label is a way to donors, and what sets it apart from others of that way."""
    return label.partition(" ")[0]


@contextlib.contextmanager
def rig(
    place: Place,
    labels: Sequence[str],
    *,
    mib: int = 0,
    pagers: Sequence[str] = (),
    prefix: Sequence[str] = (),
    options: Mapping[str, str | int] | None = None,
) -> Iterator[Rig]:
    """All up, each page written once. In L1, where all is emulated and slow, the pager is dcmfs."""
    mib = mib or (8 if place.vm else 48)
    nap_us = 12000 if place.vm else 3000
    budget = "4M" if place.vm else "8M"
    pagers = pagers or (("dcmfs",) if place.vm else ("libdcm",))
    # RDMA's devices in software are in no namespace but the first.
    rdma = labels == ("verbs",)
    with contextlib.ExitStack() as stack:
        names = [f"{'r' if rdma else 'd'}{number}" for number in range(len(labels))]
        net = None if rdma else stack.enter_context(Net("host", *names))
        made = Rig(net["host"] if net else None, {}, {})
        keys: dict[str, str] | None = None
        for label, name in zip(labels, names, strict=True):
            leaf = net[name] if net else None
            donor = donor_in(place.folder(name), leaf, way_of(label), keys=keys, donor=options)
            donor.prefix = [*place.first, *donor.prefix, *prefix]
            keys = donor.keys
            made.donors[label] = stack.enter_context(donor)
            if leaf:
                made.leaves[label] = leaf
        for label, donor in made.donors.items() if "libdcm" in pagers else ():
            folder = place.folder(f"v{donor.folder.name}")
            config = libdcm_config(folder, [(donor, way_of(label))], budget=budget)
            name, memory = f"{label} libdcm", f"dcm:{config}"
            victim = Victim(name, memory, folder, leaf=made.host, mib=mib, nap_us=nap_us)
            made.victims.append(victim)
        if "dcmfs" in pagers:
            below = place.below("r") if rdma else place
            kernel = Dcmfs(below, made.host, made.donors, budget=budget)
            made.dcmfs = stack.enter_context(kernel)
            for label, donor in made.donors.items():
                folder = place.folder(f"k{donor.folder.name}")
                path = f"file:{made.dcmfs.file(donor)}"
                made.victims.append(Victim(f"{label} dcmfs", path, folder, mib=mib, nap_us=nap_us))
        for victim in made.victims:
            stack.enter_context(victim)
        for victim in made.victims:
            victim.ready()
        yield made


def cut(place: Place, labels: Sequence[str], how: Callable[[str, Leaf], None]) -> list[Cell]:
    """The way to each donor is cut for half a minute while memory is used, then healed."""
    with rig(place, labels) as made:
        place.say(f"cut for {SILENCE_S:.0f} s")
        for label, leaf in made.leaves.items():
            how(label, leaf)
        made.use(SILENCE_S)
        for leaf in made.leaves.values():
            leaf.heal()
        made.use(3)
        return made.judge()


def partition(place: Place) -> list[Cell]:
    """Nothing gets through in either direction."""

    def both(_: str, leaf: Leaf) -> None:
        leaf.cut_from()
        leaf.cut_to()

    return cut(place, OVER_TCP, both)


def oneway(place: Place) -> list[Cell]:
    """Some donors hear nothing, others are not heard."""
    labels = [f"{way} {direction}" for way in OVER_TCP for direction in ("deaf", "mute")]

    def one(label: str, leaf: Leaf) -> None:
        if label.endswith("deaf"):
            leaf.cut_to()
        else:
            leaf.cut_from()

    return cut(place, labels, one)


def pause(place: Place) -> list[Cell]:
    """Each donor is stopped for half a minute."""
    with contextlib.ExitStack() as stack:
        rigs = [stack.enter_context(rig(place, WAYS))]
        if place.vm:
            both = ("libdcm", "dcmfs")
            rigs.append(stack.enter_context(rig(place, ("verbs",), pagers=both)))
        donors = [donor for made in rigs for donor in made.donors.values()]
        place.say(f"donors stopped for {SILENCE_S:.0f} s")
        for donor in donors:
            donor.signal(signal.SIGSTOP)
        rigs[0].use(SILENCE_S)
        for donor in donors:
            donor.signal(signal.SIGCONT)
        rigs[0].use(3)
        return [cell for made in rigs for cell in made.judge()]


def loss(place: Place) -> list[Cell]:
    """Each way loses 5 %, delays by 100 ms there and back, and puts out of order."""
    if not place.vm:
        raise CannotRun("this host's kernel has no netem: it is tried in the VM")
    seconds = 40.0
    with rig(place, OVER_TCP, pagers=("libdcm", "dcmfs")) as made:
        for leaf in made.leaves.values():
            leaf.netem("delay", "50ms", "10ms", "loss", "5%", "reorder", "25%", "50%")
        place.say(f"5 % lost, 100 ms, out of order, for {seconds:.0f} s")
        made.use(seconds)
        for leaf in made.leaves.values():
            leaf.netem()
        return made.judge()


def flap(place: Place) -> list[Cell]:
    """Cut in one of four ways and healed, a hundred times, for moments of random length."""
    seed = random.SystemRandom().randrange(1 << 30)
    rng = random.Random(seed)
    times = 100
    with rig(place, OVER_TCP) as made:
        place.say(f"{times} times, seed {seed}")
        for _ in range(times):
            for leaf in made.leaves.values():
                how: tuple[Callable[[], None], ...] = rng.choice(
                    ((leaf.cut_from,), (leaf.cut_to,), (leaf.cut_from, leaf.cut_to), (leaf.down,))
                )
                for step in how:
                    step()
            time.sleep(min(2.5, rng.expovariate(4)))
            for leaf in made.leaves.values():
                leaf.heal()
            time.sleep(min(1.0, rng.expovariate(6)))
        return made.judge(f"; {times} times, seed {seed} of the cuts")
