# SPDX-License-Identifier: GPL-2.0-or-later
"""A domain's XML: <dcm:memory>, domains that are refused, and changes of a domain."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcmctl.lib.errors import DcmError
from dcmctl.libvirt import balloon, domain
from dcmctl.libvirt.domain import DomainError, Memory
from dcmctl.libvirt.xmltree import DEPTH_MAX, SIZE_MAX, Element, parse
from tests.dcmctl.support import TOP

SCHEMA = TOP / "dcmctl" / "schema" / "domain.rng"
NS = 'xmlns:dcm="urn:kvm-dcm:domain:1"'
MIB = 1 << 20

PLAIN = """<domain type='kvm'>
  <name>web1</name>
  <uuid>3c7d5a52-6f3e-4f0c-9c3f-5a1d7f6f0001</uuid>
  {metadata}<memory unit='KiB'>1048576</memory>
  {backing}<vcpu placement='static'>2</vcpu>
  <os>
    <type arch='x86_64' machine='pc-q35-10.0'>hvm</type>
  </os>
  {more}<devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>{devices}
  </devices>
</domain>
"""


def make(metadata: str = "", backing: str = "", more: str = "", devices: str = "") -> bytes:
    return PLAIN.format(
        metadata=metadata and f"<metadata>{metadata}</metadata>\n  ",
        backing=backing and f"<memoryBacking>{backing}</memoryBacking>\n  ",
        more=more,
        devices=devices,
    ).encode()


def read(element: str) -> Memory | None:
    return domain.find_memory(domain.read_domain(make(element)))


def error(data: bytes) -> str:
    """The error line with which a text is refused."""
    with pytest.raises(DcmError) as caught:
        domain.find_memory(domain.read_domain(data))
    text = str(caught.value)
    assert text and "\n" not in text and text.isprintable()
    return text


def schema_takes(element: str, tmp_path: Path) -> bool:
    file = tmp_path / "element.xml"
    file.write_text(element)
    done = subprocess.run(
        ["xmllint", "--nonet", "--noout", "--relaxng", str(SCHEMA), str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr
    return done.returncode == 0


# ---- the element ----

GOOD = [
    (f'<dcm:memory {NS} direct="4G"/>', Memory(4 << 30)),
    (
        '<memory xmlns="urn:kvm-dcm:domain:1" direct="1GiB" redundancy="none"/>',
        Memory(1 << 30, redundancy="none"),
    ),
    (
        f'<dcm:memory {NS} direct="1G" redundancy="replica:2"/>',
        Memory(1 << 30, redundancy="replica:2"),
    ),
    (
        f'<dcm:memory {NS} direct="64M" added="source access"><!-- x -->\n'
        '<dcm:donor name="far"/> <dcm:donor name="near.2"/></dcm:memory>',
        Memory(64 * MIB, ("far", "near.2"), ("source", "access")),
    ),
    (f'<dcm:memory {NS} direct="1048576" added="access"/>', Memory(MIB, (), ("access",))),
    (
        f'<dcm:memory {NS} direct="1G"><dcm:group name="rack1"/><dcm:donor name="rack1"/>'
        '<dcm:group name="rack2"/></dcm:memory>',
        Memory(1 << 30, ("rack1",), (), ("rack1", "rack2")),
    ),
    (
        f'<dcm:memory {NS} direct="1G" added="source reporting"/>',
        Memory(1 << 30, added=("source", "reporting")),
    ),
    (
        f'<dcm:memory {NS} direct="1G" added="reporting" pager="user"/>',
        Memory(1 << 30, added=("reporting",), pager="user"),
    ),
    (f'<dcm:memory {NS} direct="1G" pager="kernel"/>', Memory(1 << 30)),
    (f'<dcm:memory {NS} direct="1G" seal="no"/>', Memory(1 << 30, seal="no")),
    (f'<dcm:memory {NS} direct="1G" seal="yes"/>', Memory(1 << 30, seal="yes")),
    (
        f'<dcm:memory {NS} direct="1G" seal="yes" pager="user"/>',
        Memory(1 << 30, pager="user", seal="yes"),
    ),
    (
        f'<dcm:memory {NS} direct="1G" pager="user" emulator="/usr/bin/kvm"/>',
        Memory(1 << 30, pager="user", emulator="/usr/bin/kvm"),
    ),
]
BAD = [
    (f"<dcm:memory {NS}/>", "direct"),
    (f'<dcm:memory {NS} direct=""/>', "not a size"),
    (f'<dcm:memory {NS} direct="0"/>', "not a size"),
    (f'<dcm:memory {NS} direct="-4G"/>', "not a size"),
    (f'<dcm:memory {NS} direct="4 GB"/>', "not a size"),
    (f'<dcm:memory {NS} direct="4G&#10;"/>', "not a size"),
    (f'<dcm:memory {NS} direct="1G" redundancy="2"/>', "not one of none, replica:2, replica:3"),
    (f'<dcm:memory {NS} direct="1G" redundancy=""/>', "not one of"),
    (f'<dcm:memory {NS} direct="1G" seal="aes" pager="user"/>', "neither yes nor no"),
    (f'<dcm:memory {NS} direct="1G" seal=""/>', "neither yes nor no"),
    (f'<dcm:memory {NS} direct="1G" added="everything"/>', "added"),
    (f'<dcm:memory {NS} direct="1G" added=""/>', "added"),
    (f'<dcm:memory {NS} direct="1G" added="access source"/>', "added"),
    (f'<dcm:memory {NS} direct="1G" added="source  access"/>', "added"),
    (f'<dcm:memory {NS} direct="1G" share="2"/>', "no attribute 'share'"),
    (f'<dcm:memory {NS} direct="1G" pager="mine"/>', "'kernel' or 'user'"),
    (f'<dcm:memory {NS} direct="1G" pager="user" emulator="kvm"/>', "not written by dcmctl"),
    (f'<dcm:memory {NS} direct="1G" dcm:direct="2G"/>', "no attribute"),
    (f'<dcm:memory {NS} direct="1G">text</dcm:memory>', "no text"),
    (f'<dcm:memory {NS} direct="1G"><dcm:donor/></dcm:memory>', "nothing else"),
    (f'<dcm:memory {NS} direct="1G"><donor name="a"/></dcm:memory>', "nothing else"),
    (f'<dcm:memory {NS} direct="1G"><dcm:donor name="../x"/></dcm:memory>', "not the name"),
    (f'<dcm:memory {NS} direct="1G"><dcm:group name="@a"/></dcm:memory>', "name of a group"),
    (f'<dcm:memory {NS} direct="1G"><dcm:donor name="a">b</dcm:donor></dcm:memory>', "no text"),
    (
        f'<dcm:memory {NS} direct="1G"><dcm:donor name="a" x="1"/></dcm:memory>',
        "nothing else",
    ),
    (f'<dcm:group {NS} name="a"/>', "only known element"),
]
# Errors that the schema can't express.
BAD_FOR_US = [
    (f'<dcm:memory {NS} direct="4096"/>', "at least 1M"),
    (f'<dcm:memory {NS} direct="1048577"/>', "whole pages"),
    (f'<dcm:memory {NS} direct="1G" emulator="/usr/bin/kvm"/>', "not written by dcmctl"),
    (f'<dcm:memory {NS} direct="1G" pager="user" added="source"/>', "added="),
    (f'<dcm:memory {NS} direct="9999999999999999T"/>', "at most"),
    (
        f'<dcm:memory {NS} direct="1G"><dcm:donor name="a"/><dcm:donor name="a"/></dcm:memory>',
        "donor 'a' is there twice",
    ),
    (
        f'<dcm:memory {NS} direct="1G"><dcm:group name="a"/><dcm:group name="a"/></dcm:memory>',
        "group 'a' is there twice",
    ),
    (
        f'<dcm:memory {NS} direct="1G">'
        + "".join(f'<dcm:group name="g{i}"/>' for i in range(65))
        + "</dcm:memory>",
        "more than 64 groups",
    ),
]


@pytest.mark.parametrize(("text", "memory"), GOOD)
def test_elements_taken(text: str, memory: Memory, tmp_path: Path) -> None:
    assert read(text) == memory
    assert schema_takes(text, tmp_path)
    again = memory.to_xml()
    assert read(again) == memory and schema_takes(again, tmp_path)


@pytest.mark.parametrize(("text", "why"), BAD)
def test_elements_refused(text: str, why: str, tmp_path: Path) -> None:
    assert why in error(make(text))
    assert not schema_takes(text, tmp_path)


@pytest.mark.parametrize(("text", "why"), BAD_FOR_US)
def test_elements_refused_by_us(text: str, why: str, tmp_path: Path) -> None:
    assert why in error(make(text))
    assert schema_takes(text, tmp_path)


def test_only_our_element_in_its_place() -> None:
    other = '<o:memory xmlns:o="urn:other" direct="nonsense"/>'
    assert read(other) is None
    ours = f'<dcm:memory {NS} direct="1G"/>'
    assert read(other + ours) == Memory(1 << 30)
    assert domain.find_memory(domain.read_domain(make(more=f"<x>{ours}</x>"))) is None
    assert "more than once" in error(make(ours + ours))


# ---- hostile texts ----


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not XML"),
        (b"\xff\xfe<domain/>", "not XML"),
        (b"<domain>", "not XML"),
        (b"<domain/><domain/>", "not XML"),
        (b"<network/>", "not of a domain"),
        (b'<!DOCTYPE d [<!ENTITY a "aaaa">]><domain>&a;</domain>', "document type"),
        (b'<!DOCTYPE d SYSTEM "file:///etc/passwd"><domain/>', "document type"),
        (b"<domain>&nosuch;</domain>", "not XML"),
        (b"<domain>" + b"<a>" * DEPTH_MAX + b"</a>" * DEPTH_MAX + b"</domain>", "depth of more"),
        (b"<domain>" + b"<a/>" * 100_001 + b"</domain>", "more than"),
        (b"<domain>" + b" " * SIZE_MAX + b"</domain>", "larger"),
        (b"<\x1b[31m/>", "not XML"),
    ],
)
def test_hostile_texts(data: bytes, why: str) -> None:
    assert why in error(data)


@given(st.binary(max_size=300) | st.text(alphabet="<>/='\"&;! \n[]ademoinry:", max_size=200))
def test_any_text_is_read_or_refused(data: bytes | str) -> None:
    raw = data if isinstance(data, bytes) else data.encode()
    for text in (raw, b"<domain>" + raw + b"</domain>", make(raw.decode("utf-8", "replace"))):
        try:
            domain.find_memory(domain.read_domain(text))
        except DcmError as exc:
            assert "\n" not in str(exc)


def test_many_pieces_of_text_take_long() -> None:
    """Many children are parsed in linear time: 7 MB once took minutes of libvirt's time."""
    piece = "x" * 70
    began = time.process_time()
    root = parse(("<r>\u20ac" + (piece + "<a/>") * 99_000 + "</r>").encode())
    took = time.process_time() - began
    assert root.text == "\u20ac" + piece * 99_000 and len(root.children) == 99_000
    print(f"{took:.1f} s of CPU")
    assert took < 20


