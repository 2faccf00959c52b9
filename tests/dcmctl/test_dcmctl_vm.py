# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl vm` with libvirt's driver for tests, which has the XML of its other drivers."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from dcmctl.libvirt import balloon, domain
from dcmctl.libvirt.domain import DomainError
from tests.dcmctl.support import Cli

MIB = 1 << 20
UUID = "3c7d5a52-6f3e-4f0c-9c3f-5a1d7f6f0001"
DEFAULT = "test:///default"


@pytest.fixture(scope="session", autouse=True)
def libvirt_module() -> None:
    """libvirt's Python module from Debian, which the tests' Python takes from the system."""
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        importlib.import_module("libvirt")
    finally:
        sys.path.remove("/usr/lib/python3/dist-packages")


# ---- any domain: right, or refused, never damaged ----

words = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Co", "Cn")), max_size=12
)
names = st.sampled_from(["app", "o", "x-y", "n_1"])


@st.composite
def foreign(draw: st.DrawFn) -> str:
    """Metadata of another program."""
    name, number = draw(names), draw(st.integers(0, 3))
    inside = draw(
        st.lists(
            words.map(escape)
            | st.just("<!-- note -->")
            | words.map(lambda t: f"<i:i>{escape(t)}</i:i>")
            | st.just("<![CDATA[<raw>&]]>")
            | st.just("&#13;&#9;"),
            max_size=3,
        )
    )
    value = escape(draw(words), {'"': "&quot;"}) + draw(st.sampled_from(["", "&#10;", "&#9;"]))
    return f'<i:{name} xmlns:i="urn:{name}:{number}" a="{value}">{"".join(inside)}</i:{name}>'


@st.composite
def domains(draw: st.DrawFn) -> str:
    def pick(*of: Any) -> Any:
        return draw(st.sampled_from(of))

    def few(*of: str) -> str:
        return "".join(draw(st.lists(st.sampled_from(of), max_size=3, unique=True)))

    metadata = "".join(draw(st.lists(foreign(), max_size=2)))
    backing = few(
        "<nosharepages/>",
        "<source type='file'/>",
        "<access mode='shared'/>",
        "<allocation mode='ondemand'/>",
    )
    if pick(0, 0, 1):
        backing += pick(
            "<hugepages/>",
            "<hugepages><page size='2' unit='M'/></hugepages>",
            "<locked/>",
            "<discard/>",
            "<source type='memfd'/>",
            "<access mode='private'/>",
            "<allocation mode='immediate' threads='2'/>",
        )
    memory = pick(8, 64, 1024, 2048)
    cells = ""
    if pick(0, 0, 0, 1):
        cells = (
            f"<cpu><numa><cell id='0' cpus='0' memory='{memory // 2}' unit='MiB'/>"
            f"<cell id='1' cpus='1' memory='{memory // 2}' unit='MiB' memAccess='shared'/>"
            "</numa></cpu>"
        )
    most = pick("", "", "", f"<maxMemory slots='2' unit='MiB'>{memory * 2}</maxMemory>")
    devices = few(
        "<graphics type='vnc' port='-1' passwd='secret&lt;1'/>",
        pick("", "<memballoon model='none'/>", "<memballoon model='virtio'/>"),
        "<memballoon model='virtio' autodeflate='on' freePageReporting='off'/>",
        "<interface type='network'><source network='default'/></interface>",
        "<interface type='user'><model type='virtio'/></interface>",
        "<hostdev mode='subsystem' type='usb'><source><address bus='1' device='2'/></source>"
        "</hostdev>",
        "<emulator>/usr/bin/qemu-system-x86_64</emulator>",
    )
    if pick(0, 0, 0, 1):
        devices += (
            "<hostdev mode='subsystem' type='pci' managed='yes'><source>"
            "<address domain='0' bus='3' slot='0' function='0'/></source></hostdev>"
        )
    title = draw(words).replace("\n", " ")
    return (
        f"<domain type='test'><name>any</name><uuid>{UUID}</uuid>"
        + (f"<title>{escape(title)}</title>" if title.strip() else "")
        + f"<description>{escape(draw(words))}&#10; second</description>"
        + (f"<metadata>{metadata}</metadata>" if metadata else "")
        + most
        + f"<memory unit='MiB'>{memory}</memory>"
        + (f"<memoryBacking>{backing}</memoryBacking>" if backing or pick(0, 1) else "")
        + "<vcpu>2</vcpu><os><type arch='x86_64'>hvm</type></os>"
        + cells
        + f"<devices>{devices}</devices></domain>"
    )


