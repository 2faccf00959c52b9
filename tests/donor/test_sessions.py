# SPDX-License-Identifier: GPL-2.0-or-later
"""Sessions: resumed, ended when their host is gone or was silent for too long; stopped hosts,
stopped donors, networks that fail."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.donor.conftest import Lab, MakeLab
from tests.donor.rawtls import (BUSY, DATA, DATA_ROLE, ERROR, GOODBYE, HEARTBEAT, HELLO,
                                NO_SESSION, PLAIN, QUOTA, SHM, WRITTEN, Closed, Control, Refused,
                                hello, pack)
from tests.framework.paths import TOP


def test_resume(lab: Lab) -> None:
    """The slab, its bytes and the data connection outlive a lost control connection."""
    c = lab.control()
    slab = c.map()
    d = c.data()
    d.write(slab.id, 0, b"k" * 4096)
    c.tls.sock.close()
    lab.wait(lambda s: [x["state"] for x in s["sessions"]] == ["lost"], "connection lost")
    assert d.read(slab.id, 0) == b"k" * 4096
    again = lab.control(session=c.session, secret=c.secret)
    assert again.session == c.session
    assert d.read(slab.id, 0) == b"k" * 4096
    assert again.query()["used"] == slab.bytes
    # also while the donor takes the old connection for alive; and over the other socket
    third = lab.control(unix=True, session=c.session, secret=c.secret)
    with pytest.raises(Closed):
        while True:
            again.tls.message()
    again.close()
    assert third.map(SHM).transport == SHM
    third.goodbye()
    with pytest.raises(Refused) as e:
        lab.control(session=c.session, secret=c.secret)
    assert e.value.status == NO_SESSION
    d.close()


HOST = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tests.donor.rawtls import Control
c = Control(sys.argv[2], "alice", b"\\x11" * 32)
slab = c.map(3)
d = c.data()
if slab.transport == 1:
    d.tls.send(d.write_bytes(slab.id, 0, b"x" * 65536)[:30000])
print(c.session, c.secret.hex(), flush=True)
time.sleep(600)
"""


def host_process(address: str) -> tuple[subprocess.Popen[str], int, bytes]:
    p = subprocess.Popen([sys.executable, "-c", HOST, str(TOP), address],
                         stdout=subprocess.PIPE, text=True)
    assert p.stdout is not None
    session, secret = p.stdout.readline().split()
    return p, int(session), bytes.fromhex(secret)


def ended(lab: Lab, session: int) -> bool:
    return f"{session:016x}" not in {s["session"] for s in lab.status()["sessions"]}


def finish(p: subprocess.Popen[str]) -> None:
    p.kill()
    p.wait()
    if p.stdout:
        p.stdout.close()


def test_memory_of_a_host_that_dies_is_back_in_seconds(lab: Lab) -> None:
    """SIGKILLed in the middle of a WRITE; long before the patience with silent hosts is over.
    A host that beats, and one with nothing but data traffic, keep their slabs."""
    killed = [host_process(a) for a in (lab.tcp_address, lab.unix_address)]
    alive = lab.control("bob")
    kept = alive.map()
    busy = lab.control("bob")
    busy_slab = busy.map()
    busy_data = busy.data()
    for p, _, _ in killed:
        finish(p)
    start = time.monotonic()
    while not all(ended(lab, session) for _, session, _ in killed):
        alive.beat()
        busy_data.write(busy_slab.id, 0, b"b" * 4096)
        assert time.monotonic() < start + 20
        time.sleep(0.2)
    print(f"the memory of two hosts that died was back after {time.monotonic() - start:.1f} s")
    assert lab.status()["events"]["sessions_gone"] >= 2
    status = lab.wait(lambda s: s["memory"]["slabs_releasing"] == 0, "released")
    assert status["memory"]["slabs_mapped"] == 2
    assert busy_data.read(busy_slab.id, 0) == b"b" * 4096
    # too late
    for _, session, secret in killed:
        with pytest.raises(Refused) as e:
            lab.control(session=session, secret=secret)
        assert e.value.status == NO_SESSION
    assert alive.query()["used"] == kept.bytes * 2
    busy_data.close()
    busy.goodbye()
    alive.goodbye()


