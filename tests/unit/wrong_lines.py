#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""wrong_lines.py [--dry-run] [NUMBER...] - the core's tests must fail when a line is wrong

Each entry of WRONG replaces one line of the core, as a mistake would. The tests of TESTS are linked
with that file and run until one of them fails, core_model_test last. Prints a line for each
mistake, and exits with 1 if one was not noticed. Builds with gcc in a directory of its own; STEPS
is handed to core_model_test. With --dry-run only looks whether the core has each line.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

UNIT = Path(__file__).resolve().parent
TOP = UNIT.parent.parent
CORE = TOP / "kvm-dcm" / "core"
CC = [
    "gcc",
    "-std=gnu11",
    "-O1",
    "-g",
    "-w",
    "-D_GNU_SOURCE",
    "-pthread",
    f"-I{CORE}",
    f"-I{TOP / 'kvm-dcm'}",
    f"-I{UNIT}",
]
TIMEOUT = 600
TESTS = (
    "core_slot_test",
    "core_thin_test",
    "core_fill_test",
    "core_lag_test",
    "core_doubt_test",
    "core_sum_test",
    "core_seal_test",
    "core_spread_test",
    "core_ahead_test",
    "core_model_test",
)


class Wrong(NamedTuple):
    """A mistake: in this file, these words become those, at one place."""

    what: str
    file: str
    right: str
    wrong: str


