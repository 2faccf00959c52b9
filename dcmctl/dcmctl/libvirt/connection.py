# SPDX-License-Identifier: GPL-2.0-or-later
"""A connection to libvirt, through libvirt's Python module, which is imported on first use."""

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
    """Turn errors of libvirt into DcmErrors of one line."""
    libvirt = _libvirt()
    # Without a handler, libvirt prints its errors itself.
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
        # Domains of libvirt's test driver have the type "test".
        self.kinds = ("test",) if kind == "test" else domain.QEMU

    @property
    def pager(self) -> str:
        """The pager for domains of this connection: a user's own session has only libdcm."""
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
        """The domain's XML for the next start. It has secrets: define() without would lose them."""
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
        """Define a domain as `wanted`; if libvirt stores anything else, define `before` again."""
        with said_by_libvirt():
            dom = self.conn.defineXML(wanted.decode())
        after = self.xml(dom)
        if _without(after) == _without(before) and memory_in(after) == memory_in(wanted):
            return
        with said_by_libvirt():
            self.conn.defineXML(before.decode())
        raise DcmError(
            f"domain {dom.name()}: libvirt changed more in its XML than dcmctl asked for, so the "
            "domain was put back as it was: please report this"
        )


def memory_in(data: bytes) -> Memory | None:
    return domain.find_memory(domain.read_domain(data))


def _without(data: bytes) -> bytes:
    return data if memory_in(data) is None else domain.disable(data)