def test_a_silent_host_keeps_its_slabs(lab: Lab) -> None:
    """A host stopped for longer than 5 s, or silent: nothing is lost, and the log says so."""
    stopped = [host_process(a) for a in (lab.tcp_address, lab.unix_address)]
    silent = lab.control()
    slab = silent.map()
    data = silent.data()
    data.write(slab.id, 0, b"s" * 4096)
    mark = len(lab.log.read_text())
    for p, _, _ in stopped:
        p.send_signal(signal.SIGSTOP)
    time.sleep(7)
    status = lab.wait(lambda s: [x["state"] for x in s["sessions"]] == ["silent"] * 3, "silent")
    assert all(x["silent_ms"] > 5000 and x["patience_ms"] == 60000 and x["slabs"] == 1
               for x in status["sessions"])
    assert lab.metrics()["dcm_donor_sessions_silent"] == 3
    assert lab.metrics()["dcm_donor_silent_bytes"] == 3 * slab.bytes
    lab.logged("silent for 5 s", times=3, mark=mark)
    text = lab.log.read_text()[mark:]
    assert "patience" in text and "ends" not in text
    assert data.read(slab.id, 0) == b"s" * 4096
    # a host that comes back goes on, by a new connection or by its old ones
    for p, session, secret in stopped:
        c = lab.control(session=session, secret=secret)
        assert c.query()["used"] >= 2 * slab.bytes
        lab.wait(lambda s, i=session: [x["state"] for x in s["sessions"]  # type: ignore[misc]
                                       if x["session"] == f"{i:016x}"] == ["alive"], "alive")
        c.goodbye()
        finish(p)
    lab.wait(lambda s: [x["state"] for x in s["sessions"]] == ["alive"], "heard again")
    lab.logged("heard again after", times=3, mark=mark)
    data.close()
    silent.goodbye()


def test_a_silent_host_of_this_machine_is_not_dead(make_lab: MakeLab) -> None:
    """Over the UNIX socket an open connection is proof of life; its end is proof of death."""
    lab = make_lab(limits={"patience": "1s"})
    near, session, secret = host_process(lab.unix_address)
    far, _, _ = host_process(lab.tcp_address)
    # as the kernel does when a control plane dies: it holds the socket and never uses it
    near.send_signal(signal.SIGSTOP)
    far.send_signal(signal.SIGSTOP)
    lab.wait(lambda s: len(s["sessions"]) == 1, "the patience with the other is over")
    lab.wait(lambda s: s["sessions"][0]["silent_ms"] > 8000, "much longer than the patience")
    lab.logged("kept as long as its connection is open", times=1)
    again = lab.control(unix=True, session=session, secret=secret)
    assert again.query()["used"] > 0
    again.goodbye()
    finish(near)
    finish(far)
    other, _, _ = host_process(lab.unix_address)
    other.send_signal(signal.SIGSTOP)
    finish(other)
    lab.wait_empty()


def test_patience_is_each_tenants(make_lab: MakeLab) -> None:
    """Silent for as long as its tenant's patience is dead; another's lives on."""
    lab = make_lab(limits={"patience": "30s"}, **{"tenant alice": {"patience": "1500ms"}})
    short, long = lab.control("alice"), lab.control("bob")
    short.map()
    slab = long.map()
    start = time.monotonic()
    lab.wait(lambda s: len(s["sessions"]) == 1, "alice's patience is over")
    print(f"ended {time.monotonic() - start:.1f} s after it was last heard")
    lab.logged("nothing was heard of it for 1 s", times=1)
    with pytest.raises(Closed):
        while True:
            short.tls.message()
    with pytest.raises(Refused) as e:
        lab.control("alice", session=short.session, secret=short.secret)
    assert e.value.status == NO_SESSION
    assert long.query()["used"] == slab.bytes
    # a reload changes it for sessions that are there
    lab.sections["tenant bob"] = {"patience": "1s"}
    lab.reload()
    lab.wait(lambda s: not s["sessions"], "bob's is over too")
    assert lab.status()["events"]["sessions_silent"] == 2
    short.close()
    long.close()
    lab.wait_empty()


