# SPDX-License-Identifier: GPL-2.0-or-later
"""Configurations of libdcm and dcm-hostd, checked before a program is started.

`--config FILE`, /etc/kvm-dcm/host.conf and the file that `dcmctl run` writes for one VM have the
same format. libdcm reads it with kvm-dcm/lib/ini.c, this module with configparser, so only the
common subset is accepted: lines `name = value`, no continuation lines, no quoting, no control
characters.
"""

from __future__ import annotations

import configparser
import io
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from dcmctl.lib.address import Address, Donor, check_name
from dcmctl.lib.errors import DcmError, UsageError, reason, printable
from dcmctl.lib.keyfile import check_tenant
from dcmctl.lib.units import PAGE, exact_size, format_size, parse_size



def host_conf() -> Path:
    """The path of host.conf: $DCM_HOST_CONF, else the user's own (not for root), else /etc's."""
    own = Path(os.path.expanduser("~")) / ".config" / "kvm-dcm" / "host.conf"
    if given := os.environ.get("DCM_HOST_CONF"):
        return Path(given)
    return own if os.geteuid() and own.is_file() else Path("/etc/kvm-dcm/host.conf")


HOST_CONF = host_conf()
CONFIG_MAX = 64 << 10
DONORS_MAX = 64
LANES_MAX = 64
SCATTER_MAX = 63
BUDGET_MIN = 1 << 20
# QEMU maps video memory and ROMs in the same way as RAM, so libdcm pages them too.
QEMU_EXTRA = 256 << 20
LINE_MAX = 190  # DCM_INI_LINE_MAX

# The settings of each section; scripts/check-options compares them with the C reader's.
KEYS = {
    "vm": (
        *("name", "budget", "size", "threshold", "mode", "lanes", "on-loss"),
        *("redundancy", "rebuild-rate", "disk-lag", "scatter", "cold-after", "extent"),
        *("data-encryption", "seal", "transport", "patience", "donors"),
    ),
    "key": ("tenant", "file"),
    "donor": ("address", "status", "drain", "group"),
}
MODES = ("qemu", "program")
ON_LOSS = ("pause", "sigbus")
# By setting: how many donors have each page, and how many of these donors lend files.
REDUNDANCY = {
    "none": (1, 0),
    "replica:2": (2, 0),
    "replica:3": (3, 0),
    "disk": (2, 1),
    "disk:lazy": (2, 1),
    "replica:2+disk": (3, 1),
}
TRANSPORTS = ("auto", "tcp", "verbs")
_DONOR = re.compile(r"donor +(?P<name>[^ ].*)")
_TUNABLE = re.compile(r"[a-z][a-z0-9_]{0,46}")
STATUS = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,120}):\d{1,5}", re.ASCII)
_WORDS = {
    "yes": True,
    "true": True,
    "on": True,
    "1": True,
    "no": False,
    "false": False,
    "off": False,
    "0": False,
}


def duration(text: str, option: str) -> str:
    """Check that a time is 1s to 1440min; return it as it is written."""
    match = re.fullmatch(r"([0-9]{1,9})(ms|s|min)", text)
    unit = {"ms": 1, "s": 1000, "min": 60000}
    if match is None or not 1000 <= int(match[1]) * unit[match[2]] <= 86400000:
        raise UsageError(
            f"{option} {printable(text, 40)}: not a time from 1s to 1440min; write for example 60s"
        )
    return text


