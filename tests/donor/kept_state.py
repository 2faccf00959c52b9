# SPDX-License-Identifier: GPL-2.0-or-later
"""The state that a donor keeps over a restart (donor-daemon/keep.c), read and damaged here."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Callable

from tests.framework.fdstore import Store

PAGE = 4096
STATE = "dcm-state"
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2
# struct head, struct session_record, struct slab_record of donor-daemon/keep.c
HEAD, SESSION, SLAB_RECORD = 64, 112, 48
NR_SESSIONS_AT, NR_SLABS_AT, SERIAL_AT = 40, 44, 56


def fnv(kind: int, data: bytes) -> int:
    h = 0xCBF29CE484222325 ^ kind
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return h | 1


class State:
    """The state of a donor that does not run, for what nobody should find in it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.fd = store.fd(STATE)
        size = os.fstat(self.fd).st_size
        self.map = mmap.mmap(self.fd, size)
        self.nr_sessions, self.nr_slabs = struct.unpack_from("<II", self.map, NR_SESSIONS_AT)
        assert size == HEAD + self.nr_sessions * SESSION + self.nr_slabs * SLAB_RECORD

    def session(self, n: int = 0) -> int:
        return self._used(HEAD, SESSION, self.nr_sessions)[n]

    def slab(self, n: int = 0) -> int:
        return self._used(HEAD + self.nr_sessions * SESSION, SLAB_RECORD, self.nr_slabs)[n]

    def free_slab(self) -> int:
        begin = HEAD + self.nr_sessions * SESSION
        return next(at for at in range(begin, len(self.map), SLAB_RECORD) if not self.u64(at))

    def free_session(self) -> int:
        return next(at for at in range(HEAD, HEAD + self.nr_sessions * SESSION, SESSION)
                    if not self.u64(at))

    def _used(self, begin: int, size: int, nr: int) -> list[int]:
        return [at for at in range(begin, begin + size * nr, size) if self.u64(at)]

    def u64(self, at: int) -> int:
        return int(struct.unpack_from("<Q", self.map, at)[0])

    def put(self, at: int, fmt: str, value: int) -> None:
        struct.pack_into(fmt, self.map, at, value)

    def sign_slab(self, at: int) -> None:
        self.put(at, "<Q", fnv(3, self.map[at + 8:at + SLAB_RECORD]))

    def sign_session(self, at: int) -> None:
        self.put(at, "<Q", fnv(2, self.map[at + 16:at + SESSION]))

    def sign_head(self) -> None:
        self.put(48, "<Q", fnv(1, self.map[:48]))

    def replace(self, fd: int) -> None:
        self.store.drop(STATE)
        self.store.put(STATE, fd)


def memfd(size: int) -> int:
    fd = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.truncate(fd, size)
    return fd


def copied(state: State, change: Callable[[bytearray], bytes], sealed: bool = True) -> None:
    data = change(bytearray(state.map[:]))
    fd = memfd(len(data))
    os.pwrite(fd, data, 0)
    if sealed:
        fcntl.fcntl(fd, F_ADD_SEALS, 7)
    state.replace(fd)


def flipped(state: State, at: int) -> None:
    state.put(at, "B", state.map[at] ^ 0x10)


def resigned(state: State, at: int, fmt: str, value: int) -> None:
    """A slab's record that a donor could have written, but for one field."""
    slab = state.slab()
    state.put(slab + at, fmt, value)
    state.sign_slab(slab)


def twice(state: State) -> None:
    at, to = state.slab(), state.free_slab()
    state.map[to:to + SLAB_RECORD] = state.map[at:at + SLAB_RECORD]


def session_twice(state: State) -> None:
    at, to = state.session(), state.free_session()
    state.map[to:to + SESSION] = state.map[at:at + SESSION]


def no_session_id(state: State) -> None:
    at = state.session()
    state.put(at + 16, "<Q", 0)
    state.sign_session(at)


def long_tenant(state: State) -> None:
    at = state.session()
    state.map[at + 40:at + SESSION] = b"a" * (SESSION - 40)
    state.sign_session(at)


def many(state: State) -> None:
    """As many records as no memfd has."""
    state.put(NR_SLABS_AT, "<I", 0xFFFFFFFF)
    state.sign_head()


def version(state: State) -> None:
    state.put(8, "<I", 2)
    state.sign_head()


DAMAGES: dict[str, Callable[[State], None]] = {
    "head": lambda s: flipped(s, 20),
    "magic": lambda s: flipped(s, 0),
    "version": version,
    "many": many,
    "serial-low": lambda s: s.put(SERIAL_AT, "<Q", 0),
    "serial-high": lambda s: s.put(SERIAL_AT, "<Q", 1 << 63),
    "session": lambda s: flipped(s, s.session() + 30),
    "session-id": no_session_id,
    "session-twice": session_twice,
    "tenant": long_tenant,
    "slab": lambda s: flipped(s, s.slab() + 12),
    "mark": lambda s: s.put(s.free_slab(), "<Q", 1),
    "transport": lambda s: resigned(s, 40, "<I", 64),
    "slab-zero": lambda s: resigned(s, 8, "<Q", 0),
    "slab-twice": twice,
    "short": lambda s: copied(s, lambda b: bytes(b[:-1])),
    "long": lambda s: copied(s, lambda b: bytes(b) + bytes(PAGE)),
    "tiny": lambda s: copied(s, lambda b: bytes(b[:8])),
    "empty": lambda s: s.replace(memfd(0)),
    "unsealed": lambda s: copied(s, bytes, sealed=False),
    "zeroes": lambda s: copied(s, lambda b: bytes(len(b))),
    "directory": lambda s: s.replace(os.open("/", os.O_RDONLY)),
    "pipe": lambda s: s.replace(os.pipe()[0]),
}