@pytest.mark.slow
def test_a_host_that_keeps_a_connection_is_not_gone(lab: Lab) -> None:
    """A host that is cut off one way can only close connections, and the donor sees all but one
    closed: the open one shows that the host lives."""
    c = lab.control()
    slab = c.map()
    first, last = c.data(), c.data()
    first.write(slab.id, 0, b"k" * 4096)
    c.tls.sock.close()
    first.tls.sock.close()
    time.sleep(6.5)
    assert not ended(lab, c.session)
    assert last.read(slab.id, 0) == b"k" * 4096
    last.tls.sock.close()
    start = time.monotonic()
    lab.wait(lambda _: ended(lab, c.session), "gone")
    print(f"gone {time.monotonic() - start:.1f} s after the last connection")
    assert time.monotonic() - start > 3


CUT_OFF = """
import subprocess, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.donor.rawtls import Control
from tests.framework.donor import Donor
sh = lambda *c: subprocess.run(c, check=True)
sh("ip", "link", "set", "lo", "up")
sh("sysctl", "-qw", "net.ipv4.tcp_retries2=3")
folder = Path(sys.argv[2])
with Donor(folder, keys={"alice": "11" * 32}, donor={"listen": "127.0.0.1:0"}) as d:
    c = Control(d.tcp_address, "alice", b"\x11" * 32)
    slab = c.map(1)
    data = c.data()
    data.write(slab.id, 0, b"n" * 4096)
    # bytes that the cut network can't deliver end this connection too, by a timeout
    data.tls.send(data.read_bytes(slab.id, 0, 4096))
    sh("ip", "rule", "add", "pref", "0", "ipproto", "tcp", "dport",
       str(c.tls.sock.getsockname()[1]), "unreachable")
    sh("ip", "rule", "add", "pref", "1", "lookup", "local")
    sh("ip", "rule", "del", "pref", "0", "lookup", "local")
    end = time.monotonic() + 40
    while "broken by the network" not in d.log.read_text():
        assert time.monotonic() < end, d.tail()
        time.sleep(0.1)
    data.tls.sock.close()
    time.sleep(6.5)
    again = Control(d.tcp_address, "alice", b"\x11" * 32, session=c.session, secret=c.secret)
    data = again.data()
    assert data.read(slab.id, 0) == b"n" * 4096
    data.close()
    again.goodbye()
    print("kept")
"""


@pytest.mark.slow
def test_a_connection_the_network_ends_is_silence(lab: Lab, short_tmp: Path) -> None:
    """TCP gives up on a host that is cut off: that host has not closed anything."""
    assert lab
    p = subprocess.run(["unshare", "--net", sys.executable, "-c", CUT_OFF, str(TOP),
                        str(short_tmp / "cut")], capture_output=True, text=True, check=False,
                       timeout=120)
    assert p.stdout == "kept\n", p.stdout + p.stderr


@pytest.mark.slow
def test_resume_is_the_later_part_of_the_same_time(lab: Lab) -> None:
    """All closed for most of 5 seconds, back, and closed again: the time begins anew."""
    c = lab.control()
    slab = c.map()
    d = c.data()
    d.write(slab.id, 0, b"r" * 4096)
    d.close()
    for _ in range(2):
        c.tls.sock.close()
        time.sleep(3.5)
        c = lab.control(session=c.session, secret=c.secret)
    d = c.data()
    assert d.read(slab.id, 0) == b"r" * 4096
    d.close()
    c.goodbye()


