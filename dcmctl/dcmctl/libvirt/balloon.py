# SPDX-License-Identifier: GPL-2.0-or-later
"""A domain's balloon, by which the guest reports memory that it has freed (free page reporting).

    <memballoon model='virtio' freePageReporting='on'/>

QEMU discards what is reported, so the pager writes it to no donor. libvirt gives each domain of
QEMU a balloon. enable() sets the attribute where it is missing; one that the user has set, and a
balloon of another model, stay as they are.
"""

from __future__ import annotations

from dcmctl.lib.errors import printable
from dcmctl.libvirt.xmltree import Edit, Element

ATTRIBUTE = "freePageReporting"
ADDED = "reporting"  # in added= of <dcm:memory>: the attribute is enable()'s


def _find(root: Element) -> Element | None:
    """The balloon, if it is one that can report."""
    element = root.one("devices", "memballoon")
    if element is None or not element.attributes.get("model", "").startswith("virtio"):
        return None
    return element


def why_not(root: Element) -> str | None:
    """Why memory that the guest frees is not reported; None if it is."""
    element = _find(root)
    if element is None:
        return "it has no <memballoon model='virtio'>"
    value = element.attributes.get(ATTRIBUTE)
    if value is None:
        return f"its <memballoon> has no {ATTRIBUTE}='on'"
    return None if value == "on" else f"its <memballoon> has {ATTRIBUTE}='{printable(value, 20)}'"


def enable(edit: Edit, root: Element, wanted: str | None, ours: bool) -> bool:
    """Turn reporting on or off ("yes", "no"; None: leave it). `ours`: enable() did so before.

    Returns whether the attribute is enable()'s now.
    """
    element = _find(root)
    if element is None:
        return False
    now = element.attributes.get(ATTRIBUTE)
    if now is None and wanted is None:
        return False
    if now is not None and not ours:
        return False
    value = {"yes": "on", "no": "off"}.get(wanted or "", now)
    if value != now:
        edit.set_attribute(element, ATTRIBUTE, value)
    return True


def disable(edit: Edit, root: Element) -> None:
    """Remove the attribute that enable() has set."""
    element = _find(root)
    if element is not None and ATTRIBUTE in element.attributes:
        edit.set_attribute(element, ATTRIBUTE, None)
