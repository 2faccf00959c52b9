# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl exporter`: this host's VMs for Prometheus, text format 0.0.4.

Donors serve metrics of their own. The exporter has the host's: VMs of both pagers, and donors as
VMs see them. Each scrape reads the estate again (estate.py); scrapes that arrive during a reading
get the same answer. Labels are bounded: names of VMs and of donors.

A value that is not known has no sample, as 0 would be wrong. There are two gauges for loss: memory
that is lost, and memory that one donor's death would lose, which is all lent memory without
redundancy.
"""

from __future__ import annotations

import argparse
import math
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from dcmctl.cluster import estate
from dcmctl.lib.installation import version
from dcmctl.pager import settings, why
from dcmctl.pager.status import FAULT_KINDS, Latency
from dcmctl.web.httpd import Handler, Server, parse_listen, parse_names

Args = argparse.Namespace
CONNECTIONS_MAX = 8
FRESH_S = 1.0
# Names of the same counters: the core's, for the kernel pager; libdcm's own, for the user pager.
KERNEL_FAULTS = {
    "missing": ("FAULT_MISSING",),
    "minor": ("FAULT_MINOR", "FAULT_CANCEL"),
    "wp": ("FAULT_WP",),
    "zero": ("FAULT_ZERO",),
    "sample": ("FAULT_SAMPLE",),
    "spurious": ("FAULT_SPURIOUS",),
    "busy": ("FAULT_BUSY",),
    "stalled": ("FAULT_STALL",),
    "lost": ("FAULT_LOST",),
}
QUANTILES = (("0.5", "p50"), ("0.9", "p90"), ("0.99", "p99"), ("0.999", "p999"))
ORDERS = ("4096", "8192", "16384", "32768", "65536")


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@dataclass
class Family:
    """One metric: its header and its samples."""

    name: str
    kind: str
    help: str
    samples: list[tuple[str, dict[str, str], float]] = field(default_factory=list)

    def put(self, value: float | None, **labels: str) -> None:
        if value is not None:
            self.samples.append((self.name, labels, value))

    def put_count(self, value: int, **labels: str) -> None:
        """Add the sample NAME_count of a summary."""
        self.samples.append((f"{self.name}_count", labels, value))

    def lines(self) -> Iterable[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for name, labels, value in self.samples:
            text = ",".join(f'{key}="{_label(word)}"' for key, word in labels.items())
            number = str(int(value)) if value == math.floor(value) else f"{value:.9g}"
            yield f"{name}{{{text}}} {number}" if text else f"{name} {number}"


class Page:
    """The metrics, in the order in which they were first used."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def gauge(self, name: str, help_: str) -> Family:
        return self._families.setdefault(name, Family(name, "gauge", help_))

    def counter(self, name: str, help_: str) -> Family:
        return self._families.setdefault(name, Family(name, "counter", help_))

    def summary(self, name: str, help_: str) -> Family:
        return self._families.setdefault(name, Family(name, "summary", help_))

    def text(self) -> str:
        lines = [line for f in self._families.values() if f.samples for line in f.lines()]
        return "\n".join(lines) + "\n"


# ---- VMs ----


def _counted(vm: estate.Machine, *names: str) -> int | None:
    """The sum of these counters of the core; None if the VM's counters are not known."""
    if vm.counters is None:
        return None
    return sum(vm.counters.get(name, 0) for name in names)


def _pages(count: int | None) -> int | None:
    return None if count is None else count * 4096


def _vm_memory(page: Page, vm: estate.Machine, labels: dict[str, str]) -> None:
    for name, help_, value in (
        ("size_bytes", "Memory of the VM that can be paged.", vm.size_bytes),
        ("budget_bytes", "The most of the VM's memory that may be on this host.", vm.budget_bytes),
        ("min_budget_bytes", "The smallest budget that the pager accepts.", vm.min_budget_bytes),
        ("direct_bytes", "Memory of the VM on this host.", vm.direct_bytes),
        ("indirect_bytes", "Memory of the VM on donors only; user pager.", vm.indirect_bytes),
        ("lent_bytes", "Memory in slabs that donors have lent to the VM.", vm.lent_bytes),
        ("lost_bytes", "Memory of the VM that was lost with donors.", vm.lost_bytes),
        (
            "unprotected_bytes",
            "Memory with no whole copy on another donor: lost if the donor is lost.",
            vm.unprotected_bytes,
        ),
        (
            "lag_bytes",
            "With disk:lazy: memory not in files yet, lost if all donors of memory are lost.",
            vm.lag_bytes,
        ),
        (
            "sealed",
            "1 if the VM's pages are encrypted on this host before they leave, else 0.",
            None if vm.seal is None else int(vm.seal),
        ),
        (
            "extents_unbacked",
            "Extents that wait for a slab: their memory can't leave this host.",
            vm.waiting_extents,
        ),
    ):
        page.gauge(f"dcm_vm_{name}", help_).put(value, **labels)