WRONG = [
    Wrong(
        "a write-back leaves files out without a count",
        "writeback.c",
        "(unlikely(behind) && !dcm_lag_take(vm, head, nr))",
        "0",
    ),
    Wrong(
        "a clean page that lags is dropped without a count",
        "evict.c",
        "	if (!(dirty | more) && dcm_lag_drop(vm, head, lag)) {",
        "	if (!(dirty | more)) {",
    ),
    Wrong(
        "what a fill leaves does not lag any more",
        "lag.c",
        "		lag_add(vm, e, pages);",
        "		;",
    ),
    Wrong(
        "slots that are left out stay in the set",
        "writeback.c",
        "u32 mask = PD_AT | clear, bits = pd_at_bits(well), i;",
        "u32 mask = PD_AT | clear, bits = pd_at_bits(well | wb->behind), i;",
    ),
    Wrong(
        "wrong bytes of a donor are mapped",
        "fetch.c",
        "	wrong = fetch_wrong(lane, f);",
        "	wrong = 0;",
    ),
    Wrong(
        "a fill copies wrong bytes",
        "move.c",
        "err = move_wrong(lane, m);",
        "err = 0;",
    ),
    Wrong(
        "a page of which no donor has the right bytes is zero",
        "wrong.c",
        "pd_assign(pd, PD_AT, PD_LOST);",
        "pd_clear(pd, PD_AT);",
    ),
    Wrong(
        "what a second READ of the last slot brings is not judged",
        "fetch.c",
        "	if (unlikely(wrong)) {\n		dcm_wrong_strike",
        "	if (unlikely(wrong && !f->reread)) {\n		dcm_wrong_strike",
    ),
    Wrong(
        "a page keeps an old sum that is written while sums are off",
        "sum.c",
        "			   0;\n		WRITE_ONCE(sum[at + i], v);",
        "			   0;\n		if (v) WRITE_ONCE(sum[at + i], v);",
    ),
    Wrong(
        "an extent with one slab keeps its sums",
        "extent.c",
        "		WRITE_ONCE(e->thin, false);\n		dcm_sums_forget(vm, extent);",
        "		WRITE_ONCE(e->thin, false);",
    ),
    Wrong(
        "another slab starts with old sums",
        "extent.c",
        "		dcm_sums_forget(vm, extent);\n	WRITE_ONCE(e->used",
        "		;\n	WRITE_ONCE(e->used",
    ),
    Wrong(
        "a sealing takes the version of the one before",
        "seal.c",
        "\tversion++;\n",
        "\tversion += !version;\n",
    ),
    Wrong(
        "a clean page gets another seal, and stays clean on its slots",
        "seal.c",
        "\tdcm_pages_write_over(wb, wb->clean);\n",
        "\t;\n",
    ),
    Wrong(
        "a clean page is written over its copy, and stays clean",
        "writeback.c",
        "\t\tpd_set(pd_of(wb->lane->vm, wb->gfn + ffs_u32(pages) - 1),\n"
        "\t\t       PD_DIRTY | PD_GUESSED);\n",
        "\t\t;\n",
    ),
    Wrong(
        "a fill carries opened pages on",
        "move.c",
        "&m->io, page_run(m->nr), true);",
        "&m->io, page_run(m->nr), !lane->vm->sealed);",
    ),
    Wrong(
        "a page that can't be sealed is written plain",
        "writeback.c",
        "\t\tto = 0;\n",
        "\t\t;\n",
    ),
    Wrong(
        "sealed bytes that are plain zeroes are not sent",
        "writeback.c",
        "io->zero = zero && !sealed;",
        "io->zero = zero;",
    ),
    Wrong(
        "what does not open is mapped",
        "seal.c",
        "wrong |= (u16)(1u << i);",
        ";",
    ),
    Wrong(
        "a slot on which a WRITE failed is in the set",
        "writeback.c",
        "(wb->bad | READ_ONCE(extent_of(vm, wb->gfn)->gone))",
        "(READ_ONCE(extent_of(vm, wb->gfn)->gone))",
    ),
    Wrong(
        "slots with older bytes stay in the set",
        "writeback.c",
        "u32 mask = PD_AT | clear,",
        "u32 mask = clear,",
    ),
    Wrong(
        "a clean page is written again where it is",
        "writeback.c",
        "lack &= (u16) ~(wb->clean &",
        "lack &= (u16) ~(0 &",
    ),
    Wrong(
        "a zero page keeps its set",
        "writeback.c",
        "pd_clear(pd_of(vm, head + i), PD_AT);",
        ";",
    ),
    Wrong(
        "a WRITE that may still land is forgotten",
        "doubt.c",
        "pd_set(pd_of(lane->vm, gfn + i), PD_INFLIGHT);",
        ";",
    ),
    Wrong(
        "a doubt ends with the first of its slots",
        "doubt.c",
        "\tif (d->slots)\n",
        "\tif (0)\n",
    ),
    Wrong(
        "a doubt ends with the welcome of any donor",
        "doubt.c",
        "d->slots >> s & 1 && fenced >> d->peer[s] & 1",
        "d->slots >> s & 1 && fenced",
    ),
    Wrong(
        "a page in doubt is evicted",
        "evict.c",
        "if (pages && !(pages & dcm_block_inflight(vm, head, order))) {",
        "if (pages) {",
    ),
    Wrong(
        "a page in doubt is filled",
        "move.c",
        "\t\tif (pd_inflight(&pd[i]))\n",
        "\t\tif (0)\n",
    ),
    Wrong(
        "a clean page goes that a fill left to eviction",
        "evict.c",
        "READ_ONCE(e->fill) & DCM_FILL_DONE ? thin : 0;",
        "!READ_ONCE(e->thin) ? thin : 0;",
    ),
    Wrong(
        "a clean page goes though no slot took it",
        "writeback.c",
        "	return well & wb->written ? well : 0;",
        "	return well;",
    ),
    Wrong(
        "a clean page that a fill has passed by goes, and no other fill follows",
        "evict.c",
        "	WRITE_ONCE(extent_of(lane->vm, head)->thin, true);",
        "	;",
    ),
    Wrong(
        "a block is read from a slot that its first page is on",
        "pd.c",
        "at &= w;",
        "at = some ? at : w;",
    ),
    Wrong(
        "lost with one slot, though another has it",
        "extent.c",
        "last = pd_at(pd_word(pd)) == 1u << slot;",
        "last = true;",
    ),
    Wrong(
        "a direct page that lost its last slot is clean",
        "extent.c",
        "pd_assign(pd, PD_AT, PD_DIRTY);",
        "pd_assign(pd, PD_AT, 0);",
    ),
    Wrong(
        "a slot is used again while pages' sets have it",
        "extent.c",
        "\t\tif (page_on(vm, gfn, slot))\n\t\t\treturn false;",
        "\t\t;",
    ),
    Wrong(
        "a fetch gives up pages that other slots have",
        "fetch.c",
        "if (at && !(at & (u8)~gone)) {",
        "if (at) {",
    ),
    Wrong(
        "a READ goes to the next slab in a lost one's slot",
        "slot.c",
        "if (io->op == DCM_IO_READ &&",
        "if (0 &&",
    ),
    Wrong(
        "a slot that was not filled is in the set",
        "move.c",
        "u8 well = m->well &",
        "u8 well = m->targets &",
    ),
    Wrong(
        "a drain takes pages off that no other slot has",
        "move.c",
        "else if (others & (u8)~gone)",
        "else if (1)",
    ),
    Wrong(
        "a direct page taken off its only slot is clean",
        "move.c",
        "others ? 0 : PD_DIRTY",
        "0",
    ),
    Wrong(
        "copies of what a GC worker changed stay in the set while they are written",
        "move.c",
        "pd_clear(pd_of(lane->vm, gfn + i), pd_at_bits(m->off));",
        ";",
    ),
    Wrong(
        "what a GC worker changed keeps its old sum",
        "sum.c",
        "v = keep ? page_sum(lane, io->data, i) : 0;",
        "v = READ_ONCE(sum[at + i]);",
    ),
    Wrong(
        "pages of a spread that could not be read are passed over",
        "move.c",
        "if (m->changed && (!m->data || m->cut))",
        "if (0)",
    ),
    Wrong(
        "a revert takes pages off the primary that no other slot has",
        "spread.c",
        "if (keep || !(pd_at(at & ~primary) & open)) {",
        "if (keep) {",
    ),
    Wrong(
        "what was written to a copy only is synced",
        "writeback.c",
        "if (!(pd_at_bits(well) & dcm_primary_bits(vm, head)))",
        "if (!well)",
    ),
    Wrong(
        "a revert leaves pages on the primary",
        "spread.c",
        "pd_clear(pd_of(vm, gfn), primary);",
        ";",
    ),
    Wrong(
        "pages that only a copy has are not synced",
        "slot.c",
        "return slot < 0 ? PD_AT : pd_at_bits(1u << slot);",
        "return PD_AT;",
    ),
    Wrong(
        "a page leaves one slot short when a connection broke",
        "writeback.c",
        "if (unlikely(!well || wb_waits(lane, wb))) {",
        "if (unlikely(!well)) {",
    ),
    Wrong(
        "another lane drops a page that waits for a connection",
        "evict.c",
        "return lane->down ? owed & (u16)~doubt : owed | doubt;",
        "return lane->down ? owed & (u16)~doubt : owed;",
    ),
    Wrong(
        "a page waits for a connection without end",
        "evict.c",
        "return lane->down ? owed & (u16)~doubt : owed | doubt;",
        "return owed | doubt;",
    ),
    Wrong(
        "what a GC worker uses is fetched ahead",
        "ahead.c",
        "!(vm->ops->frozen && vm->ops->frozen(lane, head))",
        "1",
    ),
    Wrong(
        "hints push out as much as they want",
        "ahead.c",
        "return READ_ONCE(a->room) >= nr;",
        "return true;",
    ),
    Wrong(
        "a fetch ahead of accesses waits for a donor as if one needed it",
        "fetch.c",
        "	if (unlikely(f->ahead) && !full) {",
        "	if (0) {",
    ),
    Wrong(
        "a fetch ahead of accesses reads into the buffer of a move",
        "fetch.c",
        "ahead ? DCM_FETCHES_MAX - DCM_AHEAD_MAX : 0;",
        "0;",
    ),
]