@dataclass(frozen=True)
class Settings:
    """The configuration of one VM. For a setting that is None libdcm uses its default."""

    name: str | None = None
    budget: int | None = None
    size: int | None = None
    threshold: int | None = None
    mode: str | None = None
    lanes: int | None = None
    on_loss: str | None = None
    redundancy: str | None = None
    rebuild_rate: int | None = None
    disk_lag: int | None = None
    scatter: int | None = None
    cold_after: str | None = None
    extent: int | None = None
    data_encryption: bool | None = None
    seal: bool | None = None
    transport: str | None = None
    patience: str | None = None
    tenant: str | None = None
    keys: Path | None = None
    donors: tuple[Donor, ...] = ()  # including those of donors_file
    donors_file: Path | None = None
    tunables: dict[str, str] = field(default_factory=dict)

    def merged(self, over: Settings) -> Settings:
        """These settings, replaced by all that are set in `over`; tunables are merged."""
        changes = {
            name: value
            for name in self.__dataclass_fields__
            if name != "tunables" and (value := getattr(over, name)) not in (None, ())
        }
        if over.donors:
            changes["donors_file"] = over.donors_file
        return replace(self, **changes, tunables={**self.tunables, **over.tunables})

    def check(self) -> None:
        """Raise UsageError if a setting is missing or two settings contradict each other."""
        if self.budget is None:
            raise UsageError(
                "no budget: give --budget SIZE, the most memory of the program on this host; "
                "there is no default, because this is a hard limit "
                "(a quarter to a half of what the program uses is a start)"
            )
        if self.budget < BUDGET_MIN:
            raise UsageError(f"a budget of {format_size(self.budget)} is too small: at least 1M")
        if not self.donors:
            raise UsageError(
                "no donor: give --donor tcp:HOST:PORT or --donor unix:/path, "
                "or name donors in --config FILE"
            )
        if len(self.donors) > DONORS_MAX:
            raise UsageError(f"{len(self.donors)} donors are too many: at most {DONORS_MAX}")
        if self.transport == "verbs" and self.data_encryption is not False and not self.seal:
            raise UsageError(
                "RDMA is not encrypted: --transport verbs needs --seal or --no-encrypt-data as well"
            )
        if self.keys is None:
            raise UsageError(
                "no key: give --keys FILE, a key that the donors have too "
                "(dcmctl keygen FILE TENANT makes one)"
            )

    def to_ini(self) -> str:
        """The text of a configuration file for libdcm."""
        out = io.StringIO()

        def put(key: str, value: object) -> None:
            if value is None:
                return
            line = f"{key} = {value}"
            if len(line.encode()) > LINE_MAX:
                raise UsageError(
                    f"{key} '{printable(str(value), 60)}' is too long for the "
                    f"configuration: {LINE_MAX - len(key) - 3} bytes at most"
                )
            out.write(line + "\n")

        def size(value: int | None) -> str | None:
            return None if value is None else exact_size(value)

        out.write("[vm]\n")
        put("name", self.name)
        put("budget", size(self.budget))
        put("size", size(self.size))
        put("threshold", size(self.threshold))
        put("mode", self.mode)
        put("lanes", self.lanes)
        put("on-loss", self.on_loss)
        put("redundancy", self.redundancy)
        put("rebuild-rate", size(self.rebuild_rate))
        put("disk-lag", size(self.disk_lag))
        put("scatter", None if self.scatter is None else str(self.scatter))
        put("cold-after", self.cold_after)
        put("extent", size(self.extent))
        if self.data_encryption is not None:
            put("data-encryption", "yes" if self.data_encryption else "no")
        if self.seal is not None:
            put("seal", "yes" if self.seal else "no")
        put("transport", self.transport)
        put("patience", self.patience)
        put("donors", self.donors_file)
        out.write("\n[key]\n")
        put("tenant", self.tenant)
        put("file", self.keys)
        for donor in self.donors:
            out.write(f"\n[donor {donor.name}]\n")
            put("address", donor.address)
            put("group", donor.group)
        if self.tunables:
            out.write("\n[tunables]\n")
            for name, value in self.tunables.items():
                put(name, value)
        return out.getvalue()


# ---- single values, shared by the command line and the file ----


def page_size(text: str, what: str) -> int:
    """Parse a size, and round it down to whole pages; refuse less than one page."""
    value = parse_size(text, what) // PAGE * PAGE
    if not value:
        raise UsageError(f"{what} '{printable(text)}' is less than a page (4K)")
    return value


