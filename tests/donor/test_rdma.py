# SPDX-License-Identifier: GPL-2.0-or-later
"""Verbs where there is no RDMA device: everything says so, clearly, and works without it.

Queue pairs are tested where there is one: tests/vm.
"""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest

from tests.donor.conftest import Lab, MakeLab
from tests.donor.rawtls import (ASK_TICKET, CONTROL_ROLE, ERROR, GOODBYE, HELLO, HELLO_ABOUT,
                                HELLO_LIST, HELLO_VERBS, PROTOCOL, RANGE, TCP, TICKET, TRANSPORT,
                                VERBS, WELCOME, Control, Refused, hello, pack)

DEVICES = Path("/sys/class/infiniband")
pytestmark = pytest.mark.skipif(
    DEVICES.is_dir() and bool(os.listdir(DEVICES)), reason="this host has an RDMA device")


def end(lab: Lab, c: Control) -> None:
    """Its connection is lost; without a goodbye the donor would keep the session for seconds."""
    c.close()
    lab.control(session=c.session, secret=c.secret).goodbye()


def ask(lane: int) -> bytes:
    return struct.pack("<HHI", lane, 0, 0)


def test_no_tickets(lab: Lab) -> None:
    """ASK_TICKET is answered with TRANSPORT; the session goes on, over TCP or UNIX socket."""
    for unix in (False, True):
        c = lab.control(unix=unix)
        for lane in (1, 256, 65535):
            with pytest.raises(Refused) as e:
                c.request(ASK_TICKET, ask(lane), TICKET)
            assert e.value.status == TRANSPORT != RANGE
        c.query()
        c.goodbye()


def test_welcome_says_no(lab: Lab) -> None:
    """A host that offers verbs is told that there are none; one that does not sees no change."""
    for flags in (0, HELLO_VERBS, 0xFF):
        tls = lab.tls()
        tls.send(pack(HELLO, 1, hello(CONTROL_ROLE, flags=flags)))
        m = tls.message()
        assert m.type == WELCOME
        assert struct.unpack_from("<HH", m.body) == (1, flags & (HELLO_LIST | HELLO_ABOUT))
        tls.send(pack(GOODBYE, 2))
        tls.wait_closed()
        tls.close()


@pytest.mark.parametrize("body", [ask(0), struct.pack("<HHI", 1, 1, 0),
                                  struct.pack("<HHI", 1, 0, 1), bytes(7), bytes(9)])
def test_bad_ask(lab: Lab, body: bytes) -> None:
    """Lane 0, reserved fields, another size: the stream is lost."""
    c = lab.control()
    c.send(ASK_TICKET, body)
    answers = c.tls.wait_closed()
    assert [(m.type, m.u32(0)) for m in answers if m.type == ERROR] == [(ERROR, PROTOCOL)]
    end(lab, c)


def test_a_host_may_not_say_ticket(lab: Lab) -> None:
    c = lab.control()
    c.send(TICKET, struct.pack("<Q16s16sHHI", 1, bytes(16), bytes(16), 1, 0, 1))
    assert [m.u32(0) for m in c.tls.wait_closed() if m.type == ERROR] == [PROTOCOL]
    end(lab, c)


def test_map_without_a_queue_pair(lab: Lab) -> None:
    """MAP for VERBS alone is refused; for VERBS or TCP the slab comes over TCP."""
    c = lab.control()
    with pytest.raises(Refused) as e:
        c.map(VERBS)
    assert e.value.status == TRANSPORT
    slab = c.map(VERBS | TCP)
    assert slab.transport == TCP
    c.goodbye()


def test_status_says_why(make_lab: MakeLab) -> None:
    """RDMA that is off is no failure, and the status says why."""
    lab = make_lab()
    rdma = lab.status()["rdma"]
    assert rdma["listen"] == "off" and "encryption" in rdma["why_off"]
    assert lab.metrics()["dcm_rdma_up"] == 0
    lab.logged("lending up to")
    assert "RDMA" not in lab.log.read_text()
    lab = make_lab(donor={"data-encryption": "no"})
    rdma = lab.status()["rdma"]
    assert rdma["listen"] == "off" and "no RDMA device" in rdma["why_off"]
    lab.logged("lending up to")
    assert lab.log.read_text().count("RDMA is off: no RDMA device") == 1
    lab = make_lab(donor={"data-encryption": "no", "rdma": "no"})
    assert lab.status()["rdma"]["why_off"] == "rdma = no"
    lab.served()


@pytest.mark.parametrize(("options", "says"), [
    ({"rdma": "yes"}, "data-encryption"),
    ({"rdma": "yes", "data-encryption": "no"}, "no RDMA device"),
    ({"rdma": "perhaps"}, "write no, auto or yes"),
])
def test_must_be_on(make_lab: MakeLab, options: dict[str, str], says: str) -> None:
    """With rdma = yes and no device the donor does not start: one line, status 2."""
    lab = make_lab(start=False, donor=options)
    lab.write_files()
    end = subprocess.run([str(lab.binary), "--config", str(lab.config)], capture_output=True,
                         text=True, check=False, timeout=20,
                         env={**os.environ, **lab.environment})
    assert end.returncode == 2, end.stderr
    said = [line for line in end.stderr.splitlines() if "listening on" not in line]
    assert len(said) == 1 and says in said[0], end.stderr
