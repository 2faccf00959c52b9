# SPDX-License-Identifier: GPL-2.0-or-later
"""DcmError, the exception whose text dcmctl prints as its only error line."""

from __future__ import annotations


def printable(text: str, limit: int = 200) -> str:
    """Make text from outside safe for a terminal: one line, no control characters."""
    clean = "".join(c if c.isprintable() else "?" for c in text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


class DcmError(Exception):
    """An error that the user can act on; its text is one printable line."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(printable(message, 1000))
        self.status = status


class UsageError(DcmError):
    """The command line or a configuration is wrong: exit status 2."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 2)


def reason(exc: BaseException) -> str:
    """The text of an OSError without errno and path."""
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return str(exc) or type(exc).__name__