def in_order(few: list[str], many: list[str]) -> bool:
    rest = iter(many)
    return all(line in rest for line in few)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    text=domains(),
    direct=st.sampled_from([1, 16, 64, 512]),
    donor=st.sampled_from(["", "far"]),
    emulator=st.sampled_from(["", "/opt/a&b/dcm-qemu"]),
    reporting=st.sampled_from([None, "yes", "no"]),
)
@pytest.mark.slow
def test_any_domain_is_right_or_refused(
    text: str, direct: int, donor: str, emulator: str, reporting: str | None
) -> None:
    from dcmctl.libvirt.connection import Host

    host = Host(DEFAULT)
    libvirt = host.libvirt
    try:
        dom = host.conn.defineXML(text)
    except libvirt.libvirtError:
        assume(False)
    try:
        before = host.xml(dom)
        program = domain.emulator_of(domain.read_domain(before))
        donors = (donor,) if donor else None
        pager = "user" if emulator else "kernel"
        try:
            wanted = domain.enable(
                before, direct * MIB, donors, host.kinds, None, emulator, reporting=reporting
            )
        except DomainError:
            root = domain.read_domain(before)
            small = direct * MIB >= domain.size_of(root)
            assert small or list(domain.why_not(root, host.kinds, pager))
            assert host.xml(dom) == before
            event("refused")
            return
        event(f"enabled, {pager}")
        host.define(before, wanted)
        after = host.xml(dom)
        root = domain.read_domain(after)
        memory = domain.find_memory(root)
        assert memory is not None
        assert (memory.direct, memory.donors) == (direct * MIB, donors or ())
        assert (memory.pager, domain.emulator_of(root)) == (pager, emulator or program)
        assert list(domain.why_not_now(root, memory, host.kinds)) == []
        if pager == "kernel":
            assert [e.attributes["type"] for e in root.all("memoryBacking", "source")] == ["file"]
            assert [e.attributes["mode"] for e in root.all("memoryBacking", "access")] == ["shared"]
        changed = ["<emulator>"]
        if balloon.ADDED in memory.added:
            changed.append("<memballoon")
            assert (balloon.why_not(root) is None) == (reporting == "yes")
        kept = [s for s in before.decode().split("\n") if not s.strip().startswith(tuple(changed))]
        assert in_order(kept, after.decode().split("\n"))
        host.define(after, domain.enable(after, 2 * MIB, ("other",), host.kinds, None, emulator))
        host.define(host.xml(dom), domain.disable(host.xml(dom)))
        assert host.xml(dom) == before
    finally:
        dom.undefine()


# ---- the command line ----


class Node:
    """A URI of libvirt's driver for tests, with the domains in a file."""

    def __init__(self, cli: Cli, folder: Path) -> None:
        self.cli, self.file = cli, folder / "node.xml"

    def uri(self, *texts: str) -> str:
        self.file.write_text(f"<node>{''.join(texts)}</node>")
        return f"test://{self.file}"


@pytest.fixture
def node(dcmctl: Cli, tmp_path: Path) -> Iterator[Node]:
    yield Node(dcmctl, tmp_path)


def text_of(name: str = "web1", more: str = "", metadata: str = "") -> str:
    return (
        f"<domain type='test'><name>{name}</name>"
        + (f"<metadata>{metadata}</metadata>" if metadata else "")
        + f"<memory unit='GiB'>1</memory>{more}<vcpu>1</vcpu>"
        "<os><type arch='x86_64'>hvm</type></os></domain>"
    )


ENABLED = text_of(
    "web2",
    "<memoryBacking><source type='file'/><access mode='shared'/></memoryBacking>",
    '<dcm:memory xmlns:dcm="urn:kvm-dcm:domain:1" direct="256M" added="source"/>',
)


