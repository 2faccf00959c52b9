# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl run`: make a plan from its options and the configuration; run.py carries it out.

An option takes precedence over the same setting in the configuration.
"""

from __future__ import annotations

import argparse
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from dcmctl.lib import keyfile
from dcmctl.lib.address import check_name, parse_donors
from dcmctl.lib.errors import UsageError, printable
from dcmctl.lib.output import print_json
from dcmctl.pager import preflight, run, settings
from dcmctl.pager.settings import Settings

Args = argparse.Namespace


def _given(args: Args) -> Settings:
    """The settings from the command line; those that it lacks are None."""
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
        redundancy=args.redundancy,
        data_encryption=False if args.no_encrypt_data else None,
        seal=True if args.seal else None,
        transport=args.transport,
        patience=None
        if args.patience is None
        else settings.duration(args.patience, "--patience"),
        tenant=None if args.tenant is None else keyfile.check_tenant(args.tenant),
        keys=None if args.keys is None else settings.key_path(args.keys),
        donors=tuple(parse_donors(args.donor or [])),
        tunables=tunables,
    )


def _config(path: str | None) -> Settings:
    """The settings in --config FILE, or without that option, in host.conf if it can be read."""
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
    report = args.free_page_reporting == "yes"
    made = run.plan(host.merged(_given(args)), argv, args.malloc, report)
    if args.dry_run:
        if args.json:
            print_json(
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
            command = shlex.join([str(made.program), *made.argv[1:]])
            print(f"exec {command}\n\n# {made.conf}\n{made.settings.to_ini()}", end="")
        return 0
    if not args.no_check:
        run.check_machine(made)
    return run.execute(made, args.verbose)


def add_parser(sub: Any, common: argparse.ArgumentParser) -> None:
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
    p.add_argument(
        "--redundancy",
        choices=settings.REDUNDANCY,
        help="on how many donors each page is that is not in this host: replica:2 survives the "
        "death of one donor, replica:3 of two; disk is one donor of memory and one of files, and "
        "survives the death of all donors of memory; none (the default) survives none",
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
        "--seal",
        action="store_true",
        help="encrypt each page on this host before it leaves, so that donors need not be trusted: "
        "they can't read pages, and what they change is noticed",
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
        choices=("auto", *preflight.ALLOCATORS, "own"),
        default="auto",
        help="for --mode program: preload this allocator so that malloc'ed memory is paged "
        "(auto, the default: the first of these that is installed), or keep the program's own",
    )
    p.add_argument(
        "--free-page-reporting",
        choices=("yes", "no"),
        default="yes",
        help="for QEMU: whether the guest reports memory that it has freed, so that this memory "
        "goes to no donor (default yes); a balloon is added if there is none",
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