# Any XML: nested elements, attributes, namespaces, text, CDATA, references.
_names = st.sampled_from(
    ["domain", "metadata", "memory", "dcm:memory", "dcm:donor", "dcm:group", "uuid", "name", "a"]
)
_values = st.text(alphabet="4GKab &<>'\"\n\u00b2\U0001d7d8", max_size=6) | st.sampled_from(
    ["4G", "999999999999999T", "kernel", "user", "source access", "/usr/bin/x", "9" * 300]
)
_attributes = st.dictionaries(
    st.sampled_from(["direct", "pager", "added", "emulator", "name", "unit", "type", "redundancy"]),
    _values,
    max_size=4,
)


def _element(name: str, attributes: dict[str, str], inside: str) -> str:
    said = "".join(f" {key}={quoteattr(value)}" for key, value in attributes.items())
    return f"<{name} {NS}{said}>{inside}</{name}>"


_trees = st.recursive(
    st.text(max_size=6).map(escape) | st.sampled_from(["<![CDATA[<]]>", "<!--x-->", "&#178;"]),
    lambda inside: st.builds(
        _element, _names, _attributes, st.lists(inside, max_size=4).map("".join)
    ),
    max_leaves=12,
)


@given(_trees, _attributes)
@pytest.mark.slow
def test_any_tree_is_a_domain_or_one_error(inside: str, attributes: dict[str, str]) -> None:
    """Any domain: each reader returns a valid value, or raises an error of one line."""
    data = _element("domain", attributes, inside).encode("utf-8", "replace")

    def ask(reader: Callable[[Element], object]) -> object:
        try:
            return reader(domain.read_domain(data))
        except DcmError as exc:
            assert "\n" not in str(exc) and len(str(exc)) < 500
            return None

    memory = ask(domain.find_memory)
    if isinstance(memory, Memory):
        assert memory.direct >= MIB and memory.direct % 4096 == 0
        assert domain.read_memory(parse(memory.to_xml().encode())) == memory
    size, uuid = ask(domain.size_of), ask(domain.uuid_of)
    assert size is None or (isinstance(size, int) and size > 0)
    assert uuid is None or domain.UUID.fullmatch(str(uuid))
    ask(domain.emulator_of)
    whys = ask(lambda root: [why for p in domain.PAGERS for why in domain.why_not(root, pager=p)])
    assert "\\n" not in str(whys)


