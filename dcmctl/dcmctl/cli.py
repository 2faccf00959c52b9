# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line: parse the arguments, call one command, print an error as one line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from dcmctl import running
from dcmctl.cluster import members
from dcmctl.lib import keyfile
from dcmctl.lib.errors import DcmError, UsageError, printable
from dcmctl.lib.installation import version
from dcmctl.lib.output import print_json
from dcmctl.libvirt import vm
from dcmctl.pager import run_command

Args = argparse.Namespace
Command = Callable[[Args], int]


class _Parser(argparse.ArgumentParser):
    """A parser that raises UsageError, so that its errors are one line like all others."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


# ---- donors and keys ----


def cmd_donor_status(args: Args) -> int:
    from dcmctl.cluster import donor  # loads an HTTP client, which takes longer than all else

    status = donor.fetch(args.addr)
    if args.json:
        print_json(status)
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


def cmd_dashboard(args: Args) -> int:
    from dcmctl.web import dashboard  # loads an HTTP server and TLS

    return dashboard.cmd_dashboard(args)


def cmd_keygen(args: Args) -> int:
    path = Path(args.file)
    keyfile.generate(path, args.tenant, args.bytes, args.append)
    if args.json:
        print_json({"file": str(path), "tenant": args.tenant, "bytes": args.bytes})
    else:
        print(
            f"{path}: a key of {args.bytes} bytes for tenant {args.tenant}; "
            "copy it to the donors' key file"
        )
    return 0


# ---- the parser ----


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
    run_command.add_parser(sub, common)

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

    running.add_parsers(sub, add)
    vm.add_parsers(sub, _Parser, add)
    _add_dashboard(sub, add)

    text = "show donors, and change which of them this host uses"
    donor = sub.add_parser("donor", help=text, description=text[0].upper() + text[1:] + ".")
    donor.set_defaults(command=None, parser=donor)
    donors = donor.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
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
    """Parse the arguments. Those after `--` of `run` are the program's; argparse doesn't get them,
    because its versions differ in how they treat `--` before REMAINDER.
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
        # The reader of standard output is gone: print no error, and let the flush at exit succeed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except KeyboardInterrupt:
        return 130
