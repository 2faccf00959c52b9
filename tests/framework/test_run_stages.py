# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/run-stages: the order of stages, its counts, and leftovers of stages."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from tests.framework.leftovers import MARK_VARIABLE, RUN_VARIABLE
from tests.framework.paths import TOP

LEFT = Path(f"/dev/shm/left-by-a-test-{os.getpid()}")


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    # run-stages sets the marks of its stages itself.
    env = {k: v for k, v in os.environ.items() if k not in (RUN_VARIABLE, MARK_VARIABLE)}
    return subprocess.Popen(
        [
            str(TOP / "scripts" / "run-stages"),
            *("--log-dir", str(folder / "log")),
            # This test runs in a stage itself, and other stages make files of their own meanwhile.
            *("--mark", LEFT.name),
            *words,
        ],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(folder: Path, *words: str) -> tuple[int, str]:
    child = start(folder, *words)
    text, _ = child.communicate(timeout=60)
    return child.returncode, text


def test_counts_are_added_up(tmp_path: Path) -> None:
    rc, text = run(
        tmp_path,
        "a=true",
        "b=echo '3 passed, 0 failed, 1 skipped'",
        "c=echo '2 passed, 1 failed, 0 skipped'",
    )
    assert rc == 1
    assert text.splitlines()[-1] == "6 passed, 1 failed, 1 skipped"
    assert "FAILED: c (its tests)" in text


def test_a_stage_that_waits_has_used_no_processor(tmp_path: Path) -> None:
    """The CPU time of a stage counts children of its shell; sleeping is not CPU time."""
    work = "python3 -c 'import time\nwhile time.process_time() < 1.2: pass'; true"
    rc, text = run(tmp_path, "waits=sleep 1.2", f"works={work}")
    assert rc == 0, text
    table = [line.split() for line in text.splitlines() if line.startswith(("waits ", "works "))]
    assert {name: int(cpu) for name, _, cpu, *_ in table} == {"waits": 0, "works": 1}, text


def test_the_first_stage_is_over_before_others_begin(tmp_path: Path) -> None:
    order = tmp_path / "order"
    stages = [f"a=sleep 0.5; echo a >>{order}", f"b=echo b >>{order}", f"c=echo c >>{order}"]
    rc, _ = run(tmp_path, "--jobs", "3", *stages)
    assert rc == 0
    said = order.read_text().split()
    assert said[0] == "a" and sorted(said) == ["a", "b", "c"]


def test_stages_run_at_the_same_time(tmp_path: Path) -> None:
    """Two stages wait for each other, so they end only if they run at the same time."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    stages = ["first=true", f"writes@20=echo >{fifo}", f"reads@20=read <{fifo}"]
    rc, text = run(tmp_path, "--jobs", "2", *stages)
    assert rc == 0, text
    rc, text = run(tmp_path, "--jobs", "1", *(stage.replace("@20", "@1") for stage in stages))
    assert rc == 1 and text.count("    took longer than 1 s") == 2, text


def test_one_that_is_to_be_alone_is(tmp_path: Path) -> None:
    """A stage that runs alone finds no file of another stage, as earlier ones have ended."""
    running = tmp_path / "running"
    running.mkdir()
    busy = f"cd {running} && touch $$ && sleep 0.4 && rm $$"
    alone = f'cd {running} && test -z "$(ls)" && touch it && sleep 0.4 && test "$(ls)" = it'
    stages = ["first=true", f"a={busy}", f"b={busy}", f"c!@20={alone} && rm it"]
    stages += [f"d={busy}", f"e={busy}"]
    rc, text = run(tmp_path, "--jobs", "3", *stages)
    assert rc == 0, text


def test_two_that_wait_take_one_place(tmp_path: Path) -> None:
    """Beside another stage, two waiting stages (~) may run, but no third of another kind."""
    fifo, back, busy = tmp_path / "fifo", tmp_path / "back", tmp_path / "busy"
    os.mkfifo(fifo)
    os.mkfifo(back)
    alone = f"mkdir {busy} && sleep 0.4 && rmdir {busy}"
    stages = ["first=true", f"other@20=read <{back}", f"a~@20=read <{fifo} && {alone}"]
    stages += [f"b@20={alone} && echo >{back}", f"c~@20=echo >{fifo}"]
    rc, text = run(tmp_path, "--jobs", "2", *stages)
    assert rc == 0, text
    assert text.index("c: echo") < text.index("b: mkdir"), text


def test_the_summary_says_what_was_skipped_and_why(tmp_path: Path) -> None:
    xml = (
        '<testsuite><testcase name="one"/><testcase name="two">'
        '<skipped message="no KVM"/></testcase></testsuite>'
    )
    stages = [f"a=echo '{xml}' >$DCM_RESULTS/a.xml", "b=echo 'SKIP: three: no etcd'", "c=true"]
    rc, text = run(tmp_path, *stages)
    assert rc == 0, text
    summary = text[text.index("\nstage ") :]
    assert "skipped: a: two: no KVM\n" in summary and "skipped: b: three: no etcd\n" in summary


def test_a_reason_to_skip_many_tests_is_told_once(tmp_path: Path) -> None:
    """A reason per test would hide others: 58 tests without a JVM once filled two screens."""
    said = "".join(f"SKIP: {name}: no JVM\n" for name in ("one", "two", "three", "four", "five"))
    rc, text = run(tmp_path, f"a=printf '{said}SKIP: six: no KVM\n'", "b=true")
    assert rc == 0, text
    assert "skipped: a: one, two, three and 2 more: no JVM\n" in text
    assert "skipped: a: six: no KVM\n" in text and text.count("\nskipped: ") == 2, text


def test_from_leaves_out_what_is_before(tmp_path: Path) -> None:
    stages = [f"{name}=touch {tmp_path}/{name}" for name in ("build", "b", "c", "d")]
    rc, text = run(tmp_path, "--from", "c", *stages)
    assert rc == 0, text
    assert [name for name in ("build", "b", "c", "d") if (tmp_path / name).exists()] == [
        "build",
        "c",
        "d",
    ]
    assert "not run, as --from c says: b\n" in text
    rc, text = run(tmp_path, "--from", "nix", *stages)
    assert rc == 2 and "the stages are: build b c d" in text


def test_a_process_left_behind_fails_its_stage_only(tmp_path: Path) -> None:
    rc, text = run(
        tmp_path, "--jobs", "2", "a=true", "leaves=setsid sleep 40 >/dev/null 2>&1 &", "clean=true"
    )
    assert rc == 1
    assert "FAILED: leaves (left behind: process" in text
    assert text.count("left behind: process") == 2  # the stage's report, and the summary
    assert text.splitlines()[-1] == "2 passed, 1 failed, 0 skipped"


def test_a_file_left_behind_fails_the_run(tmp_path: Path) -> None:
    """A leftover outside the stages' folders is blamed on the run, not on a stage."""
    others = Path(f"/dev/shm/dcm-of-others-{os.getpid()}")
    try:
        rc, text = run(
            tmp_path, "--jobs", "2", "a=true", f"leaves=touch {LEFT}", f"others=touch {others}"
        )
    finally:
        LEFT.unlink()
        others.unlink()
    assert rc == 1
    assert f"FAILED: left behind by a stage: file: {LEFT}" in text
    assert f"left behind by a stage: file: {others}" not in text
    assert text.splitlines()[-1] == "3 passed, 1 failed, 0 skipped"


def test_ended_it_ends_its_stages(tmp_path: Path) -> None:
    pids = [tmp_path / "one", tmp_path / "two"]
    stages = [f"s{n}=echo $$ >{path}; sleep 50" for n, path in enumerate(pids)]
    child = start(tmp_path, "--jobs", "2", "first=true", *stages)
    deadline = time.monotonic() + 20
    while not all(path.exists() and path.read_text() for path in pids):
        assert time.monotonic() < deadline and child.poll() is None
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=30)
    assert child.returncode == 143
    for path in pids:
        assert not Path(f"/proc/{path.read_text().strip()}").exists()
