# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line: parse the arguments, call one command, print an error as one line."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from dcmctl import show
from dcmctl.cluster import members
from dcmctl.lib import keyfile
from dcmctl.lib.address import check_name, parse_donors
from dcmctl.lib.errors import DcmError, UsageError, printable
from dcmctl.lib.installation import version
from dcmctl.lib.table import table
from dcmctl.lib.units import format_duration, format_size, parse_size
from dcmctl.libvirt import vm
from dcmctl.pager import run, settings, vmsock
from dcmctl.pager.settings import Settings
from dcmctl.pager.status import Fields, Status

Args = argparse.Namespace
Command = Callable[[Args], int]


class _Parser(argparse.ArgumentParser):
    """Errors in one line, as everywhere else."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


# ---- run ----


def _given(args: Args) -> Settings:
    """What the command line says; None where it says nothing."""
    tunables: dict[str, str] = {}
    for pair in args.set or []:
        name, sep, value = pair.partition("=")
        if not sep:
            raise UsageError(f"--set {printable(pair)}: write NAME=VALUE")
        tunables[settings.tunable_name(name)] = str(settings.tunable_value(value, name))

    def size(text: str | None, option: str) -> int | None:
        return None if text is None else settings.page_size(text, option)

    return Settings(
        name=None if args.name is None else check_name(args.name, "--name"),
        budget=size(args.budget, "--budget"),
        size=size(args.size, "--size"),
        threshold=size(args.threshold, "--threshold"),
        mode=None if args.mode == "auto" else args.mode,
        lanes=None if args.lanes is None else settings.lanes(args.lanes),
        on_loss=args.on_loss,
        data_encryption=False if args.no_encrypt_data else None,
        transport=args.transport,
        patience=None
        if args.patience is None
        else settings.patience(args.patience, "--patience"),
        tenant=None if args.tenant is None else keyfile.check_tenant(args.tenant),
        keys=None if args.keys is None else settings.key_path(args.keys),
        donors=tuple(parse_donors(args.donor or [])),
        tunables=tunables,
    )


def _config(path: str | None) -> Settings:
    """The settings of --config FILE, else of the host's file if it can be read."""
    if path is not None:
        return settings.load(Path(path))
    if settings.HOST_CONF.is_file() and os.access(settings.HOST_CONF, os.R_OK):
        return settings.load(settings.HOST_CONF)
    return Settings()


def cmd_run(args: Args) -> int:
    argv: list[str] = args.program
    if not argv:
        raise UsageError("no program: dcmctl run [options] -- PROGRAM ARGS...")
    host = _config(args.config)
    host = replace(host, donors=tuple(d for d in host.donors if not d.drain))
    made = run.plan(host.merged(_given(args)), argv, args.malloc)
    if args.dry_run:
        if args.json:
            _print_json(
                {
                    "name": made.name,
                    "program": str(made.program),
                    "argv": made.argv,
                    "environment": made.environment(),
                    "config": made.settings.to_ini(),
                }
            )
        else:
            for name, value in made.environment().items():
                print(f"{name}={value}")
            print(f"exec {made.program}\n\n# {made.conf}\n{made.settings.to_ini()}", end="")
        return 0
    if not args.no_check:
        run.check_machine(made)
    return run.execute(made, args.verbose)


# ---- looking ----


def _ask_status(vm: vmsock.Vm) -> tuple[vmsock.Json, Status]:
    answer = vm.ask({"cmd": "status"})
    return answer, Status.read(answer, f"VM {vm.name}")


def cmd_status(args: Args) -> int:
    vm = vmsock.find(args.vm) if args.vm else vmsock.find_only()
    answer, status = _ask_status(vm)
    if args.json:
        _print_json(answer)
    else:
        print("\n".join(show.status_lines(vm.name, status)))
    return 0