@pytest.mark.slow
def test_stopped_donor(make_lab: MakeLab) -> None:
    """A donor that was stopped itself does not take its hosts for silent."""
    lab = make_lab()
    c = lab.control()
    slab = c.map()
    d = c.data()
    d.write(slab.id, 0, b"d" * 4096)
    lab.signal(signal.SIGSTOP)
    time.sleep(6)
    lab.signal(signal.SIGCONT)
    assert c.query()["used"] == slab.bytes
    assert d.read(slab.id, 0) == b"d" * 4096
    d.close()
    c.goodbye()
    lab.wait_empty()


def test_a_goodbye_is_lost_to_a_reset(lab: Lab) -> None:
    """A GOODBYE that a host sent before it reset the connection is read: its memory is free."""
    c = lab.control()
    c.map()
    before = lab.status()["events"]["sessions_goodbye"]
    lab.signal(signal.SIGSTOP)
    c.send(GOODBYE)
    c.tls.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    c.tls.sock.close()
    lab.signal(signal.SIGCONT)
    lab.wait(lambda s: not s["sessions"], "session ended", 3)
    assert lab.status()["events"]["sessions_goodbye"] == before + 1
    lab.wait_empty()


def test_session_end_closes_data(lab: Lab) -> None:
    c = lab.control()
    slab = c.map()
    d = [c.data() for _ in range(4)]
    c.goodbye()
    for one in d:
        with pytest.raises(Closed):
            one.tls.send(one.read_bytes(slab.id, 0, 4096))
            one.tls.message()
            one.tls.message()
        one.close()
    with pytest.raises(Refused) as e:
        c.data()
    assert e.value.status == NO_SESSION


def test_thousand_connections(make_lab: MakeLab) -> None:
    """1000 at once, control and data, all answered; then all gone at once."""
    lab = make_lab(limits={"connections": 1100})
    rss = lab.rss()
    sessions: list[Control] = []
    data = []
    for n in range(100):
        c = lab.control("alice" if n % 2 else "bob", unix=n % 3 == 0)
        sessions.append(c)
        data += [c.data() for _ in range(9)]
        if n % 10 == 0:
            for x in sessions:
                x.beat()
    assert lab.status()["connections"] == 1000
    slab = sessions[0].map()
    for d in data[:9]:
        assert d.read(slab.id, 0) == bytes(4096)
    lab.served()
    for one in data:
        one.tls.sock.close()
    for c in sessions:
        c.goodbye()
    lab.wait_empty()
    # the allocator keeps some memory; a second round must not add to it
    once = lab.rss()
    assert once - rss < 96 << 20
    lab.wait(lambda s: s["connections"] == 0, "gone")


def test_connection_limit(make_lab: MakeLab) -> None:
    """At the limit strangers get no answer, tenants BUSY, sessions go on; room again, served
    again."""
    lab = make_lab(limits={"connections": 8, "handshake-timeout": "1s"})
    held = [lab.control() for _ in range(8)]
    with pytest.raises(Refused) as e:
        lab.control()
    assert e.value.status == BUSY
    tls = lab.tls()
    tls.send(pack(HELLO, 1, hello(DATA_ROLE, held[0].session, held[0].secret)))
    assert (m := tls.message()).type == ERROR and m.u32(0) == BUSY
    tls.close()
    extra = [socket.create_connection(("127.0.0.1", lab.port), timeout=5) for _ in range(4)]
    for sock in extra:
        sock.sendall(b"\x16\x03\x01")
    for sock in extra:
        assert sock.recv(1) == b""
        sock.close()
        for c in held:
            c.beat()
    # a place is kept for a session that has lost its connection
    held[0].close()
    with pytest.raises(Refused) as e:
        lab.control("bob")
    assert e.value.status == BUSY
    held[0] = lab.control(session=held[0].session, secret=held[0].secret)
    held.pop().goodbye()
    held.pop().goodbye()  # served() takes two
    lab.served()
    for c in held:
        c.goodbye()
    lab.wait_empty()


