# SPDX-License-Identifier: GPL-2.0-or-later
"""Fuzz the reader of libvirt's domain XML, and the changes that dcmctl makes to it.

An input is a text, a piece of a domain's text, or choices from which a tree of elements is made:
its text is always well-formed, so that the readers see many domains and not only expat's errors.
Every reader returns a valid value or raises DcmError. What enable() changes, disable() undoes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from xml.sax.saxutils import escape, quoteattr

import atheris

with atheris.instrument_imports(include=["dcmctl"]):
    from dcmctl.lib.errors import DcmError
    from dcmctl.libvirt import domain
    from dcmctl.libvirt.xmltree import Element, parse

NS = domain.NAMESPACE
MIB = 1 << 20
ELEMENTS_MAX = 16
EMULATORS = ("", "/usr/lib/kvm-dcm/dcm-qemu")
FIRST = ["domain", "domain", "domain", "network"]
NAMES = [
    "metadata", "dcm:memory", "dcm:donor", "dcm:group", "dcm:other", "memoryBacking", "source",
    "access", "allocation", "hugepages", "locked", "devices", "emulator", "disk", "interface",
    "hostdev", "filesystem", "driver", "memory", "maxMemory", "launchSecurity", "cpu", "numa",
    "cell", "os", "type", "name", "uuid", "vcpu", "q:commandline", "q:arg", "o:app",
]  # fmt: skip
ATTRIBUTES = [
    "direct", "pager", "added", "emulator", "name", "unit", "type", "mode", "redundancy", "arch",
    "machine", "value", "dcm:direct", "xmlns",
]  # fmt: skip
VALUES = [
    "", "kvm", "qemu", "xen", "64M", "4G", "1G", "1048576", "1048577", "999999999999999T",
    "99999999999999999999", "kernel", "user", "source", "access", "source access", "file",
    "anonymous", "shared", "private", "KiB", "GB", "bytes", "none", "x86_64", "aarch64", "pc",
    "q35", "pc-q35-10.0", "far", "near.2", "../x", "/usr/bin/kvm", "/usr/lib/kvm-dcm/dcm-qemu",
    "pci", "vhostuser", "virtiofs", "vdpa", "nvme", "immediate", "-m", "memory-backend-file",
    "3c7d5a52-6f3e-4f0c-9c3f-5a1d7f6f0001", "\u00b2", "\u0661", "\n", " ", "\r\n  ", "<b>&'\"",
]  # fmt: skip
MARKUP = ["<!-- <n> -->", "<![CDATA[<c>]]>", "<?p i?>", "&#13;", "\n", "\n  ", " ", "x"]
TOP = f"xmlns:dcm='{NS}' xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0' xmlns:o='urn:o'"
# A domain that can be changed, with a place for elements in <metadata>, and one at its end.
DOMAIN = f"""<domain type='kvm' {TOP}>
  <name>web1</name>
  <uuid>3c7d5a52-6f3e-4f0c-9c3f-5a1d7f6f0001</uuid>
  <metadata>%s</metadata>
  <memory unit='KiB'>1048576</memory>
  <vcpu>2</vcpu>
  <os><type arch='x86_64' machine='pc-q35-10.0'>hvm</type></os>
  <devices>%s</devices>
