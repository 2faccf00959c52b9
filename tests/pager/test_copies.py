# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory with copies: donors are killed while it is used, and every byte is right."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.framework.donor import Donor
from tests.framework.slabs import slabs_opened
from tests.pager.support import (
    LIMIT_S,
    PAGER_TEST,
    SECONDS,
    StartDonor,
    ask,
    built,
    configure,
    hostile,
    run,
    share_key,
    start,
    start_files,
    start_group,
)

pytestmark = built
LONGEST_S = 180
# A write waits for all donors that are to have the page: else a page that is written while a
# connection is made again is on one of them, and lost if that one dies just then.
NONE_THIN = {"thin_after": 10000}
STEADY_S = 2.0
TRANSPORTS = ["tcp", pytest.param("shm", marks=pytest.mark.slow)]


class Torture:
    """Threads over four times the budget, which check each byte that they read."""

    def __init__(self, folder: Path, config: Path, **environment: str) -> None:
        self.folder = folder
        seed = str(random.SystemRandom().randrange(1 << 30))
        print(f"seed {seed}")
        # it is ended by a signal: nothing depends on how long it takes
        command = [str(PAGER_TEST), "torture", str(config), "64", str(LONGEST_S), "4", seed]
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "DCM_RUNTIME_DIR": str(folder / "run"), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def status(self) -> dict[str, Any]:
        assert self.process.poll() is None, "\n".join(self.process.communicate())
        return ask(self.folder, {"cmd": "status"})

    def until(self, good: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """The status when it has been good for a while: a lane may be about to connect."""
        begin = since = time.monotonic()
        while True:
            now = time.monotonic()
            assert now < begin + 90, f"not {what}"
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                status = self.status()
                if not good(status):
                    since = now
                    assert now < begin + 80, f"not {what}: {status}"
                elif now > since + STEADY_S:
                    return status
            time.sleep(0.1)

    def finish(self) -> str:
        """It is told to end; its log."""
        self.process.terminate()
        out, err = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == 0, f"{out}\n{err}"
        assert "every byte right" in out, out
        return err


@contextlib.contextmanager
def torture(folder: Path, config: Path, **environment: str) -> Iterator[Torture]:
    made = Torture(folder, config, **environment)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
            made.process.communicate()


def whole(status: dict[str, Any]) -> bool:
    """Every extent has its copies, and none lacks a page."""
    mapped = status["extents"]["mapped"]
    slabs = sum(d["slabs"] for d in status["donors"])
    return (
        mapped >= 4
        and slabs == status["copies"] * mapped
        and not status["exposed_bytes"]
        and not status["filling"]
    )


def nothing_lost(status: dict[str, Any]) -> None:
    assert not status["lost_pages"] and not status["extents"]["lost"], status


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_donors_die_one_by_one(
    start_donor: StartDonor, short_tmp: Path, transport: str
) -> None:
    """With two copies and a third donor a second death loses nothing either."""
    donors = start_group(start_donor, "abc")
    config = configure(short_tmp, donors, transport, NONE_THIN, redundancy="replica:2")
    with torture(short_tmp, config) as threads:
        before = threads.until(whole, "each extent has two slabs")
        assert before["copies"] == 2 and all(d["slabs"] for d in before["donors"])
        # nothing is lost with one donor, and each extent with the two that have it
        before = threads.until(lambda s: not any(d["alone_bytes"] for d in s["donors"]), "known")
        pairs = {t["donors"]: t["bytes"] for t in before["together"]}
        assert set(pairs) <= {"a+b", "a+c", "b+c"}
        assert sum(pairs.values()) == before["extents"]["mapped"] << 24
        donors[0].kill()
        after = threads.until(
            lambda s: s["donors"][0]["state"] == "lost" and whole(s), "rebuilt"
        )
        assert after["counters"]["FILLED_PAGES"] > 0 and not after["donors"][0]["slabs"]
        nothing_lost(after)
        donors[1].kill()
        # one donor is left: nothing is lost, and the status says what a third death would take
        after = threads.until(
            lambda s: s["donors"][1]["state"] == "lost"
            and s["exposed_bytes"] == s["extents"]["mapped"] * (16 << 20),
            "exposed",
        )
        nothing_lost(after)
        after = threads.until(lambda s: s["donors"][2]["alone_bytes"] > 0, "named")
        assert after["donors"][2]["alone_bytes"] == after["extents"]["mapped"] << 24
        assert not after["together"]
        log = threads.finish()
    assert "had no other copy" not in log
    assert "no other donor can lend a slab" in log


def test_a_donor_that_is_stopped_holds_nobody_up(start_donor: StartDonor, short_tmp: Path) -> None:
    """While a donor does not answer its pages are read from the other; it has missed some then."""
    donors = start_group(start_donor, "ab")
    config = configure(short_tmp, donors, "tcp", redundancy="replica:2")
    with torture(short_tmp, config) as threads:
        threads.until(whole, "each extent has two slabs")
        os.kill(donors[0].pid, signal.SIGSTOP)
        try:
            # a READ fails over only if one is under way to it: a lane may find out by a WRITE
            status = threads.until(
                lambda s: s["counters"]["THIN_PAGES"] > 0, "writes go to the other donor alone"
            )
            before = status["counters"]["FETCHES"]
            threads.until(lambda s: s["counters"]["FETCHES"] > before + 2000, "it is read")
            status = threads.status()
            assert status["donors"][0]["state"] != "lost" and status["exposed_bytes"], status
        finally:
            os.kill(donors[0].pid, signal.SIGCONT)
        nothing_lost(threads.until(whole, "whole again"))
        log = threads.finish()
    assert "had no other copy" not in log


def test_two_copies_of_three_donors_drained(start_donor: StartDonor, short_tmp: Path) -> None:
    """A donor drains: its slabs go to the third one, and each extent still has two."""
    donors = start_group(start_donor, "abc")
    config = configure(short_tmp, donors, "tcp", redundancy="replica:2")
    with torture(short_tmp, config) as threads:
        threads.until(whole, "each extent has two slabs")
        assert donors[2].stop() == 0
        after = threads.until(
            lambda s: not s["donors"][2]["slabs"] and whole(s), "moved"
        )
        nothing_lost(after)
        log = threads.finish()
    assert "had no other copy" not in log


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_redundancy_is_changed_while_memory_is_used(
    start_donor: StartDonor, short_tmp: Path, transport: str
) -> None:
    """From none to two, a donor dies, to three and back to none; nothing is lost."""
    donors = start_group(start_donor, "abcd")
    config = configure(short_tmp, donors, transport)
    with torture(short_tmp, config) as threads:

        def change(value: str) -> None:
            answer = ask(short_tmp, {"cmd": "redundancy", "value": value})
            assert answer["ok"], answer

        threads.until(whole, "each extent has a slab")
        change("replica:2")
        status = threads.until(lambda s: s["copies"] == 2 and whole(s), "two slabs each")
        assert status["counters"]["FILLED_PAGES"] > 0
        donors[0].kill()
        threads.until(lambda s: s["donors"][0]["state"] == "lost" and whole(s), "rebuilt")
        change("replica:3")
        threads.until(lambda s: s["copies"] == 3 and whole(s), "three slabs each")
        change("none")
        status = threads.until(lambda s: s["copies"] == 1 and whole(s), "one slab each")
        nothing_lost(status)
        for value in ("replica:4", "", "two", 2, None):
            assert not ask(short_tmp, {"cmd": "redundancy", "value": value})["ok"]
        log = threads.finish()
    assert "had no other copy" not in log


@pytest.mark.parametrize(
    "redundancy", ["disk", pytest.param("replica:2+disk", marks=pytest.mark.slow)]
)
def test_all_donors_of_memory_die(
    start_donor: StartDonor, short_tmp: Path, redundancy: str
) -> None:
    """At once: each page is on a donor of files too, and the program goes on with these."""
    memory = start_group(start_donor, "abc")
    files = start_files(start_donor, short_tmp, memory[0])
    config = configure(short_tmp, [*memory, files], "tcp", NONE_THIN, redundancy=redundancy)
    with torture(short_tmp, config) as threads:
        before = threads.until(whole, "each extent has its slabs")
        assert before["redundancy"] == redundancy
        assert [d["medium"] for d in before["donors"]] == ["memory"] * 3 + ["file"]
        assert before["donors"][3]["slabs"] == before["extents"]["mapped"]
        for donor in memory:
            donor.kill()
        after = threads.until(
            lambda s: all(d["state"] == "lost" for d in s["donors"][:3])
            and s["exposed_bytes"] == s["extents"]["mapped"] * (16 << 20),
            "exposed",
        )
        nothing_lost(after)
        fetches = after["counters"]["FETCHES"]
        threads.until(lambda s: s["counters"]["FETCHES"] > fetches + 500, "it goes on")
        log = threads.finish()
    assert "had no other copy" not in log
    assert "no other donor can lend a slab" in log


LAG = 1 << 20


@pytest.mark.slow
def test_lazy_files_lose_what_lags(start_donor: StartDonor, short_tmp: Path) -> None:
    """All donors of memory die while the files are far behind: that is lost, and nothing else."""
    memory = start_group(start_donor, "ab")
    files = start_files(start_donor, short_tmp, memory[0])
    config = configure(
        short_tmp,
        [*memory, files],
        "tcp",
        NONE_THIN,
        redundancy="disk:lazy",
        disk_lag=str(LAG),
        on_loss="pause",
    )
    with torture(short_tmp, config) as threads:
        before = threads.until(whole, "each extent has its slabs")
        assert before["redundancy"] == "disk:lazy"
        assert before["tunables"]["lag_pages"] == LAG // 4096
        # the disk does nothing for a while
        os.kill(files.pid, signal.SIGSTOP)
        begin = time.monotonic()
        while (seen := threads.status())["lag_bytes"] < LAG * 3 // 4:
            assert time.monotonic() < begin + LIMIT_S, seen
            time.sleep(0.05)
        for donor in memory:
            donor.kill()
        os.kill(files.pid, signal.SIGCONT)
        after = threads.until(
            lambda s: all(d["state"] == "lost" for d in s["donors"][:2]) and not s["filling"],
            "lost",
        )
        assert 0 < after["lost_pages"] * 4096 <= LAG, after
        threads.process.kill()
        log = threads.process.communicate()[1]
    assert "had no other copy" in log


def test_lazy_files_catch_up(start_donor: StartDonor, short_tmp: Path) -> None:
    """From disk:lazy to disk: then all donors of memory may die."""
    memory = start_group(start_donor, "ab")
    files = start_files(start_donor, short_tmp, memory[0])
    config = configure(
        short_tmp, [*memory, files], "tcp", NONE_THIN, redundancy="disk:lazy", disk_lag=str(LAG)
    )
    with torture(short_tmp, config) as threads:
        threads.until(whole, "each extent has its slabs")
        before = threads.status()["counters"]["FILLED_PAGES"]
        threads.until(lambda s: s["counters"]["FILLED_PAGES"] > before + 1000, "files are filled")
        assert ask(short_tmp, {"cmd": "redundancy", "value": "disk"})["ok"]
        threads.until(lambda s: whole(s) and not s["tunables"]["lag_pages"], "it is disk")
        begin = time.monotonic()
        while (seen := threads.status())["lag_bytes"]:
            assert time.monotonic() < begin + LIMIT_S, seen
            time.sleep(0.2)
        for donor in memory:
            donor.kill()
        after = threads.until(
            lambda s: all(d["state"] == "lost" for d in s["donors"][:2]), "lost"
        )
        nothing_lost(after)
        log = threads.finish()
    assert "had no other copy" not in log


def test_busy_memory_comes_back_from_files(start_donor: StartDonor, short_tmp: Path) -> None:
    """The one donor of memory has room for a slab; then there is another, and files are empty."""
    memory = start(start_donor, "a", capacity="16M")
    files = start_files(start_donor, short_tmp, memory)
    config = configure(short_tmp, [memory, files], "tcp")
    with torture(short_tmp, config) as threads:
        threads.until(lambda s: whole(s) and s["donors"][1]["slabs"] >= 3, "three on files")
        more = start(start_donor, "m")
        share_key(memory, more)
        request = {"cmd": "donor", "op": "add", "name": "m", "address": more.tcp_address}
        answer = ask(short_tmp, request)
        assert answer["ok"], answer
        after = threads.until(lambda s: whole(s) and not s["donors"][1]["slabs"], "files are empty")
        counters = after["counters"]
        # copied there, or already there when the file was emptied
        assert counters["MOVED_PAGES"] + counters["FILLED_PAGES"] > 0
        assert after["donors"][2]["slabs"] >= 3
        nothing_lost(after)
        log = threads.finish()
    assert "had no other copy" not in log


def test_redundancy_that_is_not_there(start_donor: StartDonor, short_tmp: Path) -> None:
    """One clear line, and nothing is started."""
    donors: list[Donor] = start_group(start_donor, "a")
    for value in ("disk:fast", "replica:4", "2", ""):
        config = configure(short_tmp, donors, redundancy=value)
        done = run(short_tmp, PAGER_TEST, "open", config, status=3)
        assert "redundancy" in done.stdout + done.stderr, done


def spoil(donor: Donor, rng: random.Random) -> int:
    """Change a word in pages of a donor's memory, as a broken module would; how many pages."""
    pages = 0
    for slab in slabs_opened(donor.pid):
        for at in range(0, os.fstat(slab.fileno()).st_size, 4096):
            where = at + rng.randrange(512) * 8
            # a hole stays one
            if os.pread(slab.fileno(), 8, at) != bytes(8):
                os.pwrite(slab.fileno(), rng.randbytes(8), where)
                pages += 1
    return pages


def more_wrong(than: int, status: dict[str, Any]) -> bool:
    return bool(status["counters"]["WRONG_PAGES"] > than)


def b_alone_was_wrong(threads: Torture) -> None:
    """Nothing is lost, and status and log name this donor and no other."""
    status = threads.status()
    nothing_lost(status)
    wrong = {d["name"]: d["wrong_pages"] for d in status["donors"]}
    assert wrong["b"] > 300 and not wrong["a"]
    log = threads.finish()
    assert "donor b gave wrong bytes" in log and "donor a gave wrong bytes" not in log


def ends_without_wrong_bytes(threads: Torture) -> None:
    """The program ends of SIGBUS, or of EFAULT of a system call, and has read nothing wrong."""
    out, err = threads.process.communicate(timeout=LIMIT_S)
    failures = re.findall(r"^FAILED: .*$", err, re.M)
    if threads.process.returncode == -signal.SIGBUS:
        assert not failures, err
    else:
        assert failures and all(f.endswith(": Bad address") for f in failures), f"{out}\n{err}"
    assert "gave wrong bytes" in err


def test_a_donor_gives_wrong_bytes(start_donor: StartDonor, short_tmp: Path) -> None:
    """The memory of one of two donors is changed again and again: all that threads read is right,
    and the log names that donor."""
    donors = start_group(start_donor, "ab")
    config = configure(short_tmp, donors, "tcp", NONE_THIN, redundancy="replica:2")
    rng = random.Random(7)
    with torture(short_tmp, config) as threads:
        threads.until(whole, "each extent has two slabs")
        for _ in range(3):
            assert spoil(donors[1], rng) > 1000
            seen = 100 + threads.status()["counters"]["WRONG_PAGES"]
            threads.until(partial(more_wrong, seen), "noticed")
        b_alone_was_wrong(threads)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_two_copies_behind_hostile_ways(
    start_donor: StartDonor, short_tmp: Path, transport: str
) -> None:
    """Operations on both donors fail, come late and in pieces, connections die, and WRITEs that
    failed with them are done afterwards: no byte is wrong, and none lost."""
    donors = start_group(start_donor, "ab")
    config = configure(short_tmp, donors, transport, redundancy="replica:2")
    done = run(short_tmp, PAGER_TEST, "torture", config, "64", SECONDS, "4", "9", **hostile())
    assert "every byte right" in done.stdout
    assert "had no other copy" not in done.stderr
    print(done.stderr)


def test_a_donor_lies(start_donor: StartDonor, short_tmp: Path) -> None:
    """A donor gives pages with a wrong bit, others' pages, and pages of before: all that threads
    read is right, none is lost, and the log names that donor.

    The other copy is on files: a connection to these is not given up after a tenth of a second, on
    a machine that is busy, and no page is on the donor that lies alone.
    """
    memory = start(start_donor)
    files = start_files(start_donor, short_tmp, memory)
    config = configure(short_tmp, [memory, files], "tcp", NONE_THIN, redundancy="disk")
    with torture(short_tmp, config, **hostile("LIAR")) as threads:
        threads.until(whole, "each extent has two slabs")
        assert not threads.status()["counters"]["WRONG_PAGES"]
        threads.process.send_signal(signal.SIGUSR1)
        threads.until(partial(more_wrong, 300), "noticed")
        status = threads.status()
        nothing_lost(status)
        wrong = {d["name"]: d["wrong_pages"] for d in status["donors"]}
        assert wrong["a"] >= 300 and not wrong["f"]
        log = threads.finish()
    counts = {k: int(n) for k, n in re.findall(r"(\w+) (\d+)", log.partition("hostile:")[2])}
    assert all(counts[kind] for kind in ("FLIP", "SWAP", "OLD")), counts
    assert "donor a gave wrong bytes" in log and "donor f gave wrong bytes" not in log
    assert "had no other copy" not in log


def test_all_donors_give_wrong_bytes(start_donor: StartDonor, short_tmp: Path) -> None:
    """A page that no donor has right is lost: the program gets SIGBUS, or EFAULT of a system call,
    never wrong bytes."""
    donors = start_group(start_donor, "ab")
    config = configure(short_tmp, donors, "tcp", redundancy="replica:2")
    with torture(short_tmp, config) as threads:
        threads.until(whole, "each extent has two slabs")
        for donor in donors:
            assert spoil(donor, random.Random(8)) > 1000
        ends_without_wrong_bytes(threads)
