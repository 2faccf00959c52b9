# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl dashboard`: the operator's page.

The page shows the estate (estate.py), as the other commands do, and its history (watch.py). It
changes budgets and drains donors as `dcmctl budget`, `vm budget` and `donor drain` do, but only
of VMs and donors that the last reading showed.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import secrets
import signal
import ssl
import stat
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dcmctl.cluster import estate, members
from dcmctl.lib import installation
from dcmctl.lib.address import check_name
from dcmctl.lib.errors import DcmError, UsageError, reason
from dcmctl.lib.units import PAGE
from dcmctl.pager import dcmfs, settings, vmsock
from dcmctl.web.httpd import parse_listen, parse_names
from dcmctl.web.page import Gate, Query, Site, load_files
from dcmctl.web.watch import POINT, Watch, key_of

Args = argparse.Namespace
WAIT_S = 20.0  # how long a request waits for the next reading
TOKEN_MIN = 16


# ---- options ----


def read_token(path: Path) -> str:
    """Read the token, one line. A missing file is made, readable by its owner only."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        pass
    except OSError as exc:
        raise DcmError(f"token file {path}: {reason(exc)}") from None
    else:
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(24) + "\n")
    try:
        with path.open("rb") as file:
            info = os.fstat(file.fileno())
            data = file.read(1025)
    except OSError as exc:
        raise DcmError(f"token file {path}: {reason(exc)}") from None
    if not stat.S_ISREG(info.st_mode) or info.st_uid not in (0, os.geteuid()):
        raise DcmError(f"token file {path}: must be a regular file of yours or of root")
    if info.st_mode & 0o077:
        raise DcmError(f"token file {path} can be read by other users: chmod 600 {path}")
    token = data.decode("ascii", "replace").strip()
    if not TOKEN_MIN <= len(token) <= 1024 or not token.isprintable() or " " in token:
        raise DcmError(f"token file {path}: must be one word of {TOKEN_MIN} to 1024 characters")
    return token


def _tls(args: Args) -> ssl.SSLContext | None:
    if not args.cert:
        if args.cert_key:
            raise UsageError("--cert-key needs --cert")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(args.cert, args.cert_key)
    except (OSError, ssl.SSLError) as exc:
        raise DcmError(f"certificate {args.cert}: {reason(exc)}") from None
    return context


# ---- the API ----


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else 0


class Api:
    """Serves the API requests of the page."""

    def __init__(self, watch: Watch, changes: bool) -> None:
        self.watch = watch
        self.changes = changes

    def state(self, query: Query) -> dict[str, Any]:
        """Wait for a reading that the page doesn't have; return it with the events since then."""
        look = self.watch.after(_number(query.get("after")), WAIT_S)
        events = self.watch.events_after(_number(query.get("event")))
        return {
            "version": installation.version(),
            "interval_s": self.watch.interval,
            "changes": self.changes,
            "look": None if look is None else look.to_json(),
            "events": [asdict(event) for event in events],
        }

    def history(self, query: Query) -> dict[str, Any]:
        key = query.get("vm", "")
        return {"names": POINT, "points": self.watch.history(key)}

    def budget(self, body: dict[str, Any]) -> dict[str, Any]:
        vm = self.watch.vm(str(body.get("vm")))
        size = body.get("bytes")
        if vm is None:
            raise DcmError("this VM has ended")
        if isinstance(size, bool) or not isinstance(size, int) or not PAGE <= size < 1 << 46:
            raise DcmError("the budget must be a number of bytes, at least one page")
        if vm.pager == "user":
            vmsock.Vm(vm.name, Path(vm.path)).ask({"cmd": "budget", "bytes": size})
        else:
            try:
                dcmfs.set_budget(Path(vm.path), size)
            except OSError as exc:
                raise DcmError(f"VM {vm.name}: {reason(exc)}") from None
        self.watch.take()
        now = self.watch.vm(key_of(vm))
        return {"vm": vm.name, "budget_bytes": now.budget_bytes if now else None}

    def drain(self, body: dict[str, Any]) -> dict[str, Any]:
        """Do `dcmctl donor drain NAME --no-wait` (or --undo) for a donor of the last reading."""
        donor = self.watch.donor(str(body.get("donor")))
        undo = body.get("undo", False)
        if donor is None or not isinstance(undo, bool):
            raise DcmError("this host no longer uses this donor")
        files = (settings.HOST_CONF, settings.hostd_conf())
        args = Args(config=None, no_config=not any(path.is_file() for path in files))
        reached = members.begin_drain(args, check_name(donor.name, "donor name"), not undo)
        self.watch.take()
        if reached.failed:
            raise DcmError("; ".join(reached.failed))
        return {"donor": donor.name, "told": reached.vms}


# ---- the command ----


def serve(args: Args) -> int:
    host, port = parse_listen(args.listen)
    loopback = ipaddress.ip_address(host).is_loopback
    names = parse_names(args.name)
    if not loopback and not args.token_file:
        raise UsageError(
            f"--listen {args.listen} is not loopback: add --token-file FILE, a token that readers "
            "need"
        )
    if not loopback and not args.cert and not args.plain:
        raise UsageError(
            f"--listen {args.listen} is not loopback: add --cert FILE for TLS, or --plain on a "
            "network where nobody else can listen"
        )
    token = read_token(Path(args.token_file)) if args.token_file else None
    gate = Gate(token, reading=not loopback or bool(names))
    if gate.reading and token is None:
        raise UsageError(
            "--name is for access from other hosts: add --token-file FILE, a token that readers "
            "need"
        )
    server = Site(
        (host, port),
        gate,
        load_files(installation.web_folder()),
        tls=_tls(args),
        names=names,
        verbose=args.verbose,
    )
    watch = Watch(estate.look, args.interval)
    api = Api(watch, token is not None)
    server.gets.update({"/api/state": api.state, "/api/history": api.history})
    server.posts.update({"/api/budget": api.budget, "/api/drain": api.drain})

    def end(*_: object) -> None:
        # shutdown() waits for the server's loop, which this thread runs: call it in another one.
        threading.Thread(target=server.shutdown, daemon=True).start()

    with server:
        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        watch.start()
        print(server.url(), flush=True)
        try:
            server.serve_forever(poll_interval=0.2)
        finally:
            watch.stop()
    return 0


def cmd_dashboard(args: Args) -> int:
    try:
        args.interval = float(args.interval)
    except ValueError:
        args.interval = 0.0
    if not 0.2 <= args.interval <= 60:
        raise UsageError("--interval must be 0.2 to 60 seconds")
    if args.once:
        watch = Watch(estate.look, args.interval)
        watch.take()
        time.sleep(args.interval)  # a rate needs two readings
        watch.take()
        look = watch.after(0, 0)
        assert look is not None
        json.dump(look.to_json(), sys.stdout, indent=2)
        print()
        return 0
    return serve(args)