def test_sessions_limit(make_lab: MakeLab) -> None:
    lab = make_lab(limits={"sessions": 2})
    a, b = lab.control(), lab.control("bob")
    with pytest.raises(Refused) as e:
        lab.control()
    assert e.value.status == BUSY
    a.goodbye()
    lab.control().goodbye()
    b.goodbye()
    lab.wait_empty()




@pytest.mark.slow
def test_lost_sessions_count(make_lab: MakeLab) -> None:
    """A tenant that opens and drops sessions reaches its own limit, and no other tenant's."""
    lab = make_lab(**{"tenant alice": {"connections": 5}})
    dropped = 0
    with pytest.raises(Refused) as e:
        for _ in range(50):
            lab.control("alice").close()
            dropped += 1
    assert e.value.status == QUOTA and 5 <= dropped < 50
    lab.served("bob")
    lab.wait_empty()


def test_flood_leaves_others_their_turn(lab: Lab) -> None:
    """One connection that never stops talking; the others still get answers."""
    flood = lab.control()
    slab = flood.map()
    writer = flood.data(PLAIN)
    stop = threading.Event()

    def talk() -> None:
        beats = pack(HEARTBEAT, 0) * 500
        stream = writer.write_bytes(slab.id, 0, bytes(65536)) * 4
        while not stop.is_set():
            flood.tls.send(beats)
            writer.tls.send(stream)
            for _ in range(4):
                writer.tls.message()

    t = threading.Thread(target=talk)
    t.start()
    try:
        for _ in range(10):
            lab.served("bob")
    finally:
        stop.set()
        t.join()
    writer.close()
    flood.goodbye()


def test_nobody_joins_before_the_old_one_is_through(lab: Lab) -> None:
    """A WRITE that waits on a connection hung up happens before another may join, or never."""
    c = lab.control()
    slab = c.map()
    old = c.data(PLAIN)
    reads = b"".join(old.read_bytes(slab.id, 0, 65536) for _ in range(400))
    old.tls.sock.sendall(reads + old.write_bytes(slab.id, 0, b"o" * 4096))
    old.tls.sock.shutdown(socket.SHUT_WR)
    tls = lab.tls()
    tls.send(pack(HELLO, 1, hello(DATA_ROLE, c.session, c.secret)))
    m = tls.message()
    assert (m.type, m.u32(0)) == (ERROR, BUSY)
    tls.close()
    got = 0
    with pytest.raises(Closed):
        while True:
            assert old.tls.message().type in (DATA, WRITTEN)
            got += 1
    assert got > 0
    new = c.data()
    assert new.read(slab.id, 0) in (bytes(4096), b"o" * 4096)
    new.write(slab.id, 0, b"n" * 4096)
    old.close()
    for _ in range(50):
        assert new.read(slab.id, 0) == b"n" * 4096
    new.close()
    c.goodbye()


def test_a_lane_has_one_connection(lab: Lab) -> None:
    """When a lane joins again, the donor closes its old connection, closed by the host or not."""
    c = lab.control()
    slab = c.map()
    other = c.data(PLAIN, lane=2)
    old = c.data(PLAIN, lane=1)
    # more answers than the sockets hold, and a WRITE that waits behind them
    old.tls.sock.settimeout(0.5)
    with pytest.raises(TimeoutError):
        while True:
            old.tls.sock.sendall(old.read_bytes(slab.id, 0, 65536) * 50
                                 + old.write_bytes(slab.id, 0, b"o" * 4096))
    new = c.data(PLAIN, lane=1)
    new.write(slab.id, 0, b"n" * 4096)
    with pytest.raises((Closed, TimeoutError)):
        while True:
            old.tls.message()
    assert new.read(slab.id, 0) == b"n" * 4096
    assert other.read(slab.id, 0) == b"n" * 4096
    for one in (old, new, other):
        one.close()
    c.goodbye()