@given(st.recursive(
    st.text(alphabet="ab \n'\"\u20ac", max_size=8),
    lambda inside: st.lists(inside, max_size=3).map(
        lambda parts: "<a b='1&gt;' c=\"'/>\">" + "x".join(parts) + "</a ><e/><!-- <n> -->"
        "<![CDATA[<c>]]>"
    ),
    max_leaves=8,
))  # fmt: skip
def test_elements_know_where_they_are(inside: str) -> None:
    """The text between an element's offsets is that element."""
    data = f"<r>{inside}</r>".encode()

    def walk(element: object) -> None:
        for child in element.children:  # type: ignore[attr-defined]
            text = data[child.start : child.end]
            assert text.startswith(f"<{child.name}".encode()) and text.endswith(b">")
            again = parse(text)
            assert (again.name, again.attributes, again.text) == (
                child.name, child.attributes, child.text,
            )  # fmt: skip
            assert len(again.children) == len(child.children)
            walk(child)

    root = parse(data)
    assert (root.start, root.end) == (0, len(data))
    walk(root)


# ---- which domains can't be ----

CELL = "<cpu><numa><cell id='0' cpus='0-1' memory='1' unit='GiB'/></numa></cpu>"
QEMU_NS = "http://libvirt.org/schemas/domain/qemu/1.0"
REFUSED = [
    (make(backing="<hugepages/>"), "huge pages"),
    (make(backing="<locked/>"), "can't leave"),
    (make(backing="<discard/>"), "discarded"),
    (make(backing="<allocation mode='immediate'/>"), "immediate"),
    (make(backing="<source type='memfd'/>"), "it must be 'file'"),
    (make(backing="<source type='file'/><access mode='private'/>"), "must be 'shared'"),
    (make(more=CELL), "NUMA"),
    (make(more="<maxMemory slots='4' unit='GiB'>8</maxMemory>"), "plugged in"),
    (make(devices="<memory model='dimm'/>"), "plugged in"),
    (make(more="<launchSecurity type='sev'/>"), "confidential"),
    (make(devices="<hostdev mode='subsystem' type='pci'/>"), "pins"),
    (make(devices="<hostdev mode='subsystem' type='mdev'/>"), "pins"),
    (make(devices="<interface type='hostdev'/>"), "pins"),
    (make(devices="<interface type='vdpa'/>"), "pins"),
    (make(devices="<disk type='nvme' device='disk'/>"), "pins"),
    (make().replace(b"type='kvm'", b"type='xen'"), "only QEMU's"),
    (make().replace(b"pc-q35-10.0", b"microvm"), "only the x86_64 machines"),
    (make().replace(b"x86_64' m", b"aarch64' m"), "only the x86_64 machines"),
    (
        make(
            more=f"<q:commandline xmlns:q='{QEMU_NS}'><q:arg value='-object'/>"
            "<q:arg value='memory-backend-file,id=x'/></q:commandline>"
        ),
        "qemu:commandline",
    ),
    (make().replace(b"1048576<", b"1048576 x<"), "not a size"),
    (make().replace(b"<vcpu placement='static'>2</vcpu>", b"").replace(b"1048576", b"64"), "less"),
]


