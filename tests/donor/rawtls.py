# SPDX-License-Identifier: GPL-2.0-or-later
"""A raw client for the donor: GnuTLS by ctypes, and the wire format again.

Python's ssl has no TLS 1.3 pre-shared keys before 3.13, and tests want to
send what no well-behaved client would: so the library is called directly and
messages are packed here, independently of wire.c.
"""

from __future__ import annotations

import array
import ctypes
import ctypes.util
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

PRIORITY = (
    b"NONE:+VERS-TLS1.3:+AES-128-GCM:+CHACHA20-POLY1305:+AEAD:"
    b"+ECDHE-PSK:+DHE-PSK:+GROUP-X25519:+GROUP-SECP256R1:+SIGN-ALL"
)

MAGIC = 0x4D43
HELLO, WELCOME, ERROR, HEARTBEAT, GOODBYE = 1, 2, 3, 4, 5
QUERY_MEM, FREE_MEM, MAP, MR_INFO, UNMAP = 16, 17, 18, 19, 20
ASK_TICKET, TICKET, LIST, SLAB_IS, ABOUT = 21, 22, 23, 24, 25
CHECK_ACTIVITY, ACTIVITY, EVICT, DONE = 32, 33, 34, 35
READ, DATA, WRITE, WRITTEN = 48, 49, 50, 51
CONTROL_ROLE, DATA_ROLE = 1, 2
TCP, SHM, VERBS = 1, 2, 4
PLAIN = 1
HELLO_VERBS = WELCOME_VERBS = 2
HELLO_LIST = WELCOME_LIST = 4
HELLO_ABOUT = WELCOME_ABOUT = 8
MORE = 1
(OK, VERSION, PROTOCOL, NO_SESSION, QUOTA, NO_MEMORY, NO_SLAB, RANGE,
 TRANSPORT, BUSY, DRAINING, SIZE) = range(12)

_lib = ctypes.CDLL(ctypes.util.find_library("gnutls") or "libgnutls.so.30", use_errno=True)
_P = ctypes.c_void_p
_PULL = ctypes.CFUNCTYPE(ctypes.c_ssize_t, _P, _P, ctypes.c_size_t)


class _Datum(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_uint)]


_lib.gnutls_init.argtypes = [ctypes.POINTER(_P), ctypes.c_uint]
_lib.gnutls_record_send.argtypes = [_P, ctypes.c_char_p, ctypes.c_size_t]
_lib.gnutls_record_send.restype = ctypes.c_ssize_t
_lib.gnutls_record_recv.argtypes = [_P, ctypes.c_char_p, ctypes.c_size_t]
_lib.gnutls_record_recv.restype = ctypes.c_ssize_t
_lib.gnutls_strerror.restype = ctypes.c_char_p
_lib.gnutls_transport_set_int2.argtypes = [_P, ctypes.c_int, ctypes.c_int]
_lib.gnutls_transport_set_errno.argtypes = [_P, ctypes.c_int]
_lib.gnutls_handshake.argtypes = [_P]
_lib.gnutls_deinit.argtypes = [_P]
_lib.gnutls_bye.argtypes = [_P, ctypes.c_int]
_lib.gnutls_handshake_set_timeout.argtypes = [_P, ctypes.c_uint]
_lib.gnutls_transport_set_pull_function.argtypes = [_P, _PULL]
_lib.gnutls_credentials_set.argtypes = [_P, ctypes.c_int, _P]
_lib.gnutls_priority_set_direct.argtypes = [_P, ctypes.c_char_p, _P]
_lib.gnutls_psk_free_client_credentials.argtypes = [_P]
_lib.gnutls_psk_set_client_credentials.argtypes = [
    _P, ctypes.c_char_p, ctypes.POINTER(_Datum), ctypes.c_int]

_E_AGAIN, _E_INTERRUPTED = -28, -52


class TlsError(Exception):
    """The handshake or the stream failed."""


class Closed(Exception):
    """The donor closed the connection."""


# For an answer that must come: a busy host's threads may wait for seconds (docs/testing.md).
PATIENCE_S = 30.0


