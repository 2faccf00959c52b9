# SPDX-License-Identifier: GPL-2.0-or-later
"""The row all-direct: ten real programs with a budget over their peak, against plain ones.

No page has to leave, so the row shows the cost of the pager itself. The plain run has transparent
huge pages: its allocator asks for them, because the kernel here gives them only on request. It uses
the faster of the program's own allocator and tcmalloc. Plain and paged runs alternate; their output
is compared.
"""

from __future__ import annotations

from dcmbench import inputs, programs
from dcmbench.context import MIB, Context
from dcmbench.host import BenchError
from dcmbench.report import Row, geomean, median, row

BUDGET = 150  # percent of the peak
MEAN, WORST = 1.03, 1.08
# MALLOC_CONF is jemalloc's, which Redis brings.
HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "MALLOC_CONF": "thp:always"}


def _one(ctx: Context, app: programs.App, size: inputs.Size) -> tuple[float, str]:
    """The time on the pager over the plain time (median of pairs), and a line of text about it."""
    folder = inputs.make(ctx.cache, size)
    limit_s = programs.PLAIN_MAX_S

    def plain(preload: str) -> programs.Outcome:
        env = {**programs.environment(ctx, preload), **HUGE}
        return programs.alone(ctx, app, folder, size, env)

    first = {preload: plain(preload) for preload in programs.allocators(app)}
    best = min(first, key=lambda preload: first[preload].seconds)
    budget = first[best].rss * BUDGET // 100 & ~0xFFFF
    pairs = []
    for _ in range(ctx.repeat):
        alone, ours = plain(best), programs.ours(ctx, app, folder, size, "shm", budget, limit_s)
        if {alone.result, ours.result} != {first[best].result}:
            raise BenchError("WRONG RESULT")
        pairs.append((ours.seconds, alone.seconds))
    ratio = median([a / b for a, b in pairs])
    text = (
        f"{ratio:.2f} ({median([a for a, _ in pairs]):.2f} over "
        f"{median([b for _, b in pairs]):.2f} s, {first[best].rss // MIB} MiB)"
    )
    return ratio, text


def direct(ctx: Context) -> Row:
    """Measure all programs. If one fails, the row says why and is not ok."""
    size = inputs.SMALL if ctx.tiny else inputs.FULL
    inputs.warm(inputs.make(ctx.cache, size))
    ratios: dict[str, float] = {}
    said: list[str] = []
    for app in programs.catalogue(ctx, size):
        try:
            ratios[app.name], text = _one(ctx, app, size)
        except (BenchError, OSError) as e:
            text = f"not measured: {e} (package {app.package})"
        said.append(f"{app.name} {text}")
        ctx.progress.say(f"all-direct: {said[-1]}")
    if not ratios:
        raise BenchError("; ".join(said))
    value, worst = geomean(list(ratios.values())), max(ratios.values())
    ok = value <= MEAN and worst <= WORST and len(ratios) == len(said)
    detail = (
        f"geometric mean of {len(ratios)} of {len(said)} programs, the worst {worst:.2f}; times "
        f"by the clock from start to end, of pairs that alternate, median of {ctx.repeat}: "
        + "; ".join(said)
        + f". A budget of {BUDGET} % of the peak, a donor on this host by shared memory; plain "
        "ones with transparent huge pages, by glibc.malloc.hugetlb or jemalloc's thp:always."
    )
    return row("all-direct", value, ok, detail, {"ratios": ratios})
