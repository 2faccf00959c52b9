# SPDX-License-Identifier: GPL-2.0-or-later
"""`exits`, `huge`: guests under KVM in L1."""

from __future__ import annotations

from kernel import l1
from kernel.row import Raw, Row, Say, median, row
from tests.guest.vmharness import GuestGone
from tests.vm.bed import Bed, Spec
from tests.vm.job import CommandTimeout

TRIES = 3  # L1s, of which all but one may end or hang: told in the row
HUGE_PAGES = 512  # pages in an entry of 2 MiB
KVM_COUNTS = ("exits", "pf_taken", "pf_fixed", "irq_exits", "pages_2m")
KVM_LOOK = "; ".join(f"echo {x} $(cat /sys/kernel/debug/kvm/{x})" for x in KVM_COUNTS)


def _exits(keep: str, runs: list[Raw], say: Say, repeat: int) -> None:
    spec = Spec(quick=False, memory_mib=1024, cpus=1, guest=False)
    with Bed(spec, keep=l1.OUT / keep) as bed:
        l1.prepare(bed)
        bed.put(l1.VCPU, "/tmp/vcpu", 0o755)
        bed.must("modprobe kvm_amd")
        swaps = l1.Swaps(bed, 4 * l1.SIZE)
        for _ in range(repeat):
            for name in ("brd", "dcmfs"):
                with l1.side(swaps, name, l1.SIZE, l1.LIMIT * l1.MIB) as side:
                    side.look = f"{side.look}; {KVM_LOOK}"
                    ran = side.touch(f"{l1.SIZE} 2", program="/tmp/vcpu")
                one = {
                    "side": name,
                    "pages_in": side.pages_in(ran),
                    "major_faults": side.faults(ran),
                    **{k: ran.rose[k] for k in KVM_COUNTS},
                }
                runs.append(one)
                say(f"exits: {name}: {one}")
        swaps.close()
        l1.judge(bed)


def exits(say: Say, repeat: int) -> Row:
    """An L1 that ends or hangs is thrown away, and the row says so; one that complains is not."""
    runs: list[Raw] = []
    thrown: list[str] = []
    while True:
        runs.clear()
        try:
            _exits(f"exits-{len(thrown) + 1}", runs, say, repeat)
            break
        except (GuestGone, CommandTimeout) as err:
            thrown.append(f"after {len(runs)} of {2 * repeat} runs: {str(err).splitlines()[0]}")
            say(f"exits: L1 {len(thrown)} is thrown away {thrown[-1]}")
            if len(thrown) == TRIES:
                raise

    def figure(name: str, what: str) -> float:
        return median(r[what] / r["pages_in"] for r in runs if r["side"] == name)

    ours, peer = figure("dcmfs", "exits"), figure("brd", "exits")
    violations, fetches = figure("dcmfs", "pf_taken"), figure("dcmfs", "major_faults")
    peers = figure("brd", "pf_taken")
    detail = (
        f"{ours:.3f} exits a page, {peer:.3f} with swap on brd; of them violations: "
        f"{violations:.3f}, {peers:.3f}, of which repeated, since pages left during them: "
        f"{violations - figure('dcmfs', 'pf_fixed'):.3f}, "
        f"{peers - figure('brd', 'pf_fixed'):.3f}. Major faults a page: {fetches:.3f}, "
        f"{figure('brd', 'major_faults'):.3f}: a block is in the process's page table after the "
        f"first, but KVM's own gets one entry a violation. A KVM that maps what is present around "
        f"a violation would need {fetches:.3f} a page: {1 - fetches / violations:.0%} less"
        f". L1s thrown away, of {TRIES} at most: {'; '.join(thrown) or 'none'}"
    )
    raw: Raw = {"runs": runs, "thrown_away": thrown}
    return row("exits", ours, violations <= 1.05, raw, repeat, detail)


class Plain(l1.Side):
    """Anonymous memory, of which there is enough."""

    name = "anonymous"
    memory = "anon"
    look = KVM_LOOK


def _first_touch(side: l1.Side) -> Raw:
    """A guest touches each of its pages once; what KVM's tables are made of afterwards."""
    ran = side.touch(f"{l1.SIZE} 0", program="/tmp/vcpu")
    pages = ran.figures["pages"]
    return {
        "side": side.name,
        "large": ran.rose["pages_2m"] * HUGE_PAGES / pages,
        "exits": ran.rose["exits"] / pages,
    }


def huge(say: Say, repeat: int) -> Row:
    runs: list[Raw] = []
    spec = Spec(quick=False, memory_mib=1024, cpus=1, guest=False)
    with Bed(spec, keep=l1.OUT / "huge") as bed:
        l1.prepare(bed)
        bed.put(l1.VCPU, "/tmp/vcpu", 0o755)
        bed.must("modprobe kvm_amd")
        for _ in range(repeat):
            with l1.dcmfs(bed, l1.SIZE, l1.SIZE * l1.MIB) as ours:
                ours.look = f"{ours.look}; {KVM_LOOK}"
                runs += [_first_touch(ours), _first_touch(Plain(bed))]
            say(f"huge: {runs[-2:]}")
        l1.judge(bed)

    def figure(name: str, what: str) -> float:
        return median(r[what] for r in runs if r["side"] == name)

    large, exits_a_page = figure("dcmfs", "large"), figure("dcmfs", "exits")
    detail = (
        f"value is the part of {l1.SIZE} MiB that KVM maps by entries of 2 MiB after the guest has "
        f"touched each page once, in order; {exits_a_page:.4f} exits a page. Anonymous memory with "
        f"transparent huge pages: {figure('anonymous', 'large'):.3f}, "
        f"{figure('anonymous', 'exits'):.4f}. The file's budget is its size"
    )
    ok = large >= 0.95 and exits_a_page <= 0.01
    return row("huge", large, ok, {"runs": runs}, repeat, detail)
