# SPDX-License-Identifier: GPL-2.0-or-later
"""A domain's balloon, by which the guest reports memory that it has freed (free page reporting).

    <memballoon model='virtio' freePageReporting='on'/>

QEMU discards memory that is reported, so the pager doesn't write it to donors. libvirt gives each
QEMU domain a balloon. enable() adds the attribute if it is missing; it changes neither a value that
the user has set nor a balloon of another model.
"""

from __future__ import annotations

from dcmctl.lib.errors import printable
from dcmctl.libvirt.xmltree import Edit, Element

ATTRIBUTE = "freePageReporting"
ADDED = "reporting"  # in added= of <dcm:memory>: enable() added the attribute


def _find(root: Element) -> Element | None:
    """The domain's balloon, if its model can report free pages."""
    element = root.one("devices", "memballoon")
    if element is None or not element.attributes.get("model", "").startswith("virtio"):
        return None
    return element


def why_not(root: Element) -> str | None:
    """The reason why the guest doesn't report memory that it frees; None if it does."""
    element = _find(root)
    if element is None:
        return "it has no <memballoon model='virtio'>"
    value = element.attributes.get(ATTRIBUTE)
    if value is None:
        return f"its <memballoon> has no {ATTRIBUTE}='on'"
    return None if value == "on" else f"its <memballoon> has {ATTRIBUTE}='{printable(value, 20)}'"


def enable(edit: Edit, root: Element, wanted: str | None, ours: bool) -> bool:
    """Turn reporting on or off ("yes", "no"; None: leave it as it is).

    `ours`: an earlier enable() added the attribute. Returns whether it is ours after this call.
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
    """Remove the attribute that enable() added."""
    element = _find(root)
    if element is not None and ATTRIBUTE in element.attributes:
        edit.set_attribute(element, ATTRIBUTE, None)
