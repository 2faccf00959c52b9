# SPDX-License-Identifier: GPL-2.0-or-later
"""Inputs of the real programs: generated once, the same everywhere, kept in the cache."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

APPS = Path(__file__).resolve().parent.parent / "apps"


@dataclasses.dataclass(frozen=True)
class Size:
    """The sizes of all inputs."""

    lines: int
    bases: int
    reads: int
    items: int
    sales: int
    nodes: int
    edges: int
    rounds: int
    keys: int
    requests: int
    part: int  # number of lines, for programs that take long for each
    rows: int
    functions: int
    passes: int = 1  # over the same data


# For traces, and for programs that only have to start: they take seconds alone.
FULL = Size(
    lines=3_300_000,
    bases=24_000_000,
    reads=8_000,
    items=700_000,
    sales=900_000,
    nodes=1_000_000,
    edges=6_000_000,
    rounds=40,
    keys=220_000,
    requests=500_000,
    part=400_000,
    rows=500_000,
    functions=150,
)
# For programs that are timed: they take 20 s or more alone, with as much memory as FULL.
LONG = dataclasses.replace(
    FULL,
    reads=48_000,
    rounds=2_000,
    requests=3_500_000,
    part=700_000,
    functions=270,
    passes=5,
)
# To check that everything runs (--tiny).
SMALL = Size(
    lines=400_000,
    bases=1_500_000,
    reads=300,
    items=60_000,
    sales=60_000,
    nodes=60_000,
    edges=400_000,
    rounds=4,
    keys=20_000,
    requests=60_000,
    part=20_000,
    rows=20_000,
    functions=60,
)


def _lines(path: Path, size: Size) -> None:
    r = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(r.choices(letters, k=r.randint(3, 10))) for _ in range(20000)]
    with path.open("w", encoding="ascii") as out:
        for _ in range(size.lines):
            out.write(
                f"{r.getrandbits(40):012x} {words[int(r.random() ** 2 * 20000)]} "
                f"{words[int(r.random() ** 3 * 20000)]} {r.getrandbits(24)}\n"
            )


def _bases(r: random.Random, n: int) -> bytes:
    return r.randbytes(n).translate(bytes(b"ACGT"[i & 3] for i in range(256)))


def _genome(path: Path, size: Size) -> None:
    genome = _bases(random.Random(2), size.bases)
    with path.open("wb") as out:
        for c in range(4):
            out.write(b">chr%d\n" % c)
            out.write(genome[c * len(genome) // 4 : (c + 1) * len(genome) // 4] + b"\n")


def _reads(path: Path, size: Size) -> None:
    genome = _bases(random.Random(2), size.bases)
    r = random.Random(3)
    swap = bytes.maketrans(b"ACGT", b"TGCA")
    with path.open("wb") as out:
        for i in range(size.reads):
            length = r.randint(1000, 4000)
            at = r.randrange(len(genome) - length)
            read = bytearray(genome[at : at + length])
            for _ in range(length // 15):
                read[r.randrange(length)] = b"ACGT"[r.randrange(4)]
            text = bytes(read)
            if r.random() < 0.5:
                text = text.translate(swap)[::-1]
            out.write(b">r%d\n%s\n" % (i, text))


def _shop(path: Path, size: Size) -> None:
    text = (APPS / "shop.sql").read_text(encoding="utf-8")
    text = text.replace(":items", str(size.items)).replace(":sales", str(size.sales))
    once, again = text.split("-- again\n")
    text = once + again * size.passes
    path.write_text(text, encoding="utf-8")


def _part(path: Path, size: Size) -> None:
    with (path.parent / "lines").open("rb") as lines, path.open("wb") as out:
        for _ in range(size.part):
            out.write(lines.readline())


def _rows(r: random.Random, size: Size) -> Iterator[tuple[int, int, int]]:
    return ((i, r.randrange(5000), r.getrandbits(24)) for i in range(size.rows))


def _json(path: Path, size: Size) -> None:
    with path.open("w", encoding="ascii") as out:
        for a, b, c in _rows(random.Random(4), size):
            out.write(f'{{"a":{a},"b":"name{b}","c":{c},"d":[{c % 7},{c % 11}]}}\n')


def _xml(path: Path, size: Size) -> None:
    with path.open("w", encoding="ascii") as out:
        out.write("<rows>")
        for a, b, c in _rows(random.Random(5), size):
            out.write(f'<row id="{a}"><name kind="{c % 7}">name{b}</name><value>{c}</value></row>')
        out.write("</rows>\n")


def _source(path: Path, size: Size) -> None:
    """Write a C++ source: each of its functions makes maps of types of its own."""
    with path.open("w", encoding="ascii") as out:
        out.write("#include <algorithm>\n#include <map>\n#include <string>\n#include <vector>\n")
        for i in range(size.functions):
            out.write(
                f"struct T{i} {{ int a[{i % 13 + 1}]; bool operator<(const T{i} &o) const "
                f"{{ return a[0] < o.a[0]; }} }};\n"
                f"int f{i}(std::vector<T{i}> v, int n) {{ std::sort(v.begin(), v.end()); "
                f"int s = 0; for (auto &x : v) s += x.a[0] * {i} + n; return s; }}\n"
            )


_MAKERS: dict[str, Callable[[Path, Size], None]] = {
    "lines": _lines,
    "genome.fa": _genome,
    "reads.fa": _reads,
    "shop.sql": _shop,
    "part": _part,
    "rows.json": _json,
    "rows.xml": _xml,
    "large.cc": _source,
}


def make(cache: Path, size: Size) -> Path:
    """Make all inputs unless the cache has them; return their folder."""
    digest = hashlib.sha256(repr(size).encode())
    for source in (Path(__file__), APPS / "shop.sql"):
        digest.update(source.read_bytes())
    folder = cache / f"bench-inputs-{digest.hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    temporary = folder.with_suffix(".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for name, maker in _MAKERS.items():
        maker(temporary / name, size)
    temporary.rename(folder)
    return folder


def warm(folder: Path) -> None:
    """Read all inputs into the page cache, so that they are charged to no cgroup with a limit."""
    for path in folder.iterdir():
        with path.open("rb") as f:
            while f.read(1 << 20):
                pass
