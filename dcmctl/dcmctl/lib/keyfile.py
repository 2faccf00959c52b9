# SPDX-License-Identifier: GPL-2.0-or-later
"""Key files: lines `tenant:hexkey`, as GnuTLS's psktool writes them.

A tenant's line is in a key file on the host and in one on each donor it uses. dcm-donord reads the
donor's with kvm-dcm/lib/keyfile.c, by the same rules. A file that other users may read is refused:
a key gives access to all memory of its tenant.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from dcmctl.lib.errors import DcmError, UsageError, reason, printable

KEY_MIN = 16  # bytes; DCM_WIRE_KEY_MIN, _MAX
KEY_MAX = 64
KEY_DEFAULT = 32
TENANTS_MAX = 1024
FILE_MAX = 256 << 10
TENANT_RULE = "a tenant's name has 1 to 64 letters, digits, . _ -"
_TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_HEX = frozenset("0123456789abcdefABCDEF")


def check_tenant(tenant: str) -> str:
    """Refuse a TLS identity that dcm_tenant_valid() of kvm-dcm/lib/keyfile.c refuses."""
    if not _TENANT.fullmatch(tenant):
        raise UsageError(f"tenant '{printable(tenant)}' is not a name: {TENANT_RULE}")
    return tenant


def read_private(path: Path) -> str:
    """Read a key file; refuse it if anyone but its owner may read it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as exc:
        raise DcmError(f"key file {path}: {reason(exc)}") from None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise DcmError(f"key file {path} is not a regular file")
        if info.st_mode & 0o077:
            raise DcmError(
                f"other users may read key file {path} (mode {info.st_mode & 0o777:04o}): "
                f"chmod 600 {path}"
            )
        data = os.read(fd, FILE_MAX + 1)
    except OSError as exc:
        raise DcmError(f"key file {path}: {reason(exc)}") from None
    finally:
        os.close(fd)
    if len(data) > FILE_MAX:
        raise DcmError(f"key file {path} is larger than {FILE_MAX >> 10} KiB")
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise DcmError(f"key file {path} is not plain text: lines of tenant:hexkey") from None


def tenants(path: Path) -> list[str]:
    """Names of all tenants in a key file. Every line is checked; no key is returned."""
    found: list[str] = []
    for number, raw in enumerate(read_private(path).split("\n"), 1):
        line = raw.rstrip(" \t\r")
        if not line or line.startswith("#"):
            continue
        tenant, sep, key = line.partition(":")
        where = f"key file {path}, line {number}"
        if not sep:
            raise DcmError(f"{where}: not tenant:hexkey")
        if not _TENANT.fullmatch(tenant):
            raise DcmError(f"{where}: {TENANT_RULE}")
        if not set(key) <= _HEX or len(key) % 2 or not KEY_MIN <= len(key) // 2 <= KEY_MAX:
            raise DcmError(f"{where}: the key must be {KEY_MIN} to {KEY_MAX} bytes in hexadecimal")
        if tenant in found:
            raise DcmError(f"{where}: tenant '{tenant}' has a line already")
        found.append(tenant)
        if len(found) > TENANTS_MAX:
            raise DcmError(f"{where}: more than {TENANTS_MAX} tenants")
    return found


def pick_tenant(path: Path, wanted: str | None) -> str:
    """The tenant to use: `wanted`, or the only one in the file."""
    found = tenants(path)
    if not found:
        raise DcmError(f"key file {path} holds no key: dcmctl keygen {path} TENANT")
    if wanted is None:
        if len(found) > 1:
            raise UsageError(
                f"key file {path} holds {len(found)} tenants: choose one with --tenant"
            )
        return found[0]
    if wanted not in found:
        raise DcmError(
            f"key file {path} holds no key of tenant '{wanted}': "
            f"dcmctl keygen {path} {wanted} --append"
        )
    return wanted


def generate(path: Path, tenant: str, size: int, append: bool) -> None:
    """Make a key file with one new key, or append a new key to an existing file."""
    check_tenant(tenant)
    if not KEY_MIN <= size <= KEY_MAX:
        raise UsageError(f"a key has {KEY_MIN} to {KEY_MAX} bytes, not {size}")
    line = f"{tenant}:{os.urandom(size).hex()}\n"
    if append and path.exists():
        if tenant in tenants(path):
            raise DcmError(f"key file {path} holds a key of tenant '{tenant}' already")
        if not read_private(path).endswith("\n") and path.stat().st_size:
            line = "\n" + line
        flags = os.O_WRONLY | os.O_APPEND
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise DcmError(
            f"{path} exists: add a tenant to it with --append, or remove it first"
        ) from None
    except OSError as exc:
        raise DcmError(f"cannot write key file {path}: {reason(exc)}") from None
