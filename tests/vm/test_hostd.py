# SPDX-License-Identifier: GPL-2.0-or-later
"""dcm-hostd in L1: donors drain, die, stop, come and go while files are used; the daemon ends."""

from __future__ import annotations

import io
import json
import re
import shlex
import signal
import tarfile
import threading
from functools import partial

import pytest

from tests.framework.paths import TOP
from tests.vm import debug
from tests.vm.bed import Bed
from tests.vm.host import (
    FIRST,
    LONG,
    MIB,
    MOUNT,
    RUN,
    SLOW_VERBS,
    VERBS_HOST,
    Donor,
    Host,
    Use,
    slow,
    until,
)
from tests.vm.host import built as built


@pytest.fixture
def host(host_bed: Bed, request: pytest.FixtureRequest) -> Host:
    return Host(host_bed, getattr(request, "param", "unix"))


@pytest.mark.parametrize("host", [slow("unix"), "tcp", slow("plain"), SLOW_VERBS], indirect=True)
@pytest.mark.timeout(900 * debug.PATIENCE)
def test_a_donor_drains_while_its_memory_is_used(host: Host) -> None:
    """It gets every slab back and ends well; the other has them; each byte is right."""
    near, far = host.donors
    use = Use(host, 64)
    until(lambda: near.used() and far.used(), "both lend")
    encrypted = re.search(r"TlsCurrRxSw\s+(\d+)", host.bed.must("cat /proc/net/tls_stat || true"))
    assert bool(encrypted and int(encrypted[1])) == (host.kind == "tcp")
    assert host.said("donor near .*: reached by RDMA") == (host.kind == "verbs")
    before = host.counter("MOVED_PAGES")
    near.job.signal(signal.SIGTERM)
    assert near.job.wait(LONG + 60) == 0, f"{near.job.output()}\n{host.log()}"
    assert "every slab is back" in near.job.output().stderr
    assert host.counter("MOVED_PAGES") > before
    assert far.used() >= 40 * MIB
    right, lost = use.end()
    assert right > 64 * 256 and lost == 0
    assert host.counter("LOST_PAGES") == host.counter("ILLEGAL") == 0
    host.bed.must(["rm", use.path])
    until(lambda: host.said(f"{use.path}: gone"), host.log)
    assert host.bed.run("ls -d /sys/kernel/debug/kvm-dcm/*").rc != 0, "its memory is still there"
    until(lambda: not far.used(), "the other donor has its memory back")
    host.close()


def dcmctl(host: Host, *words: str, good: bool = True) -> str:
    """In L1, with dcm-hostd's configuration."""
    made = f"DCM_HOSTD_CONF={host.config} DCM_HOST_CONF=/none PYTHONPATH=/tmp/dcmctl"
    ran = host.bed.run(f"{made} python3 -m dcmctl {shlex.join(words)}", LONG)
    assert (ran.rc == 0) == good, f"{ran}\n{host.log()}"
    return ran.stdout