@pytest.mark.parametrize(("data", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_domains_refused(data: bytes, why: str) -> None:
    with pytest.raises(DomainError) as caught:
        domain.enable(data, 64 * MIB)
    assert why in str(caught.value) and "\n" not in str(caught.value)


def test_devices_that_pin_nothing_are_taken() -> None:
    devices = (
        "<hostdev mode='subsystem' type='usb'/><interface type='network'/>"
        "<interface type='vhostuser'/><disk type='file' device='disk'/><memballoon model='virtio'/>"
    )
    assert domain.enable(make(devices=devices), 64 * MIB)


@pytest.mark.parametrize(
    ("unit", "factor"), [("b", 1), ("KB", 1000), ("MiB", MIB), ("GiB", 1 << 30)]
)
def test_memory_in_any_unit(unit: str, factor: int) -> None:
    count = (3 << 30) // factor
    text = make().replace(b"unit='KiB'>1048576", f"unit='{unit}'>{count}".encode())
    size = domain.size_of(domain.read_domain(text))
    assert count * factor <= size < count * factor + 1024


# ---- changes ----

OTHERS = '<o:app xmlns:o="urn:o" a="x&#10;y">&#13;<![CDATA[<b>]]><!-- c --></o:app>'


@pytest.mark.parametrize(
    "before",
    [
        make(),
        make(OTHERS),
        make(f"\n    {OTHERS}\n  "),
        make(backing="<nosharepages/>"),
        make(backing="\n    <nosharepages/>\n  "),
        make(backing="<source type='file'/>"),
        make(backing="<!-- mine --><access mode='shared'/>"),
        make(OTHERS, "<source type='file'/><access mode='shared'/>"),
        make().replace(b"\n", b"").replace(b"  ", b""),
        make().replace(b"\n", b"\r\n"),
    ],
)
def test_enable_and_disable_leave_all_else(before: bytes) -> None:
    after = domain.enable(before, 64 * MIB, ("far",))
    root = domain.read_domain(after)
    memory = domain.find_memory(root)
    assert memory is not None and (memory.direct, memory.donors) == (64 * MIB, ("far",))
    assert list(domain.why_not_now(root, memory)) == []
    assert domain.disable(after) == before
    # Another budget: the donors stay, and so does the note of what disable() must remove.
    more = domain.enable(after, 128 * MIB)
    again = domain.find_memory(domain.read_domain(more))
    assert again == Memory(128 * MIB, ("far",), memory.added)
    assert domain.disable(more) == before
    assert domain.enable(after, 64 * MIB) == after
    # Donors and groups are one choice: new ones replace both.
    group = domain.enable(after, 64 * MIB, groups=("rack1",))
    memory = domain.find_memory(domain.read_domain(group))
    assert memory is not None and memory.chosen == ("@rack1",)
    both = domain.enable(group, 64 * MIB, ("far",), groups=("rack2",))
    memory = domain.find_memory(domain.read_domain(domain.enable(both, 32 * MIB)))
    assert memory is not None and memory.chosen == ("far", "@rack2")
    assert domain.disable(both) == before


@pytest.mark.parametrize(
    "program", ["", "<emulator>/usr/bin/kvm</emulator>", "<emulator>\n  /a&amp;b\n</emulator>"]
)
def test_a_domain_that_libdcm_pages(program: str) -> None:
    """enable() sets <emulator> and leaves <memoryBacking>; disable() undoes it."""
    ours = "/usr/lib/kvm-dcm/dcm-qemu"
    given = b"<emulator>/usr/bin/qemu-system-x86_64</emulator>"
    before = make(OTHERS, devices="<memballoon model='none'/>").replace(given, program.encode())
    after = domain.enable(before, 64 * MIB, ("far",), emulator=ours)
    root = domain.read_domain(after)
    memory = domain.find_memory(root)
    was = domain.emulator_of(domain.read_domain(before))
    assert memory == Memory(64 * MIB, ("far",), pager="user", emulator=was)
    assert domain.emulator_of(root) == ours
    assert root.one("memoryBacking") is None
    assert list(domain.why_not_now(root, memory)) == []
    assert domain.enable(after, 64 * MIB, emulator=ours) == after
    back = domain.disable(after)
    assert domain.emulator_of(domain.read_domain(back)) == was
    if program and "\n" not in program:
        assert back == before
    # The pager can't be changed without disable(), and a changed <emulator> is noticed.
    with pytest.raises(DomainError, match="vm disable first"):
        domain.enable(after, 64 * MIB)
    root = domain.read_domain(after.replace(ours.encode(), b"/usr/bin/kvm"))
    assert "not dcm-qemu" in "; ".join(domain.why_not_now(root, memory))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (make(backing="<source type='file'/>"), "must be 'anonymous'"),
        (make(backing="<access mode='shared'/>"), "must be 'private'"),
        (make(devices="<interface type='vhostuser'/>"), "another process can map"),
        (make(devices="<filesystem><driver type='virtiofs'/></filesystem>"), "virtiofs"),
        (make(backing="<hugepages/>"), "huge pages"),
    ],
)
def test_memory_that_is_not_qemus_own(data: bytes, why: str) -> None:
    with pytest.raises(DomainError, match=why):
        domain.enable(data, 64 * MIB, emulator="/usr/lib/kvm-dcm/dcm-qemu")