def test_enable_shows_the_difference(dcmctl: Cli, node: Node) -> None:
    uri = node.uri(text_of())
    for more in (["--dry-run"], []):
        done = dcmctl("vm", "enable", "web1", "--direct", "256M", "--connect", uri, *more)
        assert done.returncode == 0, done
        assert "+    <source type='file'/>" in done.stdout.splitlines()
        assert not [line for line in done.stdout.splitlines()[2:] if line.startswith("-")]
        assert ("runs: the change takes effect at its next start" in done.stdout) == (not more)
    done = dcmctl(
        "vm", "enable", "web1", "--direct", "1.5M", "--donor", "far", "--donor", "near",
        "--connect", uri, "--json",
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert answer["direct_bytes"] == 3 * MIB // 2 and answer["donors"] == ["far", "near"]
    assert answer["changed"] is True and answer["dry_run"] is False


def test_enable_has_the_guest_report_free_memory(dcmctl: Cli, node: Node) -> None:
    """Unless it is told not to; a balloon that says otherwise stays as it is, which is said."""

    def balloon_of(name: str, *more: str) -> tuple[str, bool]:
        done = dcmctl("vm", "enable", name, "--direct", "8M", "--connect", uri, "--json", *more)
        answer = json.loads(done.stdout)
        lines = [line for line in answer["diff"] if "memballoon" in line and line[0] == "+"]
        return "".join(lines), answer["free_page_reporting"]

    def with_balloon(name: str, words: str) -> str:
        element = f"<devices><memballoon model={words}/></devices></domain>"
        return text_of(name).replace("</domain>", element)

    uri = node.uri(
        with_balloon("a", "'virtio'"),
        with_balloon("b", "'virtio' freePageReporting='off'"),
        with_balloon("c", "'none'"),
    )
    assert balloon_of("a") == ("+    <memballoon model='virtio' freePageReporting=\"on\"/>", True)
    line, reports = balloon_of("a", "--free-page-reporting", "no")
    assert "off" in line and not reports
    assert balloon_of("b") == balloon_of("c") == ("", False)
    done = dcmctl("vm", "enable", "c", "--direct", "8M", "--connect", uri)
    said = "c: memory that its guest frees goes to donors: it has no <memballoon model='virtio'>"
    assert said in done.stdout.splitlines()


def test_enable_again_and_disable(dcmctl: Cli, node: Node) -> None:
    uri = node.uri(ENABLED)
    said = dcmctl("vm", "enable", "web2", "--connect", uri).stdout
    assert said.startswith("web2: nothing to change\n")
    done = dcmctl("vm", "disable", "web2", "--connect", uri, "--dry-run")
    gone = [line for line in done.stdout.splitlines()[2:] if line.startswith("-")]
    assert any("dcm:memory" in line for line in gone)
    # Only the parts that enable had added.
    assert any("source type" in line for line in gone)
    assert not any("access mode" in line for line in gone)


def test_list_and_budget(dcmctl: Cli, node: Node) -> None:
    broken = text_of("web3", metadata='<d:memory xmlns:d="urn:kvm-dcm:domain:1" direct="lots"/>')
    uri = node.uri(text_of(), ENABLED)
    done = dcmctl("vm", "list", "--connect", uri)
    assert done.returncode == 0 and done.stderr == ""
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["VM", "STATE", "MEMORY", "BUDGET", "DIRECT", "LENT", "DONORS"],
        ["web2", "running", "1G", "256M", "-", "-", "-"],
    ]
    assert (
        dcmctl("vm", "budget", "web2", "--connect", uri).stdout
        == "web2: budget 256M from its next start\n"
    )
    done = dcmctl("vm", "budget", "web2", "8M", "--connect", uri)
    assert done.stdout == "web2: budget 8M from its next start\n"
    entry = json.loads(dcmctl("vm", "budget", "web2", "--connect", uri, "--json").stdout)
    assert entry["direct_bytes"] == 256 * MIB and entry["budget_bytes"] is None
    assert "not on donors" in dcmctl.fails("vm", "budget", "web1", "--connect", uri)
    said = dcmctl("vm", "redundancy", "web2", "--connect", uri).stdout
    assert said == "web2: redundancy what the configuration says\n"
    done = dcmctl("vm", "redundancy", "web2", "replica:2", "--connect", uri)
    assert done.stdout == "web2: redundancy replica:2 from its next start\n", done
    done = dcmctl("vm", "list", "--connect", node.uri(ENABLED, broken))
    assert done.returncode == 1 and "! web3: " in done.stdout and "web2" in done.stdout
    assert "no domain" in dcmctl("vm", "list", "--connect", node.uri(text_of())).stdout


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (["enable", "web1"], 2, "--direct SIZE"),
        (["enable", "web1", "--direct", "lots"], 2, "not a size"),
        (["enable", "web1", "--direct", "64K"], 2, "at least 1M"),
        (["enable", "web1", "--direct", "1G"], 1, "not less than all"),
        (["enable", "web1", "--direct", "8M", "--donor", "a/b"], 2, "not a name"),
        (["enable", "web1", "--direct", "8M", "--donor", "a", "--donor", "a"], 2, "twice"),
        (["enable", "nobody", "--direct", "8M"], 1, "libvirt: "),
        (["enable", "huge", "--direct", "8M"], 1, "huge pages"),
        (["disable", "web1"], 1, "nothing to disable"),
        (["budget", "web1", "8M"], 1, "not on donors"),
        (["redundancy", "web1", "replica:2"], 1, "not on donors"),
        (["redundancy", "web1", "two"], 2, "invalid choice"),
        (["enable", "web1", "--direct", "8M", "--redundancy", "2"], 2, "invalid choice"),
    ],
)
def test_errors_are_a_line(
    dcmctl: Cli, node: Node, words: list[str], status: int, why: str
) -> None:
    huge = text_of("huge", "<memoryBacking><hugepages/></memoryBacking>")
    uri = node.uri(text_of(), huge)
    assert why in dcmctl.fails("vm", *words, "--connect", uri, status=status)