@pytest.mark.parametrize("host", [slow("unix"), slow("tcp")], indirect=True)
@pytest.mark.timeout(900 * debug.PATIENCE)
def test_donors_come_and_go_while_memory_is_used(host: Host) -> None:
    """Drained, removed and added by dcmctl; each byte is right, and metrics tell of it."""
    bed, (near, far) = host.bed, host.donors
    with io.BytesIO() as data:
        with tarfile.open(fileobj=data, mode="w") as tar:
            tar.add(TOP / "dcmctl" / "dcmctl", "dcmctl/dcmctl")
            tar.add(TOP / "VERSION", "VERSION")
        bed.put(data.getvalue(), "/tmp/dcmctl.tar")
    bed.must("tar -x -C /tmp -f /tmp/dcmctl.tar")
    use = Use(host, 64)
    until(lambda: near.used() and far.used(), "both lend")
    listed = {d["name"]: d for d in json.loads(dcmctl(host, "donor", "list", "--json"))}
    assert set(listed) == {"near", "next"}
    assert listed["near"]["capacity_bytes"] == 128 * MIB
    assert [u["vm"] for u in listed["near"]["uses"]] == ["vm"]

    said = dcmctl(host, "donor", "drain", "near")
    assert "nothing is on it" in said
    assert "drain = yes" in bed.must(["cat", host.config])
    until(lambda: not near.used(), "it has all back")
    assert far.used() >= 40 * MIB
    # One that is started in this one's place knows it too.
    host.job.signal(signal.SIGHUP)
    until(lambda: host.said("going on with .* slabs of the dcm-hostd before"), "it goes on")
    until(lambda: host.log().count(": told to drain: ") == 2, host.log)

    third = Donor(bed, "third", 9300, "128M", "2M", host.kind)
    host.donors.append(third)
    said = dcmctl(host, "donor", "add", "third", third.address)
    assert "used by dcm-hostd" in said
    said = dcmctl(host, "donor", "remove", "next")
    assert "nothing is on it" in said
    until(lambda: not far.used(), "it has all back")
    assert third.used() >= 40 * MIB
    assert "next" not in bed.must(["cat", host.config])
    text = dcmctl(host, "exporter", "--once")
    assert 'dcm_vm_lost_bytes{vm="vm",pager="kernel"} 0' in text
    assert re.search(r'dcm_vm_fetched_bytes_total{vm="vm",pager="kernel"} [1-9]', text)
    assert re.search(r'dcm_vm_donor_bytes{vm="vm",pager="kernel",donor="third"} [1-9]', text)
    for kind in ("fault", "fetch", "writeback"):
        of = rf'dcm_vm_{kind}_latency_seconds(?:_count)?{{vm="vm",pager="kernel"'
        assert re.search(of + "} [1-9]", text), kind
        assert re.search(of + r',quantile="0.99"} \S*[1-9]', text), kind
    assert "dcm_host_hostd_up 1" in text
    far.job.signal(signal.SIGKILL)  # nobody's any more
    dcmctl(host, "donor", "drain", "near", "--undo")
    # A configuration that is wrong changes nothing.
    bed.must(f"cp {host.config} {RUN}/kept && echo '[nonsense]' >>{host.config} && "
             f"echo 'x = 1' >>{host.config}")  # fmt: skip
    host.job.signal(signal.SIGUSR1)
    until(lambda: host.said("SIGUSR1: .*unknown section"), "it is told")
    bed.must(f"cp {RUN}/kept {host.config}")
    right, lost = use.end()
    assert right > 64 * 256 and lost == 0
    assert host.counter("LOST_PAGES") == host.counter("ILLEGAL") == 0
    bed.must(["rm", use.path])
    until(lambda: host.said(f"{use.path}: gone"), host.log)
    host.close()


@pytest.mark.slow
@pytest.mark.timeout(900 * debug.PATIENCE)
def test_a_file_uses_the_donors_it_may(host: Host) -> None:
    """Those of its choice and no others, another one uses all; another choice moves its memory.

    So does a group, and a donor that joins it later is used.
    """
    bed, (near, far) = host.bed, host.donors
    choices = "/run/dcm-hostd/donors"
    bed.must(f"mkdir -p {choices} && echo next >{choices}/vm.donors")
    use = Use(host, 64)
    assert far.used() >= 40 * MIB and near.used() == 0
    # A new dcm-hostd in its place keeps to it.
    host.job.signal(signal.SIGHUP)
    until(lambda: host.said("going on with .* slabs of the dcm-hostd before"), "it goes on")
    other = Use(host, 32, "other")
    until(near.used, "the other file uses both")
    files = host.files()
    assert [d["name"] for d in files[use.path]["donors"]] == ["next"]
    assert {d["name"] for d in files[other.path]["donors"]} == {"near", "next"}
    assert (files[use.path]["choice"], files[other.path]["choice"]) == (True, False)
    assert other.end()[1] == 0
    bed.must(["rm", other.path])
    until(lambda: not near.used(), host.log)
    bed.must(f"echo near >{choices}/vm.donors")
    host.job.signal(signal.SIGUSR1)
    until(lambda: not far.used(), host.log)
    assert near.used() >= 40 * MIB
    config = bed.must(["cat", host.config]).replace("[donor next]", "group = rack1\n[donor next]")

    def is_group(names: list[str]) -> bool:
        donors = host.files()[use.path]["donors"]
        return sorted(d["name"] for d in donors if d["group"] == "rack1") == names

    for text, members in ((config, ["near"]), (config + "group = rack1\n", ["near", "next"])):
        bed.put(text.encode(), host.config, 0o600)
        bed.must(f"echo @rack1 >{choices}/vm.donors")
        host.job.signal(signal.SIGUSR1)
        until(partial(is_group, members), host.log)
        assert near.used() >= 40 * MIB and far.used() == 0
    right, lost = use.end()
    assert right > 64 * 256 and lost == 0
    assert host.counter("LOST_PAGES") == host.counter("ILLEGAL") == 0
    bed.must(f"rm {use.path} {choices}/vm.donors")
    until(lambda: host.said(f"{use.path}: gone"), host.log)
    host.close()