def cmd_list(args: Args) -> int:
    vms = vmsock.find_all()
    if args.quiet:
        for vm in vms:
            print(vm.name)
        return 0
    rows: list[list[str]] = []
    objects: list[dict[str, Any]] = []
    failed = False
    for vm in vms:
        try:
            _, s = _ask_status(vm)
        except vmsock.VmGone:
            continue
        except DcmError as exc:
            failed = True
            print(f"dcmctl: {exc}", file=sys.stderr)
            objects.append({"name": vm.name, "socket": str(vm.path), "error": str(exc)})
            continue
        objects.append(
            {
                "name": vm.name,
                "socket": str(vm.path),
                "pid": s.pid,
                "mode": s.mode,
                "uptime_s": s.uptime_s,
                "budget_bytes": s.budget_bytes,
                "direct_bytes": s.direct_bytes,
                "indirect_bytes": s.indirect_bytes,
                "size_bytes": s.size_bytes,
                "lost_pages": s.lost_pages,
                "donors": [d.name for d in s.donors],
            }
        )
        rows.append(
            [
                vm.name,
                str(s.pid),
                s.mode or "-",
                format_duration(s.uptime_s),
                format_size(s.direct_bytes),
                format_size(s.budget_bytes),
                format_size(s.indirect_bytes),
                ",".join(d.name for d in s.donors) or "-",
            ]
        )
    if args.json:
        _print_json(objects)
    elif rows:
        header = ["VM<", "PID", "MODE<", "UP", "DIRECT", "BUDGET", "INDIRECT", "DONORS<"]
        print("\n".join(table(header, rows)))
    elif not failed:
        print("no VM is running")
    return 1 if failed else 0


def cmd_top(args: Args) -> int:
    from dcmctl.top import top  # only this command needs the modules for terminals

    try:
        interval = float(args.interval)
    except ValueError:
        interval = 0.0
    if not 0.1 <= interval <= 3600:
        raise UsageError(f"interval '{printable(args.interval)}' is not 0.1 to 3600 seconds")
    return top(interval, args.once, args.json)


# ---- changing ----


def cmd_budget(args: Args) -> int:
    vm = vmsock.find(args.vm)
    size = parse_size(args.size, "budget")
    _, before = _ask_status(vm)
    vm.ask({"cmd": "budget", "bytes": size})
    _, after = _ask_status(vm)
    if args.json:
        _print_json(
            {
                "name": vm.name,
                "old_budget_bytes": before.budget_bytes,
                "budget_bytes": after.budget_bytes,
                "direct_bytes": after.direct_bytes,
            }
        )
    else:
        print(
            f"{vm.name}: budget {format_size(before.budget_bytes)} -> "
            f"{format_size(after.budget_bytes)}, {format_size(after.direct_bytes)} direct now"
        )
    return 0


def _tunables(vm: vmsock.Vm) -> dict[str, dict[str, Any]]:
    """Tunables by name: {"value": N}, and unit, bounds and reason if libdcm gives them."""
    who = f"VM {vm.name}"
    fields = Fields(vm.ask({"cmd": "tunables"}), who)
    found: dict[str, dict[str, Any]] = {}
    raw = fields.raw("tunables")
    if isinstance(raw, dict):
        raw = [
            {"name": name, **value} if isinstance(value, dict) else {"name": name, "value": value}
            for name, value in raw.items()
        ]
    if not isinstance(raw, list) or len(raw) > 1024:
        raise DcmError(f"{who} sent an answer without a list of tunables")
    for item in raw:
        entry = Fields(item, f"{who}: tunable")
        name = entry.text("name")
        found[name] = {"value": entry.number("value")}
        for key in ("unit", "why"):
            if key in entry:
                found[name][key] = entry.text(key)
        for key in ("default", "min", "max"):
            if key in entry:
                found[name][key] = entry.number(key)
    return found