PCI = "<address type='pci' domain='0x0000' bus='0x00' slot='0x06' function='0x0'/>"


@pytest.mark.parametrize("emulator", ["", "/usr/lib/kvm-dcm/dcm-qemu"])
@pytest.mark.parametrize(
    ("element", "enabled"),
    [
        ("<memballoon model='virtio'/>", "<memballoon model='virtio' {}/>"),
        (
            f"<memballoon  model='virtio' >\n      {PCI}\n    </memballoon>",
            f"<memballoon  model='virtio' {{}} >\n      {PCI}\n    </memballoon>",
        ),
        (
            "<memballoon model=\"virtio-non-transitional\" autodeflate='on'\n/>",
            "<memballoon model=\"virtio-non-transitional\" autodeflate='on' {}\n/>",
        ),
    ],
)
def test_balloon_reports(element: str, enabled: str, emulator: str) -> None:
    """Reporting is turned on, and off, and disable() leaves the balloon as it was."""
    before = make(devices=element)

    def enable(data: bytes, reporting: str | None) -> bytes:
        return domain.enable(data, 64 * MIB, emulator=emulator, reporting=reporting)

    on, off = enable(before, "yes"), enable(before, "no")
    assert enabled.format('freePageReporting="on"').encode() in on
    assert enabled.format('freePageReporting="off"').encode() in off
    assert balloon.why_not(domain.read_domain(on)) is None
    assert balloon.why_not(domain.read_domain(off)) is not None
    for data in (on, off):
        assert domain.disable(data) == before
        assert enable(data, None) == data  # another budget, say
        assert enable(data, "yes") == on and enable(data, "no") == off
    memory = domain.find_memory(domain.read_domain(on))
    assert memory is not None and memory.added[-1] == "reporting"
    # Without the option nothing is changed, and nothing is written down.
    assert b"eporting" not in enable(before, None)
    # An attribute that the user removed afterwards is set again.
    gone = on.replace(b' freePageReporting="on"', b"")
    assert domain.disable(gone) == before and enable(gone, "yes") == on