@pytest.mark.parametrize("host", ["plain", slow("tcp"), SLOW_VERBS], indirect=True)
@pytest.mark.timeout(900 * debug.PATIENCE)
def test_a_donor_dies_while_its_memory_is_used(host: Host) -> None:
    """Its pages answer SIGBUS and no others; the log names it; files go on with what is left."""
    near, far = host.donors
    use = Use(host, 64)
    until(lambda: near.used() and far.used(), "both lend")
    near.job.signal(signal.SIGKILL)
    near.job.wait(60)
    until(lambda: host.said(r"donor near \(.*\) lost: \d+ KiB of /mnt/dcm/vm"), host.log)
    right, lost = use.end()
    assert right + lost >= 64 * 256 and 0 < lost < 64 * 256
    assert re.search(r"donor near \(.*\) lost: (\d+) KiB", host.log())[1] == str(lost * 4)  # type: ignore[index]
    assert re.search(r"donor near \((unix|tcp):.*\) is lost: .*extents? \d", host.log())
    host.bed.must(["rm", use.path])
    until(lambda: host.said(f"{use.path}: gone"), host.log)
    # A later file has the donor that is left.
    again = Use(host, 48, "again")
    right, lost = again.end()
    assert right > 48 * 256 and lost == 0
    host.bed.must(["rm", again.path])
    until(lambda: not far.used(), "the other donor has its memory back")
    host.close()


@pytest.mark.timeout(900 * debug.PATIENCE)
def test_dead_donors_of_this_host_lose_nothing(host: Host) -> None:
    """Their slabs are memory of L1: they move to the other donor, and stay if there is none."""
    near, far = host.donors
    use = Use(host, 64)
    until(lambda: near.used() and far.used(), "both lend")

    def of(donor: int, what: str) -> int:
        return int(host.files()[use.path]["donors"][donor][what])

    near.job.signal(signal.SIGKILL)
    near.job.wait(60)
    until(lambda: host.said("slabs of it are mapped here, and nothing is lost"), host.log)
    until(lambda: not of(0, "slabs"), "they have moved")
    far.job.signal(signal.SIGKILL)
    far.job.wait(60)
    until(lambda: of(1, "orphans_waiting"), "no donor has room")
    right, lost = use.end()
    assert right > 64 * 256 and lost == 0
    assert host.counter("LOST_PAGES") == host.counter("ILLEGAL") == 0
    host.bed.must(["rm", use.path])
    until(lambda: host.said(f"{use.path}: gone"), host.log)
    host.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unix", "tcp", VERBS_HOST])