def _vm_work(page: Page, vm: estate.Machine, labels: dict[str, str]) -> None:
    faults = page.counter("dcm_vm_faults_total", "Faults, by kind.")
    for kind in FAULT_KINDS:
        faults.put(_counted(vm, *KERNEL_FAULTS[kind]), **labels, kind=kind)
    for name, help_, value in (
        ("fetches_total", "Blocks fetched from donors.", _counted(vm, "FETCHES")),
        ("fetched_bytes_total", "Bytes of them.", _pages(_counted(vm, "FETCHED_PAGES"))),
        ("writebacks_total", "Blocks written to donors.", _counted(vm, "WRITEBACKS")),
        ("written_bytes_total", "Bytes of them.", _pages(_counted(vm, "WRITTEN_PAGES"))),
        (
            "writebacks_cancelled_total",
            "Write-backs cancelled because the block was used again.",
            _counted(vm, "CANCELLED"),
        ),
        (
            "clean_drops_total",
            "Blocks evicted without a write, as the donor has the same content.",
            _counted(vm, "CLEAN_DROPS"),
        ),
        ("zero_pages_total", "Pages found to be all zero at eviction.", _counted(vm, "ZERO_PAGES")),
        (
            "discarded_bytes_total",
            "Bytes that the guest or program gave up: free page reports, balloon, MADV_DONTNEED.",
            _pages(_counted(vm, "DISCARDED_PAGES")),
        ),
        (
            "wrong_bytes_total",
            "Bytes of pages of which a donor gave other bytes than it was given.",
            _pages(_counted(vm, "WRONG_PAGES")),
        ),
        ("stretches_total", "Blocks merged with their buddy (STRETCH).", _counted(vm, "STRETCH")),
        ("reductions_total", "Blocks split (REDUCE).", _counted(vm, "REDUCE")),
    ):
        page.counter(f"dcm_vm_{name}", help_).put(value, **labels)
    waited = page.counter(
        "dcm_vm_waited_seconds_total", "Time that accesses waited, of all together, by cause."
    )
    for cause, (name, _, _) in why.CAUSES.items():
        if vm.counters is not None and name in vm.counters:
            waited.put(vm.counters[name] / 1e9, **labels, cause=cause)
    mix = page.counter("dcm_vm_brought_pages_total", "Pages fetched, by the size of their block.")
    for size, word in zip(ORDERS, ("4K", "8K", "16K", "32K", "64K"), strict=True):
        mix.put(_counted(vm, f"MIX_{word}"), **labels, block_bytes=size)


def _summary(page: Page, name: str, help_: str, of: Latency, labels: dict[str, str]) -> None:
    """Add a summary without NAME_sum, as pagers don't keep sums."""
    family = page.summary(f"dcm_vm_{name}_latency_seconds", help_)
    for text, attribute in QUANTILES:
        if of.count:
            family.put(getattr(of, attribute) / 1e9, **labels, quantile=text)
    family.put_count(of.count, **labels)


def _vm_latency(page: Page, vm: estate.Machine, labels: dict[str, str]) -> None:
    for name, help_ in (
        ("fault", "Time from a fault until its block is installed, since the VM started."),
        ("fetch", "Time of fetches from donors, since the VM started."),
        ("writeback", "Time of write-backs to donors, since the VM started."),
    ):
        if vm.latency is not None:
            _summary(page, name, help_, vm.latency[name], labels)
    if vm.status is None:
        return
    page.gauge("dcm_vm_uptime_seconds", "Time since the VM's pager started; user pager.").put(
        vm.status.uptime_s, **labels
    )


# ---- donors ----

STATES = ("up", "connecting", "silent", "lost", "draining")


def _donors(page: Page, donors: list[estate.Donor]) -> None:
    up = page.gauge("dcm_host_donor_up", "1 if every VM that has the donor can reach it.")
    for d in donors:
        labels = {"donor": d.name}
        up.put(None if not d.uses else float(d.state in ("up", "draining")), **labels)
        for name, help_, value in (
            ("capacity_bytes", "Memory that the donor may lend.", d.capacity_bytes),
            ("lent_bytes", "Memory that the donor has lent to all tenants.", d.lent_bytes),
            ("free_bytes", "Memory that the donor would lend now.", d.free_bytes),
            ("head_room_bytes", "Memory kept free for the donor's machine.", d.head_room_bytes),
            ("all_sessions", "Sessions that the donor has with all hosts.", d.sessions),
        ):
            page.gauge(f"dcm_host_donor_{name}", help_).put(value, **labels)
    state = page.gauge("dcm_host_donor_sessions", "VMs with this donor, by its state in the VM.")
    for d in donors:
        for name in STATES if d.uses else ():
            state.put(sum(use.state == name for use in d.uses), donor=d.name, state=name)


