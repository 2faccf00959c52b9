# SPDX-License-Identifier: GPL-2.0-or-later
"""XML as elements that know their offsets in the text.

The offsets allow to change a few elements of a text; the rest, comments, prefixes and CDATA
included, remains the same byte for byte. expat is the parser. The text may be hostile: a DTD is
refused, so only XML's own entities exist, and size, depth and number of elements are bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.parsers import expat

from dcmctl.lib.errors import DcmError

SIZE_MAX = 8 << 20
DEPTH_MAX = 64
ELEMENTS_MAX = 100_000

# A start tag; expat has checked that it is well-formed.
_TAG = re.compile(rb"""<[^\s/>"']+(?:[^>"']|"[^"]*"|'[^']*')*>""")
_ATTRIBUTE = re.compile(rb"""\s+([^\s=>"'/]+)\s*=\s*(?:"[^"]*"|'[^']*')""")

# xml.sax.saxutils has this too, but imports an HTTP client: a fifth of the time dcmctl needs to
# start.
_IN_TEXT = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
_IN_VALUE = {**_IN_TEXT, ord('"'): "&quot;", 9: "&#9;", 10: "&#10;", 13: "&#13;"}


def escape(text: str) -> str:
    """Escape a text that is to stand between tags."""
    return text.translate(_IN_TEXT)


def quoted(value: str) -> str:
    """Escape and quote the value of an attribute."""
    return f'"{value.translate(_IN_VALUE)}"'


@dataclass
class Element:
    """One element. A name with a namespace is "URI name"; offsets are in bytes of the text."""

    name: str
    attributes: dict[str, str]
    start: int  # offset of its start tag
    inner: int = 0  # after its start tag
    close: int = 0  # offset of its end tag; equals `end` if it has none
    end: int = 0  # after its end tag
    children: list[Element] = field(default_factory=list)
    text: str = ""  # without the text of its children

    @property
    def is_empty_tag(self) -> bool:
        return self.close == self.end

    def all(self, *path: str) -> list[Element]:
        """All descendants that a path of element names leads to."""
        found = [self]
        for name in path:
            found = [child for element in found for child in element.children if child.name == name]
        return found

    def one(self, *path: str) -> Element | None:
        return next(iter(self.all(*path)), None)


class _Builder:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.root: Element | None = None
        self.open: list[Element] = []
        self.texts: list[list[str]] = []  # of open elements: parts, joined at the end tag
        self.count = 0
        self.parser = expat.ParserCreate("utf-8", " ")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.on_start
        self.parser.EndElementHandler = self.on_end
        self.parser.CharacterDataHandler = self.on_text
        self.parser.StartDoctypeDeclHandler = self.on_doctype

    def on_doctype(self, *_: object) -> None:
        raise DcmError("has a document type (DTD), which is not accepted")

    def on_start(self, name: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if self.count > ELEMENTS_MAX or len(self.open) >= DEPTH_MAX:
            raise DcmError(
                f"has more than {ELEMENTS_MAX} elements, or a depth of more than {DEPTH_MAX}"
            )
        start = self.parser.CurrentByteIndex
        element = Element(name, attributes, start)
        tag = _TAG.match(self.data, start)
        assert tag is not None  # expat has parsed it
        element.inner = tag.end()
        if tag.group().endswith(b"/>"):
            element.close = element.end = tag.end()
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.root = element
        self.open.append(element)
        self.texts.append([])

    def on_end(self, _: str) -> None:
        element = self.open.pop()
        element.text = "".join(self.texts.pop())
        if not element.end:
            element.close = self.parser.CurrentByteIndex
            element.end = self.data.index(b">", element.close) + 1

    def on_text(self, text: str) -> None:
        self.texts[-1].append(text)


def parse(data: bytes) -> Element:
    """Parse a text into its root element. DcmError's text completes a sentence: "the XML ..."."""
    if len(data) > SIZE_MAX:
        raise DcmError(f"is larger than {SIZE_MAX >> 20} MiB")
    builder = _Builder(data)
    try:
        builder.parser.Parse(data, True)
    except expat.ExpatError as exc:
        raise DcmError(f"is not XML: {expat.ErrorString(exc.code)}, line {exc.lineno}") from None
    assert builder.root is not None
    return builder.root


class Edit:
    """Changes to a text, all applied together."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.changes: list[tuple[int, int, bytes]] = []

    def replace(self, start: int, end: int, text: str) -> None:
        self.changes.append((start, end, text.encode()))

    def indent(self, element: Element) -> str:
        """The newline and blanks before an element; "" if other text is before it on the line."""
        line = self.data.rfind(b"\n", 0, element.start)
        before = self.data[line : element.start] if line >= 0 else b""
        return before.decode() if not before.strip() else ""

    def before(self, element: Element, text: str) -> None:
        """Insert lines before an element, indented as it is."""
        indent = self.indent(element)
        self.replace(element.start, element.start, text.replace("\n", indent or "\n") + indent)

    def append(self, element: Element, text: str) -> None:
        """Insert lines as the last children of an element."""
        indent = self.indent(element)
        deeper = f"{indent}  " if indent else ""
        inside = deeper + text.replace("\n", deeper or "\n")
        if element.is_empty_tag:
            tag = self.data[element.start : element.end]
            name = re.split(rb"[\s/>]", tag[1:], maxsplit=1)[0].decode()
            opened = tag[:-2].rstrip().decode()
            self.replace(element.start, element.end, f"{opened}>{inside}{indent}</{name}>")
            return
        at = element.children[-1].end if element.children else element.close
        if not self.data[element.inner : element.close].strip():
            self.replace(element.inner, element.close, inside + indent)
        else:
            self.replace(at, at, inside)

    def set_attribute(self, element: Element, name: str, value: str | None) -> None:
        """Set an attribute without a namespace, at the end if it is new; None: remove it."""
        text = "" if value is None else f" {name}={quoted(value)}"
        tag = self.data[element.start : element.inner]
        for found in _ATTRIBUTE.finditer(tag):
            if found[1].decode() == name:
                self.replace(element.start + found.start(), element.start + found.end(), text)
                return
        at = element.start + len(re.sub(rb"\s*/?>$", b"", tag))
        self.replace(at, at, text)

    def remove(self, element: Element) -> None:
        """Remove an element, and its line if nothing else is on it."""
        self.replace(element.start - len(self.indent(element).encode()), element.end, "")

    def result(self) -> bytes:
        text = self.data
        for start, end, new in sorted(self.changes, reverse=True):
            text = text[:start] + new + text[end:]
        return text