@pytest.mark.timeout(900 * debug.PATIENCE)
def test_a_donor_is_suspended(host_bed: Bed, kind: str) -> None:
    """A suspended donor: accesses to its memory wait, and nothing is lost.

    For longer than the patience: over TCP the donor counts as dead, and lends again later. Slabs
    that can be used without it are moved.
    """
    host = Host(host_bed, kind, patience=f"{20 * debug.PATIENCE}s")
    near, far = host.donors
    use = Use(host, 64)
    until(lambda: near.used() and far.used(), "both lend")
    # Both at once, so that no access that waits finds the other donor.
    pids = f"{near.job.pid} {far.job.pid}"
    host.bed.must(f"kill -STOP {pids}; sleep {8 * debug.PATIENCE}; kill -CONT {pids}",
                  60 * debug.PATIENCE)
    until(lambda: len(re.findall("reached again after", host.log())) == 2, host.log)
    assert len(re.findall(r"silent for \d+ s; it holds", host.log())) == 2
    fetched = host.counter("FETCHED_PAGES")
    until(lambda: host.counter("FETCHED_PAGES") > fetched + 500, "memory is used again")
    assert not host.said("is lost") and host.counter("LOST_PAGES") == 0, host.log()
    moved = host.counter("MOVED_PAGES")
    near.job.signal(signal.SIGSTOP)
    until(lambda: host.files()[use.path]["donors"][0]["state"] == "silent", host.log)
    if kind == "tcp":
        until(lambda: host.said(r"donor near \(.*\) lost: \d+ KiB of /mnt/dcm/vm"), host.log)
        assert host.said(r"donor near .* is lost: not heard of for \d+ s")
    else:
        until(lambda: far.used() >= 40 * MIB, "its memory is with the other")
        assert host.counter("MOVED_PAGES") > moved
    near.job.signal(signal.SIGCONT)
    until(lambda: host.files()[use.path]["donors"][0]["state"] == "up", host.log)
    right, lost = use.end()
    assert right > 0 and lost < 64 * 256 and (lost > 0) == (kind == "tcp")
    assert sum(host.lost_pages().values()) == lost, host.log()
    host.bed.must(["rm", use.path])
    until(lambda: host.said(f"{use.path}: gone"), host.log)
    until(lambda: not near.used() and not far.used(), "donors have all back")
    again = Use(host, 64, "again")
    until(lambda: near.used() and far.used(), "both lend again")
    right, lost = again.end()
    assert right > 64 * 256 and lost == 0
    host.bed.must(["rm", again.path])
    until(lambda: not near.used() and not far.used(), "donors have all back")
    host.close()


@pytest.mark.timeout(900 * debug.PATIENCE)
def test_end_while_a_file_is_used(host: Host) -> None:
    """After SIGTERM the daemon waits for users of a file, also an unlinked one, and says so."""
    use = Use(host, 48)
    host.bed.must(["rm", use.path])
    host.job.signal(signal.SIGTERM)
    until(lambda: host.said(f"told to end, but {use.path} is in use"), host.log)
    right, lost = use.end()
    assert right > 48 * 256 and lost == 0
    assert host.job.wait(60) == 0, host.log()
    assert f"{use.path}: gone" in host.log()
    until(lambda: not any(donor.used() for donor in host.donors), "donors have all back")
    host.close()


@pytest.mark.timeout(900 * debug.PATIENCE)
def test_end_at_once(host: Host) -> None:
    """A second SIGTERM does not wait: what is on donors is lost, told, and never read."""
    use = Use(host, 48)
    host.job.signal(signal.SIGTERM)
    until(lambda: host.said("told to end"), host.log)
    host.job.signal(signal.SIGTERM)
    assert host.job.wait(60) == 1, host.log()
    assert re.search(r"dcm-hostd ends: \d+ KiB of /mnt/dcm/vm", host.log())
    until(lambda: not any(donor.used() for donor in host.donors), "donors have all back")
    # Without donors memory can't leave: a new daemon serves what is left.
    host.job = host.bed.spawn([*FIRST, "/tmp/dcm-hostd", "--config", host.config])
    until(lambda: host.said(f"{use.path}: served"), host.log)
    _, lost = use.end()
    assert lost > 0
    host.bed.must(["rm", use.path])
    until(lambda: host.said(f"{use.path}: gone"), host.log)
    host.close()


@pytest.mark.slow
@pytest.mark.parametrize("host", ["unix", "tcp", VERBS_HOST], indirect=True)
@pytest.mark.timeout(900 * debug.PATIENCE)
def test_the_daemon_comes_back(host: Host) -> None:
    """Killed and started, and told to start again, while memory is used: nothing is lost."""
    near, far = host.donors
    use = Use(host, 64)
    until(lambda: near.used() and far.used(), "both lend")
    lent = near.used() + far.used()
    host.job.signal(signal.SIGKILL)
    host.job.wait(60)
    host.job = host.bed.spawn([*FIRST, "/tmp/dcm-hostd", "--config", host.config])
    until(lambda: host.said(rf"{use.path}: going on with \d+ slabs"), host.log)
    until(lambda: len(re.findall("reached again, nothing lost", host.log())) == 2, host.log)
    assert near.used() + far.used() >= lent
    # A configuration that is wrong changes nothing.
    good = host.bed.get(host.config)
    host.bed.put(b"[host]\nno = 1\n", host.config, 0o600)
    host.job.signal(signal.SIGHUP)
    until(lambda: host.said("unknown key 'no' in .host.: going on as before"), host.log)
    # One that lacks a donor: what it lends is used all the same.
    host.bed.put(good.replace(b"[donor near]", b"[donor other]"), host.config, 0o600)
    host.job.signal(signal.SIGHUP)
    until(lambda: host.said("donor near .* is not in the configuration any more"), host.log)
    until(lambda: len(re.findall("reached again, nothing lost", host.log())) == 4, host.log)
    far.job.signal(signal.SIGTERM)
    assert far.job.wait(LONG + 60) == 0, f"{far.job.output()}\n{host.log()}"
    assert "every slab is back" in far.job.output().stderr
    right, lost = use.end()
    assert right > 64 * 256 and lost == 0
    assert host.counter("LOST_PAGES") == host.counter("ILLEGAL") == 0
    host.bed.must(["rm", use.path])
    until(lambda: host.said(f"{use.path}: gone"), host.log)
    until(lambda: not near.used(), "the donor has its memory back")
    host.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unix", "tcp", VERBS_HOST])