def cmd_tunable(args: Args) -> int:
    vm = vmsock.find(args.vm)
    if args.name is None:
        return _show_tunables(vm, args.json)
    name = settings.tunable_name(args.name)
    before = _tunables(vm)
    if name not in before:
        raise DcmError(f"VM {vm.name} has no tunable '{name}'; it has: {', '.join(before)}")
    after = before
    if args.value is not None:
        vm.ask({"cmd": "set", "name": name, "value": settings.tunable_value(args.value, name)})
        after = _tunables(vm)
        if name not in after:
            raise DcmError(f"VM {vm.name} no longer lists tunable '{name}'")
    if args.json:
        _print_json({"name": name, **after[name]})
    elif args.value is None:
        print(after[name]["value"])
    else:
        print(f"{vm.name}: {name} {before[name]['value']} -> {after[name]['value']}")
    return 0


def _show_tunables(vm: vmsock.Vm, machine: bool) -> int:
    found = _tunables(vm)
    if machine:
        _print_json(found)
        return 0
    rows = []
    for name, entry in found.items():
        bounds = f"{entry['min']}..{entry['max']}" if "min" in entry and "max" in entry else "-"
        rows.append(
            [
                name,
                str(entry["value"]),
                entry.get("unit", "-"),
                str(entry.get("default", "-")),
                bounds,
            ]
        )
    print("\n".join(table(["TUNABLE<", "VALUE", "UNIT<", "DEFAULT", "RANGE<"], rows)))
    return 0


# ---- donors and keys ----


def cmd_donor_status(args: Args) -> int:
    from dcmctl.cluster import donor  # its HTTP client takes longer to load than all the rest

    status = donor.fetch(args.addr)
    if args.json:
        _print_json(status)
    else:
        print("\n".join(donor.status_lines(args.addr, status)))
    return 0


def cmd_discover(args: Args) -> int:
    from dcmctl.cluster import discover

    return discover.cmd_discover(args)


def cmd_announce(args: Args) -> int:
    from dcmctl.cluster import discover

    return discover.cmd_announce(args)


def cmd_exporter(args: Args) -> int:
    from dcmctl.web import exporter

    return exporter.cmd_exporter(args)


def cmd_keygen(args: Args) -> int:
    path = Path(args.file)
    keyfile.generate(path, args.tenant, args.bytes, args.append)
    if args.json:
        _print_json({"file": str(path), "tenant": args.tenant, "bytes": args.bytes})
    else:
        print(
            f"{path}: a key of {args.bytes} bytes for tenant {args.tenant}; "
            "copy it to the donors' key file"
        )
    return 0


# ---- the parser ----


def _add_run(sub: Any, common: argparse.ArgumentParser) -> None:
    p = sub.add_parser(
        "run",
        parents=[common],
        help="run a program or a QEMU guest on donor memory",
        description="Run PROGRAM with at most the budget of its memory on this host and the rest "
        "on donors. dcmctl passes signals on, and ends with the program's exit status.",
        usage="dcmctl run --budget SIZE --donor ADDR --keys FILE [options] -- PROGRAM ARGS...",
        allow_abbrev=False,
    )
    p.add_argument("--budget", metavar="SIZE", help="most of its memory on this host: a hard limit")
    p.add_argument(
        "--donor",
        metavar="[NAME=]ADDR",
        action="append",
        help="tcp:HOST:PORT or unix:/path; give it once for each donor "
        "(donors given here replace those of the configuration)",
    )
    p.add_argument("--keys", metavar="FILE", help="key file: lines tenant:hexkey, mode 0600")
    p.add_argument(
        "--tenant",
        metavar="NAME",
        help="tenant whose key is used (default: the only one in the key file)",
    )
    p.add_argument("--name", help="name of the VM (default: QEMU's -name, or PROGRAM-PID)")
    p.add_argument(
        "--size", metavar="SIZE", help="most memory that is paged (default for QEMU: its -m)"
    )
    p.add_argument(
        "--mode",
        choices=("auto", *settings.MODES),
        default="auto",
        help="what PROGRAM is; auto decides by its name",
    )
    p.add_argument("--lanes", metavar="N", help="number of threads that handle faults")
    p.add_argument(
        "--on-loss",
        choices=settings.ON_LOSS,
        help="what happens at an access to memory that was lost with a donor: the accessing "
        "thread waits for ever, or gets SIGBUS",
    )
    p.add_argument("--threshold", metavar="SIZE", help="the smallest mapping that is paged")
    p.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        help="value of a tunable; dcmctl tunable VM lists them",
    )
    p.add_argument(
        "--no-encrypt-data",
        action="store_true",
        help="send pages unencrypted to donors that allow it: for isolated networks only",
    )
    p.add_argument(
        "--transport",
        choices=settings.TRANSPORTS,
        help="to donors on other hosts: tcp, verbs (RDMA, unencrypted), or auto: the faster one "
        "that both sides have",
    )
    p.add_argument(
        "--patience",
        metavar="TIME",
        help="how long a donor may be silent before its memory counts as lost (default 60s)",
    )
    p.add_argument(
        "--malloc",
        choices=("jemalloc", "own"),
        default="jemalloc",
        help="for --mode program: preload jemalloc so that malloc'ed memory is paged, "
        "or keep the program's own allocator",
    )
    p.add_argument(
        "--config",
        metavar="FILE",
        help=f"INI file with defaults of these options (default: {settings.HOST_CONF}, if it "
        "exists)",
    )
    p.add_argument(
        "--no-check", action="store_true", help="do not try userfaultfd and the donors first"
    )
    p.add_argument("--dry-run", action="store_true", help="check, show what would be run, and exit")
    p.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="print the VM's name, budget and donors at the start",
    )
    p.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    p.set_defaults(command=cmd_run)


