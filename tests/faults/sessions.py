# SPDX-License-Identifier: GPL-2.0-or-later
"""Sessions of tenants with a donor, as a host would have them: new, resumed, held by the dozen."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

from tests.donor.rawgc import Worker
from tests.donor.rawtls import SHM, Closed, Control, Refused, TlsError
from tests.framework.donor import Donor, new_key

MIB = 1 << 20
PATIENCE_S = 10.0
REFUSED = (OSError, Closed, Refused, TlsError, AssertionError)


def keys() -> dict[str, str]:
    """Of a tenant and one that means no good."""
    return {"test": new_key(), "mallory": new_key()}


def session(
    donor: Donor, address: str, tenant: str = "test", old: Control | None = None
) -> Control:
    """A new one, or an old one resumed."""
    key = bytes.fromhex(donor.keys[tenant])
    if old is None:
        return Control(address, tenant, key, timeout=PATIENCE_S)
    return Control(address, tenant, key, old.session, old.secret, timeout=PATIENCE_S)


def timed(function: Callable[[], Control]) -> tuple[float, Control | None, str]:
    """How long it took; no session if there was none in all the patience, and why."""
    begin = time.monotonic()
    try:
        made = function()
    except REFUSED as err:
        return PATIENCE_S, None, f"{type(err).__name__}: {err}"
    return time.monotonic() - begin, made, ""


class Sessions:
    """Of one tenant, all of which say that they are there until the block ends."""

    def __init__(self, donor: Donor, tenant: str) -> None:
        self.donor, self.tenant = donor, tenant
        self.made: list[Control] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._beat, daemon=True)

    def _beat(self) -> None:
        while not self.over.wait(1):
            for control in list(self.made):
                with contextlib.suppress(*REFUSED):
                    control.beat()

    def more(self) -> Control:
        self.made.append(session(self.donor, self.donor.unix_address, self.tenant))
        return self.made[-1]

    def connections(self, most: int) -> int:
        """How many sessions it gets."""
        with contextlib.suppress(*REFUSED):
            while len(self.made) < most:
                self.more()
        return len(self.made)

    def map(self, control: Control) -> None:
        """One slab more; its descriptor is nothing to us."""
        os.close(control.map(SHM).fd)
        control.tls.fds.clear()

    def slabs(self, most: int) -> int:
        """How many slabs."""
        count = 0
        with contextlib.suppress(*REFUSED):
            while count < most:
                self.map(self.made[-1] if count % 16 else self.more())
                count += 1
        return count

    def all_slabs(self) -> int:
        """Each session maps until it is refused, again and again until none gets any more."""
        count, before = 0, -1
        while count > before:
            before = count
            for control in self.made:
                with contextlib.suppress(*REFUSED):
                    while True:
                        self.map(control)
                        count += 1
        return count

    def workers(self, most: int) -> int:
        """How many GC workers; the last one that asked was refused."""
        count = 0
        with contextlib.suppress(*REFUSED):
            while count < most:
                self.held.append(Worker(self.more(), space_bytes=8 * MIB))
                count += 1
        return count

    def __enter__(self) -> Sessions:
        self.held: list[Worker] = []
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        for worker in self.held:
            worker.close()
        for control in self.made:
            control.close()