@pytest.mark.timeout(900 * debug.PATIENCE)
def test_the_daemon_is_away_for_longer_than_patience(host_bed: Bed, kind: str) -> None:
    """Donors see by the kernel's connections that their memory is used, and when it is not."""
    patience = 8 * debug.PATIENCE
    limits = f"[limits]\npatience = {patience}s\n"
    host = Host(host_bed, kind, patience=f"{patience}s", donors=limits)
    use = Use(host, 64)
    until(lambda: all(d.used() for d in host.donors), "both lend")
    host.job.signal(signal.SIGKILL)
    host.job.wait(60)
    # nothing is read or written: the kernel has to speak by itself
    use.job.signal(signal.SIGSTOP)
    lent = [d.used() for d in host.donors]
    threading.Event().wait(2.5 * patience)
    assert [d.used() for d in host.donors] == lent
    use.job.signal(signal.SIGCONT)
    host.job = host.bed.spawn([*FIRST, "/tmp/dcm-hostd", "--config", host.config])
    until(lambda: host.said(rf"{use.path}: going on with \d+ slabs"), host.log)
    until(lambda: len(re.findall("reached again, nothing lost", host.log())) == 2, host.log)
    right, lost = use.end()
    assert right > 64 * 256 and lost == 0
    assert host.counter("LOST_PAGES") == host.counter("ILLEGAL") == 0
    host.bed.must(["rm", use.path])
    until(lambda: not any(d.used() for d in host.donors), "donors have all back")
    # a file that goes while the daemon is away
    again = Use(host, 48, "again")
    until(lambda: any(d.used() for d in host.donors), "lent")
    host.job.signal(signal.SIGKILL)
    host.job.wait(60)
    again.job.signal(signal.SIGKILL)
    again.job.wait(60)
    host.bed.must(["rm", again.path])
    until(lambda: not any(d.used() for d in host.donors), "donors have all back")
    host.job = host.bed.spawn([*FIRST, "/tmp/dcm-hostd", "--config", host.config])
    until(lambda: host.said("files there are served"), host.log)
    host.close()


@pytest.mark.parametrize("host", ["plain", slow("tcp")], indirect=True)
@pytest.mark.timeout(900 * debug.PATIENCE)
def test_the_daemon_comes_too_late(host: Host) -> None:
    """Its donors have ended meanwhile: it tells what is lost and serves the rest."""
    use = Use(host, 48)
    host.job.signal(signal.SIGKILL)
    host.job.wait(60)
    for i, donor in enumerate(host.donors):
        donor.job.signal(signal.SIGKILL)
        donor.job.wait(60)
        host.donors[i] = Donor(host.bed, donor.name, donor.port, "128M", "2M", host.kind)
    host.job = host.bed.spawn([*FIRST, "/tmp/dcm-hostd", "--config", host.config])
    # It goes on with the sessions, and hears that they are over.
    lost_with = rf"donor (near|next) \(.*\) lost: \d+ KiB of {use.path}"
    until(lambda: host.said(lost_with), host.log)
    again = Use(host, 48, "again")
    until(lambda: any(donor.used() for donor in host.donors), host.log)
    assert again.end()[1] == 0
    host.bed.must(["rm", again.path])
    right, lost = use.end()
    assert right > 0 and lost > 0
    host.bed.must(["rm", use.path])
    until(lambda: host.said(f"{use.path}: gone"), host.log)
    host.close()