def cmd_dashboard(args: Args) -> int:
    from dcmctl.web import dashboard  # loads an HTTP server and TLS

    return dashboard.cmd_dashboard(args)


def _add_dashboard(
    sub: Any, add: Callable[[Any, str, Command, str], argparse.ArgumentParser]
) -> None:
    p = add(sub, "dashboard", cmd_dashboard, "serve a page that shows donors and VMs, live")
    p.add_argument(
        "--listen",
        metavar="ADDR:PORT",
        default="127.0.0.1:9760",
        help="default %(default)s; port 0: any",
    )
    p.add_argument(
        "--token-file",
        metavar="FILE",
        help="file of the token that changes need, and all access from other hosts; made if "
        "missing",
    )
    p.add_argument("--cert", metavar="FILE", help="use TLS with this certificate (and key), in PEM")
    p.add_argument(
        "--cert-key", metavar="FILE", help="the certificate's key, if it is in another file"
    )
    p.add_argument("--plain", action="store_true", help="no TLS, although --listen is not loopback")
    p.add_argument(
        "--name",
        metavar="NAME",
        action="append",
        help="a host name in URLs of this server, beside its address; may be repeated",
    )
    p.add_argument(
        "--interval", metavar="S", default="2", help="seconds between two readings (default 2)"
    )
    p.add_argument("--once", action="store_true", help="print the page's data as JSON, and exit")
    p.add_argument("-v", "--verbose", action="store_true", help="log each request")


