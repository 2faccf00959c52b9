# SPDX-License-Identifier: GPL-2.0-or-later
"""Fuzz the reader of etcd's answers, which list the donors of a cluster.

An input is the text of an answer, or choices from which one is made: keys and values are in etcd's
base64, so that the readers see many donors and not only errors of JSON. The HTTP below is the
standard library's and is left out; every byte after it is read by dcmctl. Each request returns a
valid value or raises DcmError.
"""

from __future__ import annotations

import http.client
import io
import json
import sys
from collections.abc import Callable
from typing import Any

import atheris

with atheris.instrument_imports(include=["dcmctl"]):
    from dcmctl.cluster import confedit, discover
    from dcmctl.cluster.etcd import PREFIX, Access, Etcd, encode
    from dcmctl.lib.errors import DcmError
    from dcmctl.pager.settings import DONORS_MAX

KEYS_MAX = 6
STATUS = [200, 200, 200, 400, 401, 500]
NAMES = ["a", "b", "near.2", "", "a b", "../x", "@g", "\n", "\u00b2", "x" * 64, "DEFAULT"]
ADDRESSES = [
    "tcp:h:1", "tcp:h:2", "tcp:h:0", "tcp:h:65536", "tcp:[::1]:9", "tcp:[::1", "unix:/x", "tcp:",
    "tcp:h:\u0661", "tcp:h h:1", "tcp:%:1", "rdma:h:1", "tcp:h:1,x=y", "tcp:" + "h" * 300 + ":1",
]  # fmt: skip
SCALARS: list[Any] = [
    None, True, False, 0, 1, -1, 5, 1 << 63, 1.5, "", "5", "-5", "--5", "\u0665", "9" * 19,
    "9" * 30, "h:1", "h:0", "g", "g\n", "\x1b[31m", [], {}, [[]], {"a": 1},
]  # fmt: skip
FIELDS = ["more", "ID", "result", "succeeded", "message", "error", "token", "kvs"]
BROKEN = ["!", "====", "/w==", "\u00e9", " YQ=="]


class Answer(io.BytesIO):
    """A response as dcmctl uses one."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(body)
        self.status = status


class Fake(Etcd):
    """An etcd of which each answer is the input's."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(Access(("http://127.0.0.1:1",)))
        self.answer = (status, body)

    def _post(self, connection: Any, path: str, body: dict[str, Any]) -> Any:
        assert isinstance(connection, http.client.HTTPConnection) and json.dumps(body)
        return Answer(*self.answer)


def scalar(fdp: atheris.FuzzedDataProvider) -> Any:
    return fdp.PickValueInList(SCALARS)


def field(fdp: atheris.FuzzedDataProvider, right: list[Any]) -> Any:
    """A value of the right kind in most inputs."""
    return fdp.PickValueInList(right) if fdp.ConsumeIntInRange(0, 7) else scalar(fdp)


def base64_of(fdp: atheris.FuzzedDataProvider, text: str) -> Any:
    """Text as etcd sends it, or something that is not that."""
    wrong = fdp.ConsumeIntInRange(0, 15)
    if wrong == 0:
        return scalar(fdp)
    return fdp.PickValueInList(BROKEN) if wrong == 1 else encode(text)


def donor(fdp: atheris.FuzzedDataProvider) -> str:
    """The value of a donor's key."""
    if not fdp.ConsumeIntInRange(0, 15):
        return fdp.ConsumeUnicodeNoSurrogates(40)
    value = {"address": field(fdp, ADDRESSES)}
    if fdp.ConsumeBool():
        value["status"] = field(fdp, ["h:1", "[::1]:9", "h:\n1"])
    if fdp.ConsumeBool():
        value["group"] = field(fdp, NAMES)
    return json.dumps(value)


def body_of(fdp: atheris.FuzzedDataProvider) -> bytes:
    """An answer, made of the choices that are left."""
    answer: dict[str, Any] = {}
    kvs: list[Any] = []
    for _ in range(fdp.ConsumeIntInRange(0, KEYS_MAX)):
        if not fdp.ConsumeIntInRange(0, 15):
            kvs.append(scalar(fdp))
            continue
        before = PREFIX if fdp.ConsumeIntInRange(0, 7) else fdp.ConsumeUnicodeNoSurrogates(8)
        kv = {"key": base64_of(fdp, before + fdp.PickValueInList(NAMES))}
        if fdp.ConsumeIntInRange(0, 7):
            kv["value"] = base64_of(fdp, donor(fdp))
        kvs.append(kv)
    if kvs:
        answer["kvs"] = kvs
    for _ in range(fdp.ConsumeIntInRange(0, 3)):
        inside = {"TTL": scalar(fdp)} if fdp.ConsumeBool() else scalar(fdp)
        answer[fdp.PickValueInList(FIELDS)] = inside
    return json.dumps(answer).encode()


def ask(request: Callable[[], object]) -> object:
    """The result of a request; None for an error, which must be one line."""
    try:
        return request()
    except DcmError as exc:
        said = str(exc)
        assert said and said.isprintable() and len(said) <= 1000, said
        return None


def test_one(data: bytes) -> None:
    how = data[0] if data else 0
    status = STATUS[how // 2 % len(STATUS)]
    body = body_of(atheris.FuzzedDataProvider(data[1:])) if how % 2 else data[1:]
    etcd = Fake(status, body)
    found = ask(lambda: discover.read(etcd))
    if isinstance(found, tuple):
        donors, wrong = found
        assert len(donors) <= DONORS_MAX and all(line.isprintable() for line in wrong)
        assert len({d.name for d in donors}) == len(donors)
        assert len({d.address for d in donors}) == len(donors)
        text = ""
        for made in donors:
            assert made.address.kind == "tcp"
            text = confedit.added(text, made)
        assert all(f"[donor {d.name}]" in text for d in donors)
    lease = ask(lambda: etcd.lease(5))
    assert lease is None or (isinstance(lease, int) and lease != 0)
    assert ask(lambda: etcd.keep(1)) in (None, True, False)
    assert isinstance(ask(lambda: etcd.claim("a", "{}", 1)), str | None)
    assert all(event is None for event in etcd.watch(1.0))


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one)
    atheris.Fuzz()