@pytest.mark.timeout(300)
def test_a_sealed_file_with_huge_extents_is_refused(host_bed: Bed) -> None:
    """The kernel has no table of 512 GiB of pages: that is said at once, not at its first slab."""
    host = Host(host_bed, "plain", seal="yes")
    bed = host.bed
    bed.must("mkdir /mnt/huge && mount -t dcmfs -o extent=512G,on-loss=sigbus dcm /mnt/huge")
    bed.must(["truncate", "-s", "512G", "/mnt/huge/ram"])
    host.reconfigure(f"mount = {MOUNT}\n", f"mount = {MOUNT}\nmount = /mnt/huge\n")
    host.job.signal(signal.SIGHUP)
    why = r"/mnt/huge/ram: the kernel can't seal its pages: File too large .*at most 256G"
    until(lambda: host.said(why), host.log)
    use = Use(host, 16)
    assert use.end()[1] == 0
    bed.must("rm /mnt/huge/ram /mnt/dcm/vm && umount /mnt/huge")
    host.close()


@pytest.mark.timeout(300)
def test_configurations(host: Host) -> None:
    """A wrong or missing configuration: a line, status 2. A mount that comes later is served."""
    bed = host.bed
    assert re.match(r"dcm-hostd \d", bed.must(["/tmp/dcm-hostd", "--version"]))
    key = f"[key]\nfile = {RUN}/keys\n"
    tcp = "[donor far]\naddress = tcp:127.0.0.1:9999\n"
    path = bed.put((key + tcp).encode(), f"{RUN}/tcp.conf", 0o600)
    assert "is good" in bed.must(["/tmp/dcm-hostd", "--check-config", "--config", path])
    bad = bed.put(f"[vm]\nbudget = 1G\n{key}{tcp}".encode(), f"{RUN}/bad.conf", 0o600)
    ran = bed.run(["/tmp/dcm-hostd", "--config", bad])
    assert ran.rc == 2 and "unknown section [vm]" in ran.stderr
    ran = bed.run(["/tmp/dcm-hostd", "--config", "/nowhere"])
    assert ran.rc == 2 and "/nowhere: No such file" in ran.stderr
    near = f"[donor near]\naddress = {host.donors[0].address}\n"
    text = f"[host]\nmount = /mnt/later\n{key}{tcp}{near}[tunables]\nno_such = 1\n"
    path = bed.put(text.encode(), f"{RUN}/later.conf", 0o600)
    assert "is good" in bed.must(["/tmp/dcm-hostd", "--check-config", "--config", path])
    job = bed.spawn(f"exec /tmp/dcm-hostd --config {path} --ready-fd 9 9>{RUN}/ready")
    until(lambda: "READY=1" in bed.run(["cat", f"{RUN}/ready"]).stdout, "it is ready")
    assert "no dcmfs is mounted where" in job.output().stderr
    bed.must("mkdir /mnt/later && mount -t dcmfs -o extent=4M,on-loss=sigbus dcm /mnt/later")
    until(lambda: "/mnt/later: files there are served" in job.output().stderr, "it is noticed")
    bed.must("mkdir -p /mnt/later/a/b && truncate -s 8M /mnt/later/a/b/ram")
    until(lambda: "a/b/ram: served: 8 MiB" in job.output().stderr, "the file is noticed")
    until(lambda: "lends slabs of 2 MiB" in job.output().stderr, "another size is told")
    assert "no_such = 1: there is no such tunable" in job.output().stderr
    second = bed.spawn(["/tmp/dcm-hostd", "--config", path])
    until(lambda: "another dcm-hostd serves it" in second.output().stderr, "one serves it")
    second.signal(signal.SIGTERM)
    assert second.wait(60) == 0, second.output()
    bed.must("rm -r /mnt/later/a")
    until(lambda: "ram: gone" in job.output().stderr, "it is gone")
    bed.must("umount /mnt/later", 60)
    until(lambda: "/mnt/later: not mounted any more" in job.output().stderr, "that is noticed")
    job.signal(signal.SIGTERM)
    assert job.wait(60) == 0, job.output()
    host.close()
