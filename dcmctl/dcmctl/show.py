# SPDX-License-Identifier: GPL-2.0-or-later
"""The status of a VM as text: `dcmctl status`, and parts of `dcmctl top`."""

from __future__ import annotations

from collections.abc import Mapping

from dcmctl.lib.table import bar, table
from dcmctl.lib.units import format_count, format_duration, format_ns, format_percent, format_size
from dcmctl.pager.status import BLOCK_SIZES, FAULT_KINDS, Latency, Status, worst_deaths

# One character for each block size, so that the bar needs no colours.
MIX_LETTERS = dict(zip(BLOCK_SIZES, "48136", strict=True))
MIX_LEGEND = "blocks: 4=4K 8=8K 1=16K 3=32K 6=64K, share of pages brought in"


def _latency(latency: Latency) -> str:
    if not latency.count:
        return "none yet"
    parts = (
        f"p50 {format_ns(latency.p50)}",
        f"p90 {format_ns(latency.p90)}",
        f"p99 {format_ns(latency.p99)}",
        f"p99.9 {format_ns(latency.p999)}",
    )
    return "  ".join(parts) + f"  of {format_count(latency.count)}"


def _mix(status: Status) -> str:
    total = sum(status.block_mix.values())
    if not total:
        return "none yet"
    return "  ".join(f"{size} {status.block_mix[size] * 100 / total:.0f}%" for size in BLOCK_SIZES)


def status_lines(name: str, status: Status) -> list[str]:
    """The lines of `dcmctl status`."""
    s = status
    kinds = ", ".join(
        f"{format_count(s.faults[kind])} {kind}" for kind in FAULT_KINDS if s.faults[kind]
    )
    lines = [
        f"{name}: pid {s.pid}, mode {s.mode or '-'}, up {format_duration(s.uptime_s)}, "
        f"libdcm {s.version or '-'}"
    ]

    def put(label: str, text: str) -> None:
        lines.append(f"  {label:<10}  {text}")

    put(
        "direct",
        f"{bar(s.direct_bytes, s.budget_bytes, 20)} {format_size(s.direct_bytes)} of "
        f"{format_size(s.budget_bytes)} budget (smallest {format_size(s.min_budget_bytes)}), "
        f"{format_size(s.in_flight_bytes)} on the way out, {format_size(s.pinned_bytes)} "
        "pinned",
    )
    put("indirect", f"{format_size(s.indirect_bytes)}; address space {format_size(s.size_bytes)}")
    put("faults", f"{format_count(s.faults['total'])}: {kinds or 'none'}")
    put("hit ratio", f"{format_percent(s.hit_ratio)} of the faults needed no fetch")
    put("fault", _latency(s.fault_latency))
    put("fetch", _latency(s.fetch_latency))
    put("write-back", _latency(s.writeback_latency))
    put(
        "fetched",
        f"{format_size(s.fetched_bytes)} in {format_count(s.fetches)} blocks",
    )
    put(
        "written",
        f"{format_size(s.written_bytes)} in {format_count(s.writebacks)} blocks, "
        f"{format_count(s.cancelled)} cancelled; {format_count(s.clean_drops)} clean blocks "
        f"dropped, {format_count(s.zero_pages)} zero pages",
    )
    put("blocks", _mix(s))
    put(
        "elastic",
        f"{format_count(s.stretch)} STRETCH, {format_count(s.reduce)} REDUCE; of "
        f"{format_count(s.prefetch_fetched)} pages fetched ahead, "
        f"{format_percent(s.prefetch_accuracy)} of the {format_count(s.prefetch_observed)} "
        "observed were used",
    )
    put(
        "extents",
        f"{s.extents['total']}: {s.extents['mapped']} mapped, {s.extents['moving']} moving, "
        f"{s.extents['lost']} lost",
    )
    if s.copies > 1:
        exposed = format_size(s.exposed_bytes) if s.exposed_bytes else "nothing"
        said = f"each page on {s.copies} donors; {exposed} exposed to one donor's death"
        if s.near_bytes:
            said += f"; copies of {format_size(s.near_bytes)} are on one host or in one group"
        if s.lag_bytes:
            said += f"; {format_size(s.lag_bytes)} is not in files yet"
        put("copies", said)
    if s.seal:
        put("sealed", "each page is encrypted on this host before it leaves")
    if worst := worst_deaths({d.name: d.alone_bytes for d in s.donors}, s.together):
        put("at risk", worst)
    for d in s.donors:
        if d.wrong_pages:
            put("WRONG", f"donor {d.name} gave wrong bytes of {d.wrong_pages} pages: drain it")
    if s.lost_pages:
        put("LOST", f"{s.lost_pages} pages ({format_size(s.lost_pages * 4096)}) with their donor")
    lines.append("")
    lines += donor_table([(None, status)])
    return lines


def donor_table(statuses: list[tuple[str | None, Status]]) -> list[str]:
    """A table of donors as VMs see them; without a column for the VM if the VM's name is None."""
    with_vm = any(name is not None for name, _ in statuses)
    header = [
        "DONOR<",
        "STATE<",
        "TRANSPORT<",
        "SLABS",
        "BYTES",
        "RTT",
        "READS",
        "WRITES",
        "ADDRESS<",
    ]
    rows = []
    for name, status in statuses:
        for d in status.donors:
            row = [
                d.name or "-",
                d.state or "-",
                (d.transport or "-") + (", file" if d.medium == "file" else ""),
                str(d.slabs),
                format_size(d.bytes),
                format_ns(d.rtt_ns),
                format_count(d.reads),
                format_count(d.writes),
                d.address or "-",
            ]
            rows.append([name or "-", *row] if with_vm else row)
    if not rows:
        return ["no donors"]
    lines = table(["VM<", *header] if with_vm else header, rows)
    told = {(d.name, d.address): d.told for _, s in statuses for d in s.donors if d.told}
    lines += [f"  {name}: {says}" for (name, _), says in told.items()]
    for name, status in statuses:
        for d in status.donors:
            if d.trouble:
                lines.append(f"! {name + ': ' if name else ''}{d.name}: {d.trouble}")
    return lines


def mix_bar(mix: Mapping[str, int], width: int = 10) -> str:
    """A bar in which each block size has characters by its share of the pages: `4444886666`.

    It is rounded by largest remainders, so it always has `width` characters.
    """
    total = sum(mix.values())
    if total <= 0:
        return "-" * width
    exact = {size: mix[size] * width / total for size in BLOCK_SIZES}
    cells = {size: int(value) for size, value in exact.items()}
    rest = sorted(BLOCK_SIZES, key=lambda size: exact[size] - cells[size], reverse=True)
    for size in rest[: width - sum(cells.values())]:
        cells[size] += 1
    return "".join(MIX_LETTERS[size] * cells[size] for size in BLOCK_SIZES)