def build_parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print JSON")
    parser = _Parser(
        prog="dcmctl",
        description="Run programs and stock guests on the memory of donors; show and change them.",
        epilog="Sizes are written 4096, 64K, 256M, 1.5G. Exit status: 0 success, 1 failure, "
        "2 wrong usage; of run: the program's own. More: man dcmctl.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dcmctl {version()}")
    sub = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
    _add_run(sub, common)

    def add(
        to: Any, name: str, command: Command, text: str, **more: Any
    ) -> argparse.ArgumentParser:
        p: argparse.ArgumentParser = to.add_parser(
            name,
            parents=[common],
            help=text,
            description=text[0].upper() + text[1:] + ".",
            allow_abbrev=False,
            **more,
        )
        p.set_defaults(command=command)
        return p

    p = add(sub, "status", cmd_status, "show all figures of a running VM")
    p.add_argument(
        "vm", nargs="?", metavar="VM", help="name of the VM (default: the only one that runs)"
    )

    p = add(sub, "list", cmd_list, "list running VMs")
    p.add_argument(
        "-q", "--quiet", action="store_true", help="print names only, without asking the VMs"
    )

    p = add(sub, "top", cmd_top, "show a live table of VMs and donors")
    p.add_argument(
        "--interval", metavar="S", default="2", help="seconds between two readings (default 2)"
    )
    p.add_argument(
        "--once", action="store_true", help="print one table after one interval, and exit"
    )

    p = add(sub, "budget", cmd_budget, "change the direct budget of a running VM")
    p.add_argument("vm", metavar="VM")
    p.add_argument("size", metavar="SIZE")

    p = add(sub, "tunable", cmd_tunable, "list, show or change tunables of a running VM")
    p.add_argument("vm", metavar="VM")
    p.add_argument("name", nargs="?", metavar="NAME")
    p.add_argument("value", nargs="?", metavar="VALUE")

    vm.add_parsers(sub, _Parser, add)
    _add_dashboard(sub, add)

    text = "show donors, and change which of them this host uses"
    p = sub.add_parser("donor", help=text, description=text[0].upper() + text[1:] + ".")
    p.set_defaults(command=None, parser=p)
    donors = p.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
    p = add(donors, "status", cmd_donor_status, "show a donor's own status")
    p.add_argument("addr", metavar="ADDR", help="HOST:PORT of the donor's HTTP status")
    members.add_parsers(donors, add)

    config = "/etc/kvm-dcm/discovery.conf"
    p = add(
        sub, "discover", cmd_discover, "keep this host's donors the same as those announced in etcd"
    )
    p.add_argument("--config", metavar="FILE", default=config, help=f"default: {config}")
    p.add_argument("--once", action="store_true", help="print the donors announced now, and exit")
    p = add(sub, "announce", cmd_announce, "announce a donor in etcd while it lends")
    p.add_argument("--config", metavar="FILE", default=config, help=f"default: {config}")
    p = add(
        sub, "exporter", cmd_exporter, "serve metrics of this host's VMs and donors to Prometheus"
    )
    p.add_argument(
        "--listen",
        metavar="ADDR:PORT",
        default="127.0.0.1:9751",
        help="default: 127.0.0.1:9751; it asks for no token, so keep it on loopback",
    )
    p.add_argument(
        "--name",
        metavar="NAME",
        action="append",
        help="a host name in URLs of this server, beside its address; may be repeated",
    )
    p.add_argument("--once", action="store_true", help="print the metrics once, and exit")

    p = add(sub, "keygen", cmd_keygen, "make a key file, mode 0600, with one random key")
    p.add_argument("file", metavar="FILE")
    p.add_argument("tenant", metavar="TENANT")
    p.add_argument("--append", action="store_true", help="add the key to FILE if FILE exists")
    p.add_argument(
        "--bytes",
        type=int,
        default=keyfile.KEY_DEFAULT,
        metavar="N",
        help="length of the key, 16 to 64 (default 32)",
    )
    parser.set_defaults(command=None, parser=parser)
    return parser


def _parse(argv: list[str]) -> Args:
    """Parse the arguments; those after `--` are the program's, and argparse does not see them.

    Versions of argparse differ in what they do with `--` before REMAINDER.
    """
    program: list[str] = []
    if argv[:1] == ["run"] and "--" in argv:
        at = argv.index("--")
        argv, program = argv[:at], argv[at + 1 :]
    args = build_parser().parse_args(argv)
    if program:
        if args.program:
            raise UsageError(
                f"'{printable(args.program[0])}' stands before --: put options before --, the "
                "program after it"
            )
        args.program = program
    return args


def main(argv: Sequence[str] | None = None) -> int:
    try:
        args = _parse(list(sys.argv[1:] if argv is None else argv))
        if args.command is None:
            args.parser.print_help(sys.stderr)
            return 2
        status: int = args.command(args)
        sys.stdout.flush()
        return status
    except DcmError as exc:
        print(f"dcmctl: {exc}", file=sys.stderr)
        return exc.status
    except BrokenPipeError:
        # The reader of standard output has gone: no message, and nothing to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except KeyboardInterrupt:
        return 130
