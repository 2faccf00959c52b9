# SPDX-License-Identifier: GPL-2.0-or-later
"""A connection to libvirt, by its Python module, which is imported only when it is needed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from dcmctl.lib.errors import DcmError, printable
from dcmctl.libvirt import domain
from dcmctl.libvirt.domain import Memory


def _libvirt() -> Any:
    try:
        import libvirt
    except ImportError:
        raise DcmError("libvirt's Python module is missing: apt install python3-libvirt") from None
    return libvirt


@contextlib.contextmanager
def said_by_libvirt() -> Iterator[Any]:
    """Its errors as ours, in one line."""
    libvirt = _libvirt()
    # It would print them.
    libvirt.registerErrorHandler(lambda *_: None, None)
    try:
        yield libvirt
    except libvirt.libvirtError as exc:
        text = " ".join((exc.get_error_message() or str(exc)).split())
        raise DcmError(f"libvirt: {printable(text, 900)}") from None


class Host:
    """A connection to libvirt."""

    def __init__(self, uri: str | None) -> None:
        self.uri = uri or os.environ.get("LIBVIRT_DEFAULT_URI") or "qemu:///system"
        with said_by_libvirt() as libvirt:
            self.libvirt = libvirt
            self.conn = libvirt.open(self.uri)
            kind = self.conn.getType().lower()
        # libvirt's own driver for tests has domains of its own type.
        self.kinds = ("test",) if kind == "test" else domain.QEMU

    @property
    def pager(self) -> str:
        """What a user's own VMs can have is libdcm's."""
        return "user" if self.uri.startswith("qemu:///session") else "kernel"

    def find(self, name: str) -> Any:
        with said_by_libvirt():
            try:
                return self.conn.lookupByName(name)
            except self.libvirt.libvirtError:
                if domain.UUID.fullmatch(name):
                    return self.conn.lookupByUUIDString(name)
                raise

    def all(self) -> list[Any]:
        with said_by_libvirt():
            return sorted(self.conn.listAllDomains(), key=lambda d: d.name())

    def xml(self, dom: Any) -> bytes:
        """As it will be started; with secrets, which would else be lost."""
        flags = self.libvirt.VIR_DOMAIN_XML_INACTIVE | self.libvirt.VIR_DOMAIN_XML_SECURE
        with said_by_libvirt():
            text: str = dom.XMLDesc(flags)
        return text.encode()

    def memory(self, dom: Any) -> Memory | None:
        with said_by_libvirt():
            flags = self.libvirt.VIR_DOMAIN_XML_INACTIVE
            text: str = dom.XMLDesc(flags)
        return domain.find_memory(domain.read_domain(text.encode()))

    def define(self, before: bytes, wanted: bytes) -> None:
        """Define it; as it was, if something came of it that was not wanted."""
        with said_by_libvirt():
            dom = self.conn.defineXML(wanted.decode())
        after = self.xml(dom)
        if _without(after) == _without(before) and memory_in(after) == memory_in(wanted):
            return
        with said_by_libvirt():
            self.conn.defineXML(before.decode())
        raise DcmError(
            f"{dom.name()}: libvirt made something else of it than was asked for; "
            "it is as it was: please report this"
        )


def memory_in(data: bytes) -> Memory | None:
    return domain.find_memory(domain.read_domain(data))


def _without(data: bytes) -> bytes:
    return data if memory_in(data) is None else domain.disable(data)
