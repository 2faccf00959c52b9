# SPDX-License-Identifier: GPL-2.0-or-later
"""RDMA without hardware in L1: rxe over a network device that leads to L1 itself.

Never taken away again: removing rxe while something still looks at it is a way to hang a kernel
that has nothing to do with what is tested here. It goes with its L1.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.guest.vmharness import GuestError
from tests.vm.bed import Bed

NETDEV = "rdma0"
ADDRESS = "10.99.0.1"
COUNTERS = "/sys/class/infiniband/rxe0/ports/1/hw_counters"


@dataclass(frozen=True)
class Rxe:
    """An RDMA device in L1 and the address by which rdma_cm finds it."""

    bed: Bed
    device: str
    address: str

    def counters(self) -> dict[str, int]:
        """rxe's counters: sent_pkts, rcvd_pkts, rdma_sends, retry_exceeded_err, ..."""
        said = self.bed.must(f"cd {COUNTERS} && grep -H . *")
        return {name: int(count) for name, _, count in (x.partition(":") for x in said.split())}

    def wait_listening(self, timeout: float = 30) -> None:
        """Until somebody in L1 listens by rdma_cm."""
        deadline = time.monotonic() + timeout
        while "state LISTEN" not in self.bed.must("rdma resource show cm_id"):
            if time.monotonic() > deadline:
                raise GuestError(f"nobody listens by rdma_cm after {timeout:.0f} s")
            time.sleep(0.1)


def rxe(bed: Bed) -> Rxe:
    """Set it up, or find it set up."""
    if bed.run(["rdma", "link", "show", "rxe0/1"]).rc:
        # Nothing asks for rdma_ucm by itself. The MTU is for pages: 4096 and RDMA's headers.
        bed.modprobe("rdma_rxe", "ib_uverbs", "rdma_ucm", "dummy")
        bed.must(
            f"ip link add {NETDEV} mtu 4500 type dummy && "
            f"ip address add {ADDRESS}/24 dev {NETDEV} && ip link set {NETDEV} up && "
            f"rdma link add rxe0 type rxe netdev {NETDEV}"
        )
    if "state ACTIVE" not in (said := bed.must("rdma link show rxe0/1")):
        raise GuestError(f"rxe is not active: {said}")
    return Rxe(bed, "rxe0", ADDRESS)