def dial(address: str, timeout: float = PATIENCE_S, source: str = "") -> socket.socket:
    """A blocking socket with receive and send timeouts, connected; from @source."""
    if address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX)
        target: object = address[5:]
    else:
        sock = socket.socket()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = address.removeprefix("tcp:").rsplit(":", 1)
        target = (host, int(port))
    tv = struct.pack("ll", int(timeout), int(timeout % 1 * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, tv)
    try:
        if source:
            sock.bind((source, 0))
        sock.connect(target)  # type: ignore[arg-type]
    except OSError:
        sock.close()
        raise
    return sock


@dataclass
class Message:
    type: int
    tag: int
    body: bytes

    def u32(self, at: int) -> int:
        return int(struct.unpack_from("<I", self.body, at)[0])

    def u64(self, at: int) -> int:
        return int(struct.unpack_from("<Q", self.body, at)[0])


def pack(type_: int, tag: int, body: bytes = b"", size: int | None = None) -> bytes:
    """A message; @size lies about its length."""
    return struct.pack("<HHIQ", MAGIC, type_, len(body) if size is None else size, tag) + body


def hello(role: int, session: int = 0, secret: bytes = bytes(16), flags: int = 0,
          versions: tuple[int, int] = (1, 1), lane: int = 0) -> bytes:
    return struct.pack("<HHBBHQ16s", *versions, role, flags, lane, session, secret)


class Tls:
    """One connection with the key shown.

    @on_bytes sees every received ciphertext. KEY_SHARE_TOP in @flags offers a
    share of the first group only.
    """

    KEY_SHARE_TOP = 1 << 11

    def __init__(self, sock: socket.socket, name: str, key: bytes,
                 priority: bytes = PRIORITY, flags: int = 0,
                 on_bytes: Callable[[bytes], None] = lambda _: None) -> None:
        self.sock = sock
        self.on_bytes = on_bytes
        self.fds: list[int] = []
        self.plain = False
        self.buffer = b""
        self.session = _P()
        self.cred = _P()
        hexkey = key.hex().encode()
        datum = _Datum(hexkey, len(hexkey))
        _lib.gnutls_init(ctypes.byref(self.session), 2 | flags)
        _lib.gnutls_psk_allocate_client_credentials(ctypes.byref(self.cred))
        _lib.gnutls_psk_set_client_credentials(self.cred, name.encode(), ctypes.byref(datum), 1)
        _lib.gnutls_credentials_set(self.session, 4, self.cred)
        if _lib.gnutls_priority_set_direct(self.session, priority, None):
            raise TlsError("bad priority")
        _lib.gnutls_transport_set_int2(self.session, sock.fileno(), sock.fileno())
        self._pull_ref = _PULL(self._pull)
        _lib.gnutls_transport_set_pull_function(self.session, self._pull_ref)
        _lib.gnutls_handshake_set_timeout(self.session, 0)
        while True:
            ret = _lib.gnutls_handshake(self.session)
            if ret == 0:
                return
            if ret != _E_INTERRUPTED:
                self.close()
                raise TlsError(_lib.gnutls_strerror(ret).decode())

    def _pull(self, _ptr: object, data: int, size: int) -> int:
        try:
            got, anc, _, _ = self.sock.recvmsg(size, socket.CMSG_SPACE(4 * 4))
        except OSError as e:
            _lib.gnutls_transport_set_errno(self.session, e.errno or 0)
            return -1
        for level, kind, payload in anc:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(payload[: len(payload) - len(payload) % 4])
                self.fds.extend(fds)
        self.on_bytes(got)
        ctypes.memmove(data, got, len(got))
        return len(got)

    def send(self, data: bytes) -> None:
        if self.plain:
            self.sock.sendall(data)
            return
        while data:
            n = _lib.gnutls_record_send(self.session, data, min(len(data), 16384))
            if n in (_E_AGAIN, _E_INTERRUPTED):
                continue
            if n < 0:
                raise Closed(_lib.gnutls_strerror(int(n)).decode())
            data = data[n:]

    def sealed(self, data: bytes) -> bytes:
        """The record of @data, which is not sent."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            _lib.gnutls_transport_set_int2(self.session, self.sock.fileno(), theirs.fileno())
            self.send(data)
            _lib.gnutls_transport_set_int2(self.session, self.sock.fileno(), self.sock.fileno())
            return ours.recv(1 << 15)

    def _more(self) -> None:
        if self.plain:
            try:
                got = self.sock.recv(65536)
            except BlockingIOError:
                raise TimeoutError("nothing came") from None
            except ConnectionError as e:
                raise Closed(str(e)) from None
        else:
            buf = ctypes.create_string_buffer(16384)
            n = _lib.gnutls_record_recv(self.session, buf, 16384)
            if n == _E_AGAIN:
                raise TimeoutError("nothing came")
            if n == _E_INTERRUPTED:
                return
            if n < 0:
                raise Closed(_lib.gnutls_strerror(int(n)).decode())
            got = buf.raw[:n]
        if not got:
            raise Closed("end of stream")
        self.buffer += got

    def recv(self, n: int) -> bytes:
        while len(self.buffer) < n:
            self._more()
        got, self.buffer = self.buffer[:n], self.buffer[n:]
        return got

    def message(self) -> Message:
        magic, type_, size, tag = struct.unpack("<HHIQ", self.recv(16))
        assert magic == MAGIC, f"magic {magic:#x}"
        assert size <= 65536 + 64, f"{size} bytes"
        return Message(type_, tag, self.recv(size))

    def wait_closed(self, seconds: float = PATIENCE_S) -> list[Message]:
        """The bytes that still come until the donor closes."""
        got: list[Message] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                got.append(self.message())
            except Closed:
                return got
        raise AssertionError("the donor did not close the connection")

    def close(self) -> None:
        if self.session:
            _lib.gnutls_deinit(self.session)
            self.session = _P()
        if self.cred:
            _lib.gnutls_psk_free_client_credentials(self.cred)
            self.cred = _P()
        self.sock.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []


@dataclass
class Slab:
    id: int
    bytes: int
    transport: int
    fd: int = -1


class Data:
    """A data connection of a session."""

    def __init__(self, tls: Tls) -> None:
        self.tls = tls
        self.tag = 0

    def read_bytes(self, slab: int, offset: int, n: int) -> bytes:
        self.tag += 1
        return pack(READ, self.tag, struct.pack("<QQII", slab, offset, n, 0))

    def write_bytes(self, slab: int, offset: int, data: bytes) -> bytes:
        self.tag += 1
        return pack(WRITE, self.tag, struct.pack("<QQII", slab, offset, len(data), 0) + data)

    def write_zeroes_bytes(self, slab: int, offset: int, n: int) -> bytes:
        self.tag += 1
        return pack(WRITE, self.tag, struct.pack("<QQII", slab, offset, n, 0))

    def answer(self, type_: int) -> tuple[int, bytes]:
        m = self.tls.message()
        assert m.type == type_, m
        return m.u32(0), m.body[8:]

    def read(self, slab: int, offset: int, n: int = 4096) -> bytes:
        self.tls.send(self.read_bytes(slab, offset, n))
        status, data = self.answer(DATA)
        assert status == OK, status
        assert len(data) == n
        return data

    def write(self, slab: int, offset: int, data: bytes) -> None:
        self.tls.send(self.write_bytes(slab, offset, data))
        status, _ = self.answer(WRITTEN)
        assert status == OK, status

    def close(self) -> None:
        self.tls.close()


class Expected(NamedTuple):
    """The answer to an operation."""

    tag: int
    kind: int
    size: int
    data: bytes = b""
    status: int = OK


def exchange(d: Data, stream: bytes, expected: Sequence[Expected]) -> None:
    """Send many operations; all answers come in their order, and are these."""
    sender = threading.Thread(target=d.tls.send, args=(stream,))
    if d.tls.plain:
        sender.start()  # a session of GnuTLS is for one thread at a time
    else:
        d.tls.send(stream)
    for e in expected:
        m = d.tls.message()
        assert (m.type, m.tag, m.u32(0), m.u32(4)) == (e.kind, e.tag, e.status, e.size)
        assert m.body[8:] == e.data
    if d.tls.plain:
        sender.join()


class Refused(Exception):
    """ERROR from the donor."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class Control:
    """A session's control connection; answers nothing by itself."""

    def __init__(self, address: str, name: str, key: bytes, session: int = 0,
                 secret: bytes = bytes(16), timeout: float = PATIENCE_S,
                 source: str = "") -> None:
        self.address, self.name, self.key = address, name, key
        self.tls = Tls(dial(address, timeout, source), name, key)
        self.tag = 100
        self.asked: list[Message] = []
        try:
            m = self.request(HELLO, hello(CONTROL_ROLE, session, secret), WELCOME)
        except BaseException:
            self.close()
            raise
        self.session = m.u64(8)
        self.secret = m.body[16:32] if not session else secret
        self.slab_bytes, self.donor_id = m.u64(32), m.u64(40)

    def send(self, type_: int, body: bytes = b"", tag: int | None = None) -> int:
        self.tag += 1
        self.tls.send(pack(type_, self.tag if tag is None else tag, body))
        return self.tag

    def wait(self, type_: int, tag: int | None = None,
             seconds: float = PATIENCE_S) -> Message:
        for m in self.asked:
            if m.type == type_ and tag in (None, m.tag):
                self.asked.remove(m)
                return m
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            m = self.tls.message()
            if m.type == type_ and tag in (None, m.tag):
                return m
            if m.type == ERROR and tag == m.tag:
                raise Refused(m.u32(0))
            if m.type != HEARTBEAT:
                self.asked.append(m)
        raise AssertionError(f"no message of type {type_}")

    def request(self, type_: int, body: bytes, answer: int) -> Message:
        return self.wait(answer, self.send(type_, body))

    def query(self) -> dict[str, int]:
        m = self.request(QUERY_MEM, b"", FREE_MEM)
        return dict(zip(("free", "total", "slab", "used"), struct.unpack_from("<4Q", m.body),
                        strict=True)) | {"flags": m.u32(32)}

    def map(self, transports: int = TCP, cookie: int = 7, slab_bytes: int | None = None) -> Slab:
        m = self.request(MAP, struct.pack("<QQII", slab_bytes or self.slab_bytes, cookie,
                                          transports, 0), MR_INFO)
        slab = Slab(m.u64(0), m.u64(8), m.u32(28))
        if slab.transport == SHM:
            slab.fd = self.tls.fds.pop(0)
        return slab

    def list(self, after: int = 0) -> list[tuple[int, int, int]]:
        """One answer to LIST: ids, cookies and flags, until the last or the 64th."""
        tag = self.send(LIST, struct.pack("<Q", after))
        got: list[tuple[int, int, int]] = []
        while True:
            m = self.wait(SLAB_IS, tag)
            slab, cookie, _, _, flags = struct.unpack("<QQQII", m.body)
            if slab:
                got.append((slab, cookie, flags))
            if not flags & MORE or len(got) == 64:
                return got

    def unmap(self, slab: Slab) -> None:
        m = self.request(UNMAP, struct.pack("<Q", slab.id), DONE)
        assert m.u64(0) == slab.id

    def beat(self) -> None:
        self.send(HEARTBEAT, tag=0)

    def data(self, flags: int = 0, address: str | None = None, lane: int = 0) -> Data:
        """A data connection; BUSY means that the donor still reads a closed one to its end."""
        for _ in range(100):
            tls = Tls(dial(address or self.address), self.name, self.key)
            try:
                tls.send(pack(HELLO, 1, hello(DATA_ROLE, self.session, self.secret, flags,
                                              lane=lane)))
                m = tls.message()
            except BaseException:
                tls.close()
                raise
            if m.type != ERROR:
                break
            tls.close()
            if m.u32(0) != BUSY:
                raise Refused(m.u32(0))
            time.sleep(0.05)
        assert m.type == WELCOME and m.tag == 1 and m.u64(8) == self.session
        assert m.body[16:32] == bytes(16), "the secret is told once only"
        tls.plain = bool(struct.unpack_from("<H", m.body, 2)[0] & PLAIN)
        return Data(tls)

    def goodbye(self) -> None:
        self.send(GOODBYE)
        self.tls.wait_closed()
        self.close()

    def close(self) -> None:
        self.tls.close()
