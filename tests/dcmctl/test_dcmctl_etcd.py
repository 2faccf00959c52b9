# SPDX-License-Identifier: GPL-2.0-or-later
"""An etcd with any answers: dcmctl gets valid values, or one error."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from dcmctl.cluster import discover
from dcmctl.cluster.etcd import ANSWER_MAX, Access, Etcd, EtcdError, encode
from dcmctl.lib.errors import DcmError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PREFIX = "/kvm-dcm/donors/"


class Liar(ThreadingHTTPServer):
    """Answers every request with a given text."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.answer = 200, b"{}"

    def etcd(self) -> Etcd:
        return Etcd(Access((f"http://127.0.0.1:{self.server_address[1]}",)))


class _Handler(BaseHTTPRequestHandler):
    server: Liar

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def liar() -> Iterator[Liar]:
    with Liar() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


_texts = st.text(max_size=12) | st.sampled_from(["5", "-5", "--5", "\u00b2", "\u0665", "9" * 30])
_scalars = st.none() | st.booleans() | st.integers() | st.floats() | _texts
_anything = st.recursive(
    _scalars,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(_texts, inside, max_size=3),
    max_leaves=6,
)
# Keys in etcd's form, with right and wrong values.
_donors = st.fixed_dictionaries(
    {"address": st.sampled_from(["tcp:h:1", "tcp:h:0", "unix:/x", "tcp:[::1]:9", ""]) | _anything},
    optional={"status": st.just("h:1") | _anything, "group": st.just("g") | _anything},
).map(json.dumps)
_keys = st.fixed_dictionaries(
    {
        "key": (st.just(PREFIX) | _texts).flatmap(
            lambda before: st.sampled_from(["a", "b", "a b", ""]).map(lambda n: before + n)
        ).map(lambda text: encode(text.encode("utf-8", "replace").decode()))
        | _anything
    },
    optional={"value": _donors.map(encode) | _anything},
)  # fmt: skip
_answers = st.fixed_dictionaries(
    {},
    optional={
        "kvs": st.lists(_keys | _anything, max_size=4) | _anything,
        "more": _anything,
        "ID": _texts | _anything,
        "result": st.fixed_dictionaries({"TTL": _texts | _anything}) | _anything,
        "succeeded": _anything,
        "message": _anything,
        "token": _anything,
    },
)


def _ask(etcd: Etcd, what: Callable[[Etcd], object]) -> object:
    try:
        return what(etcd)
    except DcmError as exc:
        assert "\n" not in str(exc) and len(str(exc)) < 1000
        return None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(answer=_answers | _anything, status=st.sampled_from([200, 200, 200, 400, 401, 500]))
def test_any_answer_is_a_value_or_one_error(liar: Liar, answer: object, status: int) -> None:
    liar.answer, liar.status = json.dumps(answer).encode(), status
    etcd = liar.etcd()
    found = _ask(etcd, discover.read)
    if isinstance(found, tuple):
        donors, wrong = found
        assert all(donor.address.kind == "tcp" for donor in donors)
        assert len({donor.name for donor in donors}) == len(donors)
        assert all("\n" not in line for line in wrong)
    lease = _ask(etcd, lambda e: e.lease(5))
    assert lease is None or (isinstance(lease, int) and lease != 0)
    assert _ask(etcd, lambda e: e.keep(1)) in (None, True, False)
    assert isinstance(_ask(etcd, lambda e: e.claim("a", "{}", 1)), str | None)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b'{"message":' + b"[" * 900 + b"]" * 900 + b"}", 500),
        (b"[" * 100_000, 200),
        (b'{"ID":' + b"9" * 100_000 + b"}", 200),
        (b'{"ID":"' + "\u00b2".encode() + b'"}', 200),
        (b'{"ID":"--1"}', 200),
        (b'{"kvs":[' + b"{}," * 300 + b"{}]}", 200),
        (b'{"message":"' + b"a" * ANSWER_MAX + b'"}', 500),
        (b"\xff\xfe", 200),
        (b"", 200),
    ],
)
def test_hostile_answers(liar: Liar, answer: bytes, status: int) -> None:
    """Answers that are nested, huge, without numbers, or no JSON: an error of one line."""
    liar.answer, liar.status = answer, status
    with pytest.raises(EtcdError) as caught:
        liar.etcd().lease(5) if b"kvs" not in answer else discover.read(liar.etcd())
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000