@pytest.mark.parametrize(
    ("element", "why"),
    [
        ("<memballoon model='none'/>", "no <memballoon model='virtio'>"),
        ("<memballoon model='xen'/>", "no <memballoon model='virtio'>"),
        ("", "no <memballoon model='virtio'>"),
        ("<memballoon model='virtio' freePageReporting='off'/>", "freePageReporting='off'"),
        ("<memballoon model='virtio' freePageReporting='on'/>", None),
    ],
)
def test_balloon_of_the_users_stays(element: str, why: str | None) -> None:
    before = make(devices=element)
    for wanted in ("yes", "no"):
        after = domain.enable(before, 64 * MIB, reporting=wanted)
        assert element.encode() in after
        memory = domain.find_memory(domain.read_domain(after))
        assert memory is not None and memory.added == ("source", "access")
        said = balloon.why_not(domain.read_domain(after))
        assert said == why if why is None else said is not None and why in said
        assert domain.disable(after) == before


def test_disable_what_is_not_enabled() -> None:
    with pytest.raises(DomainError, match="not on donors"):
        domain.disable(make(OTHERS))


def test_an_element_by_hand_needs_its_backing() -> None:
    root = domain.read_domain(make(f'<dcm:memory {NS} direct="1G"/>'))
    memory = domain.find_memory(root)
    assert memory is not None
    said = "; ".join(domain.why_not_now(root, memory))
    assert "no <source type='file'/>" in said and "no <access mode='shared'/>" in said
    assert "nothing would be on donors" in said
