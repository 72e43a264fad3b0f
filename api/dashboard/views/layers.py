"""What the page of a layer shows: its address with every choice in it, counts, mappings, checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from api.dashboard.formats import SPACE, large, significant
from api.dashboard.views.rules import rule_title
from api.dashboard.views.scales import log_share
from api.dashboard.views.schedules import Schedule, schedule
from mapper.errors import InputError
from mapper.schedule import parse_code

#: Views of a subject, in the order of the tabs.
VIEWS = (
    ("rules", "Nest and rules"),
    ("counts", "Counts by rule"),
    ("mappings", "Mappings"),
    ("check", "Check a mapping"),
)


@dataclass(frozen=True, slots=True)
class StatedChoices:
    """Options of the rules and constraints of one's own, as the page's form has them.

    ``suits`` is what ``--suits`` takes; ``where`` are expressions, each a constraint.
    """

    suits: str = ""
    no_sequential_fusion: bool = False
    replicate_private: bool = False
    free_grid: bool = False
    where: tuple[str, ...] = ()

    def fields(self) -> list[tuple[str, str]]:
        """Fields of an address that say the same; of what is as it is by itself none."""
        flags = ("no_sequential_fusion", "replicate_private", "free_grid")
        return [
            *([("suits", self.suits)] if self.suits else []),
            *((name, "1") for name in flags if getattr(self, name)),
            *(("where", one) for one in self.where),
        ]

    def about(self) -> dict[str, Any]:
        """The fields of a question over HTTP."""
        return {
            "suits": [self.suits] if self.suits else [],
            "sequential_fusion": not self.no_sequential_fusion,
            "replicate_private": self.replicate_private,
            "free_grid": self.free_grid,
            "where": list(self.where),
        }


@dataclass(frozen=True, slots=True)
class LayerAddress:
    """The page's address: what is asked about, which view, and what was chosen there."""

    path: str
    variant: str = ""
    device: str = "pocl"
    mode: str = "strict"
    view: str = "rules"
    pins: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    stated: StatedChoices = StatedChoices()

    def url(self, *, cursor: str = "", seconds: int | None = None) -> str:
        """The address, without what is as it is by itself."""
        fields: list[tuple[str, str]] = []
        for name, value, default in (
            ("variant", self.variant, ""),
            ("device", self.device, "pocl"),
            ("mode", self.mode, "strict"),
            ("view", self.view, "rules"),
        ):
            if value != default:
                fields.append((name, value))
        fields += self.stated.fields()
        fields += [("pin", pin) for pin in self.pins]
        fields += [("forbid", forbid) for forbid in self.forbids]
        fields += [("set", one) for one in self.chosen]
        if cursor:
            fields.append(("cursor", cursor))
        if seconds is not None:
            fields.append(("seconds", str(seconds)))
        query = urlencode(fields)
        return f"{self.path}?{query}" if query else self.path

    def at(self, view: str) -> LayerAddress:
        """Another view; what was chosen for a check stays there."""
        return replace(self, view=view, chosen=self.chosen if view == "check" else ())

    def pinned(self, name: str, value: str) -> LayerAddress:
        """With a variable pinned, whatever was pinned of it before."""
        kept = tuple(pin for pin in self.pins if pin.rpartition("=")[0] != name)
        return replace(self, pins=(*kept, f"{name}={value}"))

    def forbidden(self, name: str, value: str) -> LayerAddress:
        """With a value taken away."""
        added = f"{name}={value}"
        return self if added in self.forbids else replace(self, forbids=(*self.forbids, added))

    def without(self, kind: str, text: str) -> LayerAddress:
        """With a pin or a forbidden value taken back."""
        if kind == "pin":
            return replace(self, pins=tuple(pin for pin in self.pins if pin != text))
        return replace(self, forbids=tuple(one for one in self.forbids if one != text))

    def checking(self, chosen: Iterable[str]) -> LayerAddress:
        """The check of a mapping, as texts like ``28=W0``."""
        return replace(self, view="check", chosen=tuple(chosen))