def test_no_libvirt_there(dcmctl: Cli, tmp_path: Path) -> None:
    uri = f"qemu+unix:///system?socket={tmp_path}/none"
    assert "libvirt: " in dcmctl.fails("vm", "list", "--connect", uri)
    assert dcmctl("vm").returncode == 2


@pytest.mark.parametrize(
    ("chosen", "good", "said"),
    [
        ('<dcm:donor name="far"/>', True, "it may use far"),
        ('<dcm:group name="rack1"/><dcm:donor name="far"/>', True, "it may use near, far"),
        ('<dcm:donor name="next"/>', False, "has no donor next"),
        ('<dcm:donor name="far"/><dcm:group name="rack2"/>', False, "is in group rack2"),
    ],
)
def test_check_knows_the_donors_of_a_domain(
    dcmctl: Cli, node: Node, tmp_path: Path, keys: Path, chosen: str, good: bool, said: str
) -> None:
    conf = tmp_path / "hostd.conf"
    conf.write_text(
        f"[key]\nfile = {keys}\n[donor near]\naddress = tcp:127.0.0.1:1\ngroup = rack1\n"
        "[donor far]\naddress = tcp:127.0.0.1:2\n"
    )
    name = '"256M" added="source"'
    uri = node.uri(ENABLED.replace(f"{name}/>", f"{name}>{chosen}</dcm:memory>"))
    dcmctl.env["DCM_HOSTD_CONF"] = str(conf)
    done = dcmctl("vm", "check", "--connect", uri, "--json")
    lines = {line["what"]: line for line in json.loads(done.stdout)}
    line = lines["domain web2, donors"]
    assert (line["good"], said in line["said"]) == (good, True), line


def test_check_says_what_to_do(dcmctl: Cli, node: Node) -> None:
    """On a machine without any of the parts, each line that fails says what to do."""
    uri = node.uri(text_of(), ENABLED)
    done = dcmctl("vm", "check", "--connect", uri, "--json")
    assert done.returncode == 1 and done.stderr == ""
    lines = {line["what"]: line for line in json.loads(done.stdout)}
    assert lines["libvirt"]["good"] and lines["domain web2"]["good"]
    assert "domain web1" not in lines
    assert not lines["mount"]["good"]
    text = dcmctl("vm", "check", "web1", "--connect", uri).stdout.splitlines()
    assert all(line.startswith(("pass  ", "FAIL  ")) for line in text)
    assert any("dcmctl vm enable web1 --direct SIZE" in line for line in text)
