# SPDX-License-Identifier: GPL-2.0-or-later
"""A socket that answers like a VM's, or as a test wants it to.

Its figures change with every request, so that rates can be checked exactly.
"""

from __future__ import annotations

import copy
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dcmctl.pager import settings

STATUS: dict[str, Any] = {
    "name": "vm1",
    "pid": 4242,
    "version": "0.1.0",
    "mode": "qemu",
    "uptime_s": 125.5,
    "budget_bytes": 256 << 20,
    "direct_bytes": 128 << 20,
    "indirect_bytes": 768 << 20,
    "size_bytes": 1 << 30,
    "in_flight_bytes": 1 << 20,
    "faults": {
        "total": 1000,
        "missing": 250,
        "minor": 500,
        "wp": 100,
        "zero": 140,
        "busy": 9,
        "stalled": 1,
    },
    "fetches": 250,
    "fetched_bytes": 16 << 20,
    "writebacks": 200,
    "written_bytes": 8 << 20,
    "cancelled": 3,
    "clean_drops": 70,
    "zero_pages": 5,
    "stretch": 40,
    "reduce": 7,
    "block_mix": {"4K": 400, "8K": 100, "16K": 0, "32K": 100, "64K": 400},
    "prefetch": {"fetched": 900, "observed": 500, "touched": 450},
    "latency_ns": {
        "fault": {"p50": 17000, "p90": 40000, "p99": 120000, "p999": 900000, "count": 1000},
        "fetch": {"p50": 9000, "p90": 10000, "p99": 80000, "p999": 500000, "count": 250},
        "writeback": {"p50": 8000, "p90": 9000, "p99": 70000, "p999": 400000, "count": 200},
    },
    "lost_pages": 0,
    "copies": 1,
    "redundancy": "none",
    "seal": False,
    "exposed_bytes": 0,
    "lag_bytes": 0,
    "donors": [
        {
            "name": "d1",
            "address": "unix:/run/d1.sock",
            "transport": "shm",
            "medium": "memory",
            "state": "up",
            "slabs": 3,
            "bytes": 512 << 20,
            "rtt_ns": 12000,
            "reads": 200,
            "writes": 100,
        },
        {
            "name": "d2",
            "address": "tcp:127.0.0.1:7400",
            "transport": "tcp",
            "medium": "file",
            "state": "draining",
            "slabs": 1,
            "bytes": 256 << 20,
            "rtt_ns": 55000,
            "reads": 50,
            "writes": 100,
        },
    ],
    "extents": {"total": 16, "mapped": 4, "moving": 1, "lost": 0},
    "tunables": {"epsilon": 100, "elastic": 1},
}

Answer = Callable[[dict[str, Any]], bytes]


class VmServer:
    """Answers each line; a context manager."""

    def __init__(self, directory: Path, name: str = "vm1", answer: Answer | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"{name}.sock"
        self.status = copy.deepcopy(STATUS)
        self.status["name"] = name
        self.step: dict[str, int] = {}
        self.requests: list[dict[str, Any]] = []
        self._answer = answer or self.protocol
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(self.path))
        self._socket.listen(16)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> VmServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        self.path.unlink(missing_ok=True)

    def stop(self) -> None:
        """Stop listening but leave the socket file, as a killed process does."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            with peer:
                try:
                    self._talk(peer)
                except OSError:
                    pass

    def _talk(self, peer: socket.socket) -> None:
        peer.settimeout(20)
        with peer.makefile("rb") as lines:
            for line in lines:
                peer.sendall(self._answer(json.loads(line)))

    def protocol(self, request: dict[str, Any]) -> bytes:
        self.requests.append(request)
        return json.dumps(self._reply(request)).encode() + b"\n"

    def _reply(self, request: dict[str, Any]) -> dict[str, Any]:
        command = request.get("cmd")
        if command == "status":
            answer = {"ok": True, **copy.deepcopy(self.status)}
            for name, by in self.step.items():
                group, _, key = name.rpartition(".")
                target = self.status[group] if group else self.status
                target[key] += by
            return answer
        if command == "budget":
            if request["bytes"] < 4 << 20:
                return {"ok": False, "error": "budget: at least 4M"}
            self.status["budget_bytes"] = request["bytes"]
            return {"ok": True}
        if command == "redundancy":
            if self.status.get("waiting", 0) > 100:
                return {"ok": False, "error": "redundancy: donors collect garbage of this VM"}
            self.status["redundancy"] = request["value"]
            self.status["copies"] = settings.REDUNDANCY[request["value"]][0]
            return {"ok": True}
        if command == "tunables":
            return {"ok": True, "tunables": self.status["tunables"]}
        if command == "set":
            if request["name"] not in self.status["tunables"] or request["value"] > 10000:
                return {"ok": False, "error": f"{request['name']}: out of range"}
            self.status["tunables"][request["name"]] = request["value"]
            return {"ok": True}
        return {"ok": False, "error": "unknown command"}
