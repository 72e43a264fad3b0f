"""The file of frozen facts, and what differs from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("frozen.json")
_SHOWN = 40


@dataclass(frozen=True)
class Frozen:
    """Facts by name, and for what reasons they were changed, the last one last."""

    facts: Mapping[str, Any]
    reasons: Sequence[str]


def read() -> Frozen:
    """What is frozen; nothing where there is no file yet."""
    if not PATH.exists():
        return Frozen({}, ())
    value = json.loads(PATH.read_text("utf-8"))
    return Frozen(value["facts"], value["reasons"])


def write(frozen: Frozen) -> None:
    """One fact a line, so that a diff says which changed."""
    lines = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in frozen.facts.items()
    )
    reasons = ",\n".join(f"  {json.dumps(reason, ensure_ascii=False)}" for reason in frozen.reasons)
    text = f'{{"reasons": [\n{reasons}\n],\n"facts": {{\n{lines}\n}}}}\n'
    assert json.loads(text) == {"reasons": list(frozen.reasons), "facts": dict(frozen.facts)}
    PATH.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Differences:
    """The names of facts that are other than, beside or missing from those frozen."""

    lines: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.lines)

    @classmethod
    def between(
        cls, frozen: Mapping[str, Any], found: Mapping[str, Any], gone: Iterable[str] = ()
    ) -> Differences:
        """Of all that was ``found``; ``gone`` are frozen facts that nothing finds any more."""
        lines = [f"{name}: frozen, but not found any more" for name in gone]
        for name, value in found.items():
            if name not in frozen:
                lines.append(f"{name}: not frozen; found {_short(value)}")
            elif frozen[name] != value:
                lines.append(f"{name}: {_changes(frozen[name], value)}")
        return cls(tuple(lines))

    def text(self) -> str:
        """What a person reads."""
        more = len(self.lines) - _SHOWN
        tail = [f"and {more} more"] if more > 0 else []
        return "\n".join([*self.lines[:_SHOWN], *tail])


def changed(
    frozen: Frozen,
    found: Mapping[str, Any],
    gone: Iterable[str],
    reason: str,
    differences: Differences,
) -> Frozen:
    """With what was found in the place of what was frozen, and why."""
    facts = {**frozen.facts, **found}
    for name in gone:
        del facts[name]
    kinds = sorted({line.partition("/")[0] for line in differences.lines})
    noted = f"{reason} ({len(differences.lines)} facts: {', '.join(kinds)})"
    return Frozen(dict(sorted(facts.items())), (*frozen.reasons, noted))


def _changes(before: Any, after: Any) -> str:
    """Of objects only the fields that differ; of lists the first place."""
    if isinstance(before, dict) and isinstance(after, dict):
        names = [n for n in {**before, **after} if before.get(n) != after.get(n)]
        return "; ".join(
            f"{n} was {_short(before.get(n))}, is {_short(after.get(n))}" for n in names
        )
    if isinstance(before, list) and isinstance(after, list):
        pairs = zip(before, after, strict=False)
        place = next(
            (i for i, (a, b) in enumerate(pairs) if a != b), min(map(len, (before, after)))
        )
        return f"from place {place} on was {_short(before[place:])}, is {_short(after[place:])}"
    return f"was {_short(before)}, is {_short(after)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else text[:160] + "…"