def number(text: str, what: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= most):
        raise UsageError(f"{what} '{printable(text)}' is not a number from 1 to {most}")
    return int(text)


def lanes(text: str) -> int:
    return number(text, "lanes", LANES_MAX)


def choice(text: str, what: str, known: tuple[str, ...]) -> str:
    if text not in known:
        raise UsageError(f"{what} '{printable(text)}' is not one of: {', '.join(known)}")
    return text


def flag(text: str, what: str) -> bool:
    value = _WORDS.get(text.lower())
    if value is None:
        raise UsageError(f"{what} '{printable(text)}' is neither yes nor no")
    return value


def tunable_name(text: str) -> str:
    if not _TUNABLE.fullmatch(text):
        raise UsageError(
            f"'{printable(text)}' is not the name of a tunable: lower case letters, digits, '_'"
        )
    return text


def tunable_value(text: str, name: str) -> int:
    """Parse a number, a size (64K) or a switch (on, off) into the core's number."""
    word = text.strip().lower()
    if word in ("on", "yes", "true"):
        return 1
    if word in ("off", "no", "false"):
        return 0
    try:
        return parse_size(word, name)
    except UsageError:
        raise UsageError(
            f"value '{printable(text)}' of {name} is not a number, a size or on/off"
        ) from None


def key_path(text: str) -> Path:
    path = Path(os.path.abspath(os.path.expanduser(text)))
    if not str(path).isprintable() or any(c in str(path) for c in ";#"):
        raise UsageError(
            f"key file '{printable(text)}': ';', '#' and control characters are not allowed"
        )
    return path