def compile_one(source: Path, into: Path) -> Path:
    """Compile a file to an object."""
    out = into / (source.stem + ".o")
    subprocess.run([*CC, "-c", "-o", str(out), str(source)], check=True)
    return out


def wrong_text(wrong: Wrong) -> str:
    """The file with the mistake in it."""
    text = (CORE / wrong.file).read_text()
    if text.count(wrong.right) != 1:
        raise SystemExit(f"wrong_lines: {wrong.file} does not have {wrong.right!r} once")
    return text.replace(wrong.right, wrong.wrong)


def run_wrong(wrong: Wrong, objects: dict[str, Path], scratch: Path) -> str | None:
    """The test that failed and why, or None."""
    source = scratch / wrong.file
    source.write_text(wrong_text(wrong))
    linked = objects | {source.name: compile_one(source, scratch)}
    for test in TESTS:
        parts = [o for n, o in linked.items() if n[:-2] not in TESTS or n[:-2] == test]
        program = scratch / test
        subprocess.run(
            ["gcc", "-pthread", "-o", str(program), *map(str, parts), "-lcmocka", "-lm"], check=True
        )
        ran = subprocess.run([str(program)], capture_output=True, text=True, timeout=TIMEOUT)
        said = [
            line
            for line in (ran.stderr + ran.stdout).splitlines()
            if line.startswith(("VIOLATION", "[  FAILED  ] test_"))
        ]
        if ran.returncode and said:
            return f"{test}: {said[0]}"
    return None


def main() -> int:
    """Compile the core once, then try each mistake."""
    numbers = [int(a) for a in sys.argv[1:] if a != "--dry-run"]
    chosen = numbers or list(range(1, len(WRONG) + 1))
    for n in chosen:
        wrong_text(WRONG[n - 1])
    if "--dry-run" in sys.argv[1:]:
        return 0
    os.environ.setdefault("STEPS", "4000000")
    missed = 0
    with tempfile.TemporaryDirectory() as name:
        base, scratch = Path(name) / "base", Path(name) / "wrong"
        base.mkdir()
        scratch.mkdir()
        sources = [
            *CORE.glob("*.c"),
            *UNIT.glob("fake_*.c"),
            UNIT / "model_control.c",
            UNIT / "model_worker.c",
            *(UNIT / f"{t}.c" for t in TESTS),
        ]
        objects = {s.name: compile_one(s, base) for s in sources}
        for n in chosen:
            wrong = WRONG[n - 1]
            rule = run_wrong(wrong, objects, scratch)
            missed += rule is None
            print(f"{n:2} {wrong.what}: {rule or 'NOT NOTICED'}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} wrong lines noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
