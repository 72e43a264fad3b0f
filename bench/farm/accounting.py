"""What became of every job, and how long boards waited for those that they could have had."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.farm.crews import Seen
from bench.farm.load import Ending, Injected

_ENDED = frozenset({"done", "cancelled", "failed"})


@dataclass(frozen=True, slots=True)
class Account:
    """Jobs by what became of them. ``lost``: accepted, but neither measured nor cancelled;
    ``duplicated``: stored more than once, or said to be. ``handed_out_again``: claimed more than
    once, as after a lost connection, which is no fault. ``repeats``: results sent again, which
    changed nothing."""

    accepted: int
    measured: int
    cancelled: int
    lost: tuple[str, ...]
    duplicated: tuple[str, ...]
    handed_out_again: int
    repeats: int


def account(injected: Iterable[Injected], endings: Mapping[str, Ending], seen: Seen) -> Account:
    """Hold the store against what was accepted and what boards were answered."""
    accepted = [candidate for one in injected for candidate in one.candidates]
    candidate_of = {entry["job"]: entry["candidate"] for entry in seen.got}
    said = Counter(candidate_of.get(entry["job"]) for entry in seen.sent if entry["stored"])
    lost: list[str] = []
    duplicated: list[str] = []
    measured = cancelled = again = 0
    for candidate in accepted:
        ending = endings.get(candidate, Ending("absent", 0, 0))
        measured += ending.measurements > 0
        cancelled += ending.state == "cancelled" and not ending.measurements
        again += ending.attempt > 1
        stored = ending.measurements or ending.state == "cancelled"
        # A board that was answered "stored" must find it in the store.
        if not stored or ending.state not in _ENDED or said[candidate] > ending.measurements:
            lost.append(candidate)
        if ending.measurements > 1 or said[candidate] > 1:
            duplicated.append(candidate)
    repeats = len(seen.sent) - sum(said.values())
    return Account(
        len(accepted), measured, cancelled, tuple(lost), tuple(duplicated), again, repeats
    )


def pick_ups_ms(injected: Iterable[Injected], seen: Seen) -> list[float]:
    """For each job that was had, milliseconds from when it was claimable to when its board had
    it whole. A job behind another of the same board is claimable when that one's result was
    answered."""
    had: dict[str, Mapping[str, Any]] = {}
    for entry in seen.got:
        had.setdefault(entry["candidate"], entry)
    free: defaultdict[str, list[int]] = defaultdict(list)
    for entry in seen.sent:
        free[entry["board"]].append(entry["t"])
    found: list[float] = []
    for one in injected:
        for candidate in one.candidates:
            entry = had.get(candidate)
            if entry is not None:
                since_ns = max(one.claimable_ns, _last_before(free[one.board_id], entry["t"]))
                found.append((entry["t"] - since_ns) / 1e6)
    return found


def _last_before(times: Sequence[int], before: int) -> int:
    place = bisect_right(times, before)
    return times[place - 1] if place else 0


def results_a_second(seen: Seen, since_ns: int, until_ns: int) -> float:
    """Results that were stored within a span, a second."""
    stored = sum(entry["stored"] and since_ns <= entry["t"] < until_ns for entry in seen.sent)
    return stored / ((until_ns - since_ns) / 1e9)
