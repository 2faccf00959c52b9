# SPDX-License-Identifier: GPL-2.0-or-later
"""Sealed memory: donors have only encrypted pages, and what they change is noticed."""

from __future__ import annotations

import os
import random
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.framework.donor import Donor
from tests.framework.slabs import slabs_opened
from tests.pager.support import PAGER_TEST, StartDonor, built, configure, run
from tests.pager.support import start, start_group
from tests.pager.test_copies import (
    NONE_THIN,
    TRANSPORTS,
    b_alone_was_wrong,
    ends_without_wrong_bytes,
    more_wrong,
    spoil,
    torture,
    whole,
)
from tests.pager.test_heaps import HEAP_CHECK

pytestmark = built
# The program's pages are zero but for a few words: that can be seen in each plain one.
PLAIN = bytes(64)


def written(status: dict[str, Any]) -> bool:
    return bool(status["written_bytes"] > 16 << 20 and status["indirect_bytes"] > 8 << 20)


def pages_on(donor: Donor) -> tuple[int, int]:
    """Pages that a donor has, and how many of them are plain."""
    all_, plain = 0, 0
    for slab in slabs_opened(donor.pid):
        for at in range(0, os.fstat(slab.fileno()).st_size, 4096):
            page = os.pread(slab.fileno(), 4096, at)
            if any(page):
                all_ += 1
                plain += PLAIN in page
    return all_, plain


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("seal", ["no", "yes"])
def test_a_donor_sees_no_plain_page(
    start_donor: StartDonor, short_tmp: Path, transport: str, seal: str
) -> None:
    """With seal every byte is right, and none of the program's is in the donor's memory."""
    donor = start(start_donor)
    config = configure(short_tmp, [donor], transport, seal=seal)
    with torture(short_tmp, config) as threads:
        status = threads.until(written, "much was written")
        there, plain = pages_on(donor)
        assert there > 1000
        # a page may be on its way in just now
        assert plain == 0 if seal == "yes" else plain > there * 0.9
        assert status["seal"] is (seal == "yes")
        per_page = status["metadata_bytes"] / (status["size_bytes"] / 4096)
        assert 16 < per_page < 37
        threads.finish()


def swap_and_replay(donor: Donor, before: dict[int, bytes], rng: random.Random) -> int:
    """Give pages of a donor's memory another page's bytes, or their own of before."""
    pages = 0
    for slab in slabs_opened(donor.pid):
        size, inode = os.fstat(slab.fileno()).st_size, os.fstat(slab.fileno()).st_ino
        old = before.get(inode)
        for at in range(0, size, 4096):
            now = os.pread(slab.fileno(), 4096, at)
            other = rng.randrange(size // 4096) * 4096
            swapped = os.pread(slab.fileno(), 4096, other)
            page = swapped if old is None or rng.random() < 0.5 else old[at : at + 4096]
            if any(now) and any(page) and page != now:
                os.pwrite(slab.fileno(), page, at)
                pages += 1
    return pages


def test_a_donor_flips_swaps_and_replays(start_donor: StartDonor, short_tmp: Path) -> None:
    """One of two donors does so again and again: all that threads read is right, and the log
    names that donor."""
    donors = start_group(start_donor, "ab")
    config = configure(
        short_tmp, donors, "tcp", NONE_THIN, redundancy="replica:2", seal="yes"
    )
    rng = random.Random(7)
    with torture(short_tmp, config) as threads:
        threads.until(whole, "each extent has two slabs")
        before = {
            os.fstat(s.fileno()).st_ino: os.pread(s.fileno(), os.fstat(s.fileno()).st_size, 0)
            for s in slabs_opened(donors[1].pid)
        }
        for turn in range(3):
            changed = (
                swap_and_replay(donors[1], before, rng) if turn else spoil(donors[1], rng)
            )
            assert changed > 300
            seen = 100 + threads.status()["counters"]["WRONG_PAGES"]
            threads.until(partial(more_wrong, seen), "noticed")
        b_alone_was_wrong(threads)


def test_the_only_donor_gives_wrong_bytes(start_donor: StartDonor, short_tmp: Path) -> None:
    """A sealed page needs no copy to be found wrong: it is lost, and the program gets SIGBUS, or
    EFAULT of a system call, never wrong bytes."""
    donor = start(start_donor)
    config = configure(short_tmp, [donor], "tcp", seal="yes")
    with torture(short_tmp, config) as threads:
        threads.until(written, "much was written")
        assert spoil(donor, random.Random(8)) > 1000
        ends_without_wrong_bytes(threads)


def test_sealed_pages_need_no_encrypted_connection(
    start_donor: StartDonor, short_tmp: Path
) -> None:
    """The host asks for plain data connections then, though its configuration says that data is
    to be encrypted; one that gets them encrypted all the same says so."""
    donor = start(start_donor)
    for seal in ("yes", "no"):
        config = configure(short_tmp, [donor], "tcp", seal=seal, data_encryption="yes")
        with torture(short_tmp, config) as threads:
            threads.until(written, "much was written")
            assert ("insists on encrypted data" in threads.finish()) is (seal == "yes")


def test_seal_is_yes_or_no(start_donor: StartDonor, short_tmp: Path) -> None:
    config = configure(short_tmp, [start(start_donor)], seal="aes")
    done = run(short_tmp, PAGER_TEST, "open", config, status=3)
    assert "seal: must be yes or no" in done.stdout + done.stderr, done


def test_donors_collect_no_garbage_of_sealed_pages(
    start_donor: StartDonor, short_tmp: Path
) -> None:
    """A runtime's heap is refused in one line that says what to do."""
    donors = start_group(start_donor, "ab", slab="2M", capacity="64M")
    config = configure(short_tmp, donors, "tcp", budget="9M", seal="yes")
    done = run(short_tmp, HEAP_CHECK, "check", f"dcm:{config}", "1", "1", status=-signal.SIGABRT)
    assert "pages are sealed: set seal = no" in done.stdout + done.stderr, done