# ---- the file ----


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_MAX + 1)
    except OSError as exc:
        raise DcmError(f"configuration {path}: {reason(exc)}") from None
    if len(data) > CONFIG_MAX:
        raise DcmError(f"configuration {path} is larger than {CONFIG_MAX >> 10} KiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise DcmError(f"configuration {path} is not UTF-8 text") from None


class _Parser(configparser.ConfigParser):
    """A parser that recognizes a [section] line exactly if lib/ini.c does."""

    SECTCRE = re.compile(r"\[(?P<header>[^]]+)\]$")


def donor_of(section: str) -> str | None:
    """The name in [donor NAME], as lib/ini.c reads it; None for other sections."""
    match = _DONOR.fullmatch(section)
    return None if match is None else match["name"]


def _check_lines(path: Path, text: str) -> None:
    """Refuse lines that lib/ini.c refuses but configparser accepts."""
    for number, line in enumerate(text.split("\n"), 1):
        words = line.strip(" \t\r")
        if words and not words.startswith((";", "#")) and line[0] in " \t\r":
            raise UsageError(f"configuration {path}, line {number} begins with white space")


def parse(path: Path) -> configparser.ConfigParser:
    """Read a file into sections; every error names the file."""
    text = _read_text(path)
    _check_lines(path, text)
    parser = _Parser(
        delimiters=("=",),
        comment_prefixes=(";", "#"),
        inline_comment_prefixes=(";",),
        interpolation=None,
        strict=True,
        empty_lines_in_values=False,
        default_section="",  # no section is special
    )
    try:
        parser.read_string(text, str(path))
    except configparser.MissingSectionHeaderError as exc:
        raise UsageError(
            f"configuration {path}, line {exc.lineno}: a setting stands before the first [section]"
        ) from None
    except (configparser.DuplicateSectionError, configparser.DuplicateOptionError) as exc:
        raise UsageError(
            f"configuration {path}, line {exc.lineno}: "
            f"[{printable(exc.section)}] or a setting of it is given twice"
        ) from None
    except configparser.ParsingError as exc:
        line = exc.errors[0][0] if exc.errors else 0
        raise UsageError(
            f"configuration {path}, line {line} is not of the form name = value"
        ) from None
    except configparser.Error as exc:
        raise UsageError(f"configuration {path}: {printable(str(exc))}") from None
    for section in parser.sections():
        if section != section.strip():
            raise UsageError(
                f"configuration {path}: [{printable(section)}] has white space beside a bracket; "
                f"write [{printable(section.strip())}]"
            )
    return parser


def is_hostd(path: Path) -> bool:
    """Whether a file is a configuration of dcm-hostd, not one of libdcm, which has [vm]."""
    parser = parse(path)
    return not parser.has_section("vm") and (parser.has_section("host") or "hostd" in path.name)


def donors_file(path: Path) -> Path | None:
    """The file with more donors that a configuration names (donors = FILE)."""
    parser = parse(path)
    for section in ("vm", "host"):
        file = parser.get(section, "donors", fallback=None)
        if file:
            return Path(file)
    return None


def hostd_conf() -> Path:
    return Path(os.environ.get("DCM_HOSTD_CONF") or "/etc/kvm-dcm/hostd.conf")


def load_hostd(path: Path) -> Settings:
    """Read the key and the donors from dcm-hostd's configuration; dcm-hostd checks the rest."""
    parser = parse(path)
    try:
        donors: list[Donor] = []
        for section in parser.sections():
            name = donor_of(section)
            if name is not None:
                donors.append(_donor(name, dict(parser.items(section)), donors))
        host = dict(parser.items("host")) if parser.has_section("host") else {}
        donors += _more_donors(host.get("donors"), donors)
        key = dict(parser.items("key")) if parser.has_section("key") else {}
        tenant, file = key.get("tenant"), key.get("file")
        return Settings(
            tenant=None if tenant is None else check_tenant(tenant),
            keys=None if file is None else key_path(str(path.parent / file)),
            donors=tuple(donors),
        )
    except UsageError as exc:
        raise UsageError(f"configuration {path}: {exc}") from None


def load_any(path: Path) -> Settings:
    """Read host.conf or hostd.conf; the sections show which of them it is."""
    return load_hostd(path) if is_hostd(path) else load(path)


def load_donors(path: Path) -> list[Donor]:
    """Read a file of donors, as `dcmctl discover` writes it; without a file, no donors."""
    if not path.exists():
        return []
    parser = parse(path)
    donors: list[Donor] = []
    try:
        for section in parser.sections():
            name = donor_of(section)
            if name is None:
                raise UsageError(
                    f"section [{printable(section)}] is not allowed: only [donor NAME] is"
                )
            donors.append(_donor(name, dict(parser.items(section)), donors))
    except UsageError as exc:
        raise UsageError(f"{path}: {exc}") from None
    return donors


def _more_donors(file: str | None, have: list[Donor]) -> list[Donor]:
    """The donors in `file`, except those whose name the configuration itself has."""
    if file is None:
        return []
    if not file.startswith("/"):
        raise UsageError(f"donors = {printable(file)} is not an absolute path: begin it with /")
    names = {donor.name for donor in have}
    return [donor for donor in load_donors(Path(file)) if donor.name not in names]


def load(path: Path) -> Settings:
    """Read and check a configuration of libdcm; every error names the file."""
    parser = parse(path)
    try:
        return _settings(parser, path.parent)
    except UsageError as exc:
        raise UsageError(f"configuration {path}: {exc}") from None


def _settings(parser: configparser.ConfigParser, base: Path) -> Settings:
    vm: dict[str, str] = {}
    key: dict[str, str] = {}
    tunables: dict[str, str] = {}
    donors: list[Donor] = []
    for section in parser.sections():
        values = dict(parser.items(section))
        for key_name, text in values.items():
            if not text.isprintable():
                raise UsageError(
                    f"[{printable(section)}] {printable(key_name)} must be one line without "
                    "control characters"
                )
        donor_name = donor_of(section)
        if section == "vm":
            vm = values
        elif section == "key":
            key = values
        elif section == "tunables":
            for key_name, text in values.items():
                name = tunable_name(key_name)
                tunables[name] = str(tunable_value(text, name))
        elif donor_name is not None:
            donors.append(_donor(donor_name, values, donors))
        else:
            raise UsageError(
                f"no section [{printable(section)}]; known: vm, key, tunables, donor NAME"
            )

    for section, values in (("vm", vm), ("key", key)):
        _check_keys(section, f"[{section}]", values)

    def take(values: dict[str, str], section: str, name: str) -> str | None:
        value = values.get(name)
        if value == "":
            raise UsageError(f"[{section}] {name} has no value")
        return value

    def optional_size(name: str) -> int | None:
        text = take(vm, "vm", name)
        return None if text is None else page_size(text, name)

    more = take(vm, "vm", "donors")
    donors += _more_donors(more, donors)
    vm_name = take(vm, "vm", "name")
    mode = take(vm, "vm", "mode")
    lane_text = take(vm, "vm", "lanes")
    loss = take(vm, "vm", "on-loss")
    copies = take(vm, "vm", "redundancy")
    rebuild = take(vm, "vm", "rebuild-rate")
    disk_lag = take(vm, "vm", "disk-lag")
    scatter = take(vm, "vm", "scatter")
    cold_after = take(vm, "vm", "cold-after")
    encrypt = take(vm, "vm", "data-encryption")
    seal = take(vm, "vm", "seal")
    transport = take(vm, "vm", "transport")
    waits = take(vm, "vm", "patience")
    tenant = take(key, "key", "tenant")
    file = take(key, "key", "file")
    return Settings(
        name=None if vm_name is None else check_name(vm_name, "VM name"),
        budget=optional_size("budget"),
        size=optional_size("size"),
        threshold=optional_size("threshold"),
        rebuild_rate=None if rebuild is None else parse_size(rebuild, "rebuild-rate"),
        disk_lag=None if disk_lag is None else parse_size(disk_lag, "disk-lag"),
        scatter=None if scatter is None else number(scatter, "scatter", SCATTER_MAX),
        cold_after=None if cold_after is None else duration(cold_after, "cold-after"),
        extent=optional_size("extent"),
        mode=None if mode is None else choice(mode, "mode", MODES),
        lanes=None if lane_text is None else lanes(lane_text),
        on_loss=None if loss is None else choice(loss, "on-loss", ON_LOSS),
        redundancy=None if copies is None else choice(copies, "redundancy", tuple(REDUNDANCY)),
        data_encryption=None if encrypt is None else flag(encrypt, "data-encryption"),
        seal=None if seal is None else flag(seal, "seal"),
        transport=None if transport is None else choice(transport, "transport", TRANSPORTS),
        patience=None if waits is None else duration(waits, "patience"),
        tenant=None if tenant is None else check_tenant(tenant),
        keys=None if file is None else key_path(str(base / file)),
        donors=tuple(donors),
        donors_file=None if more is None else Path(more),
        tunables=tunables,
    )


def _check_keys(kind: str, section: str, values: dict[str, str]) -> None:
    for name in values:
        if name not in KEYS[kind]:
            raise UsageError(f"{section} has no setting '{printable(name)}'")


def _donor(name: str, values: dict[str, str], others: list[Donor]) -> Donor:
    check_name(name, "donor name")
    _check_keys("donor", f"[donor {name}]", values)
    text = values.get("address")
    if text is None:
        raise UsageError(f"[donor {name}] has no address = tcp:HOST:PORT or unix:/path")
    status = values.get("status")
    if status is not None and not STATUS.fullmatch(status):
        raise UsageError(f"[donor {name}] status '{printable(status)}' is not HOST:PORT")
    values_drain = values.get("drain")
    group = values.get("group")
    if group is not None:
        check_name(group, f"[donor {name}] group")
    drain = flag(values_drain, "drain") if values_drain is not None else False
    donor = Donor(name, Address.parse(text), status, drain, group)
    for other in others:
        if other.address == donor.address:
            raise UsageError(f"donors {other.name} and {name} have the same address")
    return donor