def _uses(page: Page, vms: list[estate.Machine]) -> None:
    used = page.gauge("dcm_vm_donor_bytes", "Memory in slabs of the donor that the VM has.")
    alone = page.gauge(
        "dcm_vm_donor_alone_bytes", "The most memory that the VM loses if only this donor dies."
    )
    rtt = page.gauge("dcm_vm_donor_rtt_seconds", "Round trip time from the VM to the donor.")
    silent = page.gauge(
        "dcm_vm_donor_silent_seconds",
        "Time since the donor's last message on the VM's control connection; 0: no session.",
    )
    for vm in vms:
        for use in vm.uses:
            labels = {"vm": vm.name, "pager": vm.pager, "donor": use.donor}
            used.put(use.bytes, **labels)
            alone.put(use.alone_bytes, **labels)
            silent.put(use.silent_ms / 1e3, **labels)
            rtt.put(use.rtt_ns / 1e9 if use.rtt_ns else None, **labels)


def metrics(seen: estate.Estate, seconds: float) -> str:
    """All metrics as text."""
    page = Page()
    page.gauge("dcm_host_build_info", "Version; always 1.").put(1, version=version())
    page.gauge("dcm_host_hostd_up", "1 if dcm-hostd answers; absent if it is not configured.").put(
        float(seen.hostd) if seen.hostd or settings.hostd_conf().is_file() else None
    )
    count = page.gauge("dcm_host_vms", "VMs whose memory is on donors.")
    for pager in ("user", "kernel"):
        count.put(sum(vm.pager == pager for vm in seen.vms), pager=pager)
    page.gauge("dcm_host_problems", "VMs and daemons that did not answer at this scrape.").put(
        len(seen.problems)
    )
    up = page.gauge("dcm_vm_up", "1 if the VM's pager answers.")
    # Two files on two mounts may have the same name, and two VMs may know a donor by two addresses.
    # Export only one of them: Prometheus would refuse the page if a sample were there twice.
    vms = list({(vm.name, vm.pager): vm for vm in reversed(seen.vms)}.values())[::-1]
    donors = list({d.name: d for d in reversed(seen.donors)}.values())[::-1]
    for vm in vms:
        labels = {"vm": vm.name, "pager": vm.pager}
        up.put(float(not vm.error), **labels)
        if vm.error and vm.pager == "user":
            continue
        _vm_memory(page, vm, labels)
        _vm_work(page, vm, labels)
        _vm_latency(page, vm, labels)
    _donors(page, donors)
    _uses(page, vms)
    page.gauge(
        "dcm_host_scrape_duration_seconds",
        "Time that this scrape took to ask all VMs and donors.").put(seconds,
    )
    return page.text()


# ---- HTTP ----


class _Pages:
    """Makes one page at a time; all requests that arrive meanwhile get that page."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text = ""
        self._time = -math.inf

    def get(self) -> str:
        with self._lock:
            began = time.monotonic()
            if began - self._time > FRESH_S:
                seen = estate.look(ask_donors=False)
                self._text = metrics(seen, time.monotonic() - began)
                self._time = time.monotonic()
            return self._text


class _Server(Server):
    def __init__(self, address: tuple[str, int], names: tuple[str, ...]) -> None:
        self.pages = _Pages()
        super().__init__(address, _Handler, CONNECTIONS_MAX, names=names)


class _Handler(Handler):
    server: _Server

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, "text/plain; version=0.0.4; charset=utf-8", self.server.pages.get())
        elif path == "/":
            self._answer(200, "text/plain", "dcmctl exporter: /metrics\n")
        else:
            self._answer(404, "text/plain", "not found: the metrics are at /metrics\n")

    def _answer(self, status: int, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)


def cmd_exporter(args: Args) -> int:
    if args.once:
        began = time.monotonic()
        seen = estate.look(ask_donors=False)
        print(metrics(seen, time.monotonic() - began), end="")
        return 0
    server = _Server(parse_listen(args.listen), parse_names(args.name))
    print(f"dcmctl: metrics at {server.url()}metrics", file=sys.stderr, flush=True)
    try:
        server.serve_forever()
    finally:
        server.server_close()
    return 0