@dataclass(frozen=True, slots=True)
class WaterfallRow:
    """A rule with the numbers before and after it; shares are of 100, on a logarithmic scale.

    ``factor`` says what the rule leaves; empty where a number is not known.
    """

    rule: str
    title: str
    constraints: int
    before: int | None
    after: int | None
    share_before: float
    share_after: float
    factor: str


def waterfall_rows(steps: Sequence[Mapping[str, Any]]) -> tuple[WaterfallRow, ...]:
    """The rows of a ``waterfall``'s answer."""
    most = max((step["before"] or 0 for step in steps), default=0)
    return tuple(
        WaterfallRow(
            step["rule"],
            rule_title(step["rule"]),
            step["constraints"],
            step["before"],
            step["after"],
            log_share(step["before"] or 0, most) if most else 0.0,
            log_share(step["after"] or 0, most) if most else 0.0,
            _factor(step["before"], step["after"]),
        )
        for step in steps
    )


def _factor(before: int | None, after: int | None) -> str:
    if before is None or after is None:
        return ""
    if after == before:
        return "all stay"
    if after == 0:
        return "none stays"
    if before < 10 * after:
        return f"{significant(100 * after / before)}{SPACE}% stay"
    return f"one in {large(round(before / after) if before < 2**53 else before // after)}"


@dataclass(frozen=True, slots=True)
class ShownCode:
    """A map's schedule in a listed mapping, with the address that pins it."""

    name: str
    schedule: Schedule
    pin_url: str
    is_pinned: bool


@dataclass(frozen=True, slots=True)
class MappingRow:
    """A listed mapping; ``rest`` are parameters and local sizes as texts."""

    number: int
    codes: tuple[ShownCode, ...]
    rest: tuple[tuple[str, str, str], ...]
    check_url: str


def mapping_rows(
    items: Sequence[Mapping[str, Any]], address: LayerAddress
) -> tuple[MappingRow, ...]:
    """The rows of a page of mappings."""
    first = replace(address, view="mappings", chosen=())
    return tuple(_mapping_row(item, first) for item in items)


def _mapping_row(item: Mapping[str, Any], address: LayerAddress) -> MappingRow:
    mapping: Mapping[str, int] = item.get("mapping") or {}
    parameters: Mapping[str, Any] = item.get("parameters") or {}
    sizes: Mapping[str, Sequence[int]] = item.get("local_sizes") or {}
    shown = {str(name): schedule(code) for name, code in mapping.items()}
    codes = tuple(
        ShownCode(
            name, one, address.pinned(name, one.name).url(), f"{name}={one.name}" in address.pins
        )
        for name, one in shown.items()
    )
    rest = [
        (name, str(value), address.pinned(name, str(value)).url())
        for name, value in parameters.items()
    ]
    rest += [(f"{kernel} local size", " × ".join(map(str, size)), "") for kernel, size in
             sizes.items()]  # fmt: skip
    return MappingRow(
        item.get("number") or 0, codes, tuple(rest), address.checking(chosen_texts(item)).url()
    )


def chosen_texts(item: Mapping[str, Any]) -> list[str]:
    """Codes and parameters of a mapping as the check's address has them."""
    texts = [f"{name}={schedule(code).name}" for name, code in (item.get("mapping") or {}).items()]
    texts += [f"{name}={value}" for name, value in (item.get("parameters") or {}).items()]
    return texts


@dataclass(frozen=True, slots=True)
class Option:
    """A value that a variable may take, as it is written, and what is said of it."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A variable with its options; ``chosen`` is empty where it is left open."""

    name: str
    kind: str
    options: tuple[Option, ...]
    chosen: str


def choices(variables: Sequence[Mapping[str, Any]], chosen: Sequence[str]) -> tuple[Choice, ...]:
    """Maps and parameters of a ``describe`` with what was chosen; local sizes are left out:
    they follow from the rest."""
    given = dict(_split(text) for text in chosen)
    return tuple(
        Choice(
            variable["name"],
            variable["kind"],
            tuple(_option(variable["kind"], value) for value in variable["values"]),
            given.get(variable["name"], ""),
        )
        for variable in variables
        if variable["kind"] != "local size"
    )


