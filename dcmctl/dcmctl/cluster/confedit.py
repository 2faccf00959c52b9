# SPDX-License-Identifier: GPL-2.0-or-later
"""Add, change and remove donors in a configuration that an operator also edits by hand.

Comments and other sections stay as they are. The new text is checked before it replaces the file,
and rename() replaces the file as a whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from dcmctl.lib.address import Donor
from dcmctl.lib.errors import DcmError, reason
from dcmctl.pager.settings import donor_of

_SECTION = re.compile(r"\[(?P<name>[^]]+)\]\s*(\s;.*)?")


def _donor_of(line: str) -> str | None:
    """The name of the donor whose section begins with this line.

    "" if another section begins with it, None if the line begins no section.
    """
    section = _SECTION.fullmatch(line.rstrip())
    return None if section is None else donor_of(section["name"]) or ""


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith((";", "#"))


def _key(line: str) -> str:
    return "" if _is_comment(line) else line.partition("=")[0].strip()


def added(text: str, donor: Donor) -> str:
    """The text with a section for the donor at its end."""
    lines = [f"[donor {donor.name}]", f"address = {donor.address}"]
    if donor.status is not None:
        lines.append(f"status = {donor.status}")
    if donor.group is not None:
        lines.append(f"group = {donor.group}")
    if donor.drain:
        lines.append("drain = yes")
    gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    return text + gap + "\n".join(lines) + "\n"


def removed(text: str, name: str) -> str:
    """The text without the donor's section; comments in that section are kept."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        opens = _donor_of(line)
        if opens is not None:
            inside = opens == name
            if inside:
                # remove a blank line, or there would be two
                if kept and not kept[-1].strip():
                    kept.pop()
                continue
        if not inside or _is_comment(line) or not line.strip():
            kept.append(line)
    return "".join(kept)


def drained(text: str, name: str, drain: bool) -> str:
    """The text with `drain = yes` after the donor's address, or without it."""
    made: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        opens = _donor_of(line)
        if opens is not None:
            inside = opens == name
        if inside and _key(line) == "drain":
            continue
        made.append(line)
        if inside and drain and _key(line) == "address":
            if not line.endswith("\n"):
                made.append("\n")
            made.append("drain = yes\n")
    return "".join(made)


@contextlib.contextmanager
def locked(paths: list[Path]) -> Iterator[None]:
    """Lock the files' folders: without a lock, one of two concurrent changes would be lost."""
    with contextlib.ExitStack() as stack:
        for folder in sorted({path.resolve().parent for path in paths}):
            try:
                fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                stack.callback(os.close, fd)
                fcntl.flock(fd, fcntl.LOCK_EX)
            except OSError as exc:
                raise DcmError(f"{folder}: {reason(exc)}") from None
        yield


def _new_file(path: Path, text: str) -> Path:
    """Write the new text to a file beside it, with the same mode and owner, and sync it."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    info = path.stat()
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fchmod(fd, info.st_mode & 0o7777)
        if (info.st_uid, info.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(fd, info.st_uid, info.st_gid)
        os.fsync(fd)
    return new


def replace(changes: dict[Path, str], check: Callable[[Path, Path], None]) -> None:
    """Write all new files and call `check(new, path)` for each, before any file is replaced."""
    made: dict[Path, Path] = {}
    try:
        for given, text in changes.items():
            path = given.resolve()
            made[path] = _new_file(path, text)
            check(made[path], given)
        for path, new in made.items():
            new.replace(path)
    except OSError as exc:
        raise DcmError(f"{exc.filename or 'configuration'}: {reason(exc)}") from None
    finally:
        for new in made.values():
            new.unlink(missing_ok=True)