</domain>
"""


def pieces(fdp: atheris.FuzzedDataProvider) -> str:
    """Well-formed elements, text and markup, as the input chooses."""
    out: list[str] = []
    open_: list[str] = []
    for _ in range(ELEMENTS_MAX):
        if not fdp.remaining_bytes():
            break
        what = fdp.ConsumeIntInRange(0, 7)
        if what <= 3:
            name = fdp.PickValueInList(NAMES)
            said = {}
            for _ in range(fdp.ConsumeIntInRange(0, 3)):
                said[fdp.PickValueInList(ATTRIBUTES)] = fdp.PickValueInList(VALUES)
            text = "".join(f" {key}={quoteattr(value)}" for key, value in said.items())
            if what == 0:
                out.append(f"<{name}{text}/>")
            else:
                out.append(f"<{name}{text}>")
                open_.append(name)
        elif what == 4:
            out.append(escape(fdp.PickValueInList(VALUES)))
        elif what == 5:
            out.append(fdp.PickValueInList(MARKUP))
        elif open_:
            out.append(f"</{open_.pop()}>")
    out += [f"</{name}>" for name in reversed(open_)]
    return "".join(out)


def text_of(data: bytes) -> bytes:
    """The XML that an input stands for."""
    fdp = atheris.FuzzedDataProvider(data[1:])
    match data[0] % 4 if data else 0:
        case 0:
            return data[1:]
        case 1:
            return DOMAIN.encode().replace(b"%s", data[1:], 1).replace(b"%s", b"")
        case 2:
            kind = fdp.PickValueInList(VALUES)
            name = fdp.PickValueInList(FIRST)
            return f"<{name} {TOP} type={quoteattr(kind)}>{pieces(fdp)}</{name}>".encode()
        case _:
            split = fdp.ConsumeBool()
            inside = pieces(fdp)
            return (DOMAIN % (("", inside) if split else (inside, ""))).encode()


def ask(reader: Callable[[], object]) -> object:
    """The result of a reader; None for an error, which must be one line."""
    try:
        return reader()
    except DcmError as exc:
        said = str(exc)
        assert said and said.isprintable() and len(said) <= 1000, said
        return None


Tree = tuple[str, tuple[tuple[str, str], ...], str, tuple["Tree", ...]]


def tree(element: Element) -> Tree:
    """The content of an element, without blanks and without empty elements that disable() removes.

    Of <emulator> only the text counts, as libvirt reads no more of it, and dcm-qemu counts as none:
    without <dcm:memory> it can't start.
    """
    text = "".join(element.text.split())
    if element.name == "emulator":
        return element.name, (), "" if text.endswith("/dcm-qemu") else text, ()
    children = [tree(child) for child in element.children]
    emptied = [(name, (), "", ()) for name in ("metadata", "memoryBacking", "emulator")]
    kept = tuple(child for child in children if child not in emptied)
    return element.name, tuple(sorted(element.attributes.items())), text, kept


def change(data: bytes, before: Element, emulator: str) -> None:
    """enable(), a changed budget, disable(): the domain is as before."""
    had = ask(lambda: domain.find_memory(before))
    after = ask(lambda: domain.enable(data, MIB, ("far",), groups=("g",), emulator=emulator))
    if not isinstance(after, bytes):
        return
    memory = domain.find_memory(domain.read_domain(after))
    assert memory is not None and (memory.direct, memory.chosen) == (MIB, ("far", "@g"))
    more = domain.enable(after, 2 * MIB, emulator=emulator)
    assert domain.enable(more, MIB, emulator=emulator) == after
    back = parse(domain.disable(more))
    assert domain.find_memory(back) is None
    if emulator and len(before.all("devices", "emulator")) <= 1:
        assert not domain.emulator_of(back).endswith("/dcm-qemu")
    if had is None:
        assert tree(back) == tree(before), (data, domain.disable(more))


def test_one(data: bytes) -> None:
    text = text_of(data)
    root = ask(lambda: domain.read_domain(text))
    if not isinstance(root, Element):
        return
    memory = ask(lambda: domain.find_memory(root))
    if isinstance(memory, domain.Memory):
        assert memory.direct >= MIB and memory.direct % 4096 == 0
        assert domain.read_memory(parse(memory.to_xml().encode())) == memory
        ask(lambda: list(domain.why_not_now(root, memory)))
    size = ask(lambda: domain.size_of(root))
    assert size is None or (isinstance(size, int) and size > 0)
    uuid = ask(lambda: domain.uuid_of(root))
    assert uuid is None or domain.UUID.fullmatch(str(uuid))
    assert domain.name_of(root).isprintable()
    how = data[0] // 4 if data else 0
    pager = domain.PAGERS[how // 4 % 2]
    assert all(why.isprintable() for why in domain.why_not(root, pager=pager))
    # Changes parse the domain six times: a quarter of the inputs are changed.
    if how % 4 == 0:
        change(text, root, EMULATORS[how // 4 % 2])


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one)
    atheris.Fuzz()