def _option(kind: str, value: Any) -> Option:
    if kind != "map":
        return Option(str(value), str(value))
    shown = schedule(value)
    # The name has the dimension or width already.
    words = shown.words.partition(",")[0].removesuffix(" with the map around it")
    return Option(shown.name, f"{shown.name} {words}")


def _split(text: str) -> tuple[str, str]:
    name, _, value = text.rpartition("=")
    return name, value


def checked_document(
    variables: Sequence[Mapping[str, Any]], chosen: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """The mapping that a check is asked about, and maps without a code.

    Values are those of the variables, so that a parameter's number is a number; what is not
    among them goes as the text that it is, and the answer says what is wrong with it.
    """
    given = dict(_split(text) for text in chosen)
    document: dict[str, Any] = {"mapping": {}, "parameters": {}}
    missing: list[str] = []
    for variable in variables:
        name, kind = variable["name"], variable["kind"]
        text = given.get(name, "")
        if kind == "map":
            if text:
                document["mapping"][name] = text
            else:
                missing.append(name)
        elif kind == "parameter" and text:
            known = {str(value): value for value in variable["values"]}
            document["parameters"][name] = known.get(text, text)
    if not document["mapping"] and not missing:
        # A tuning space has parameters only.
        del document["mapping"]
    elif not document["parameters"]:
        del document["parameters"]
    return document, missing


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A violation: which rule, in words, of which maps, and what to do about it."""

    rule: str
    title: str
    maps: tuple[str, ...]
    buffer: str | None
    sentence: str
    remedy: str


def broken_rules(violations: Iterable[Mapping[str, Any]]) -> tuple[BrokenRule, ...]:
    """Violations of a check, or the parts of a conflict."""
    return tuple(
        BrokenRule(
            one["rule"],
            rule_title(one["rule"]),
            tuple(map(str, one["maps"])),
            one["buffer"],
            one["sentence"],
            one["remedy"],
        )
        for one in violations
    )


#: A constraint that names more maps is about a whole kernel.
_WHOLE_KERNEL = 8
_PARALLEL = frozenset({"group", "local", "global"})


def marked_maps(
    broken: Iterable[BrokenRule], codes: Mapping[str, Any]
) -> dict[str, tuple[str, ...]]:
    """For each map the titles of the rules that it breaks.

    Of what is said of a whole kernel only those maps are marked that are spread over threads:
    they are what has to change.
    """
    found: dict[str, list[str]] = {}
    for one in broken:
        whole = len(one.maps) > _WHOLE_KERNEL
        named = [name for name in one.maps if not whole or _is_parallel(codes.get(name))]
        for name in named or one.maps:
            if one.title not in found.setdefault(name, []):
                found[name].append(one.title)
    return {name: tuple(titles) for name, titles in found.items()}


def _is_parallel(code: Any) -> bool:
    try:
        return code is not None and schedule(int(parse_code(code))).level in _PARALLEL
    except InputError:
        return False


@dataclass(frozen=True, slots=True)
class Change:
    """A step to the nearest valid mapping."""

    what: str
    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest valid mapping with the address that takes it."""

    changes: tuple[Change, ...]
    proven: bool
    url: str


def nearest_view(found: Mapping[str, Any], address: LayerAddress) -> Nearest:
    """The ``nearest`` of a check's answer."""
    return Nearest(
        tuple(
            Change(
                change["what"],
                str(change["name"]),
                _value(change["what"], change["from"]),
                _value(change["what"], change["to"]),
            )
            for change in found["changes"]
        ),
        bool(found["proven"]),
        address.checking(chosen_texts(found["assignment"])).url(),
    )


def _value(what: str, value: Any) -> str:
    if what != "map" or not isinstance(value, int):
        return str(value)
    shown = schedule(value)
    return f"{shown.name}: {shown.words}"
