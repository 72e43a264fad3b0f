"""The campaign: thousands of random cases, judged a block at a time, nothing lost on the way."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.proofs.soundness.cases import (
    BrokenPromise,
    Case,
    Discarded,
    Draft,
    case_to_json,
    cases_of,
    draw_draft,
)
from bench.proofs.soundness.choices import RandomSource
from bench.proofs.soundness.coverage import features, histogram, merged
from bench.proofs.soundness.judges import Fault, Judge
from mapper.device_profile import DeviceProfile
from nestmap.tuning.candidates import derived_seed

#: Mappings tried of one program: its space is derived once for them.
MAPPINGS = 2
DRAFTS_A_BLOCK = 25


@dataclass(slots=True)
class Failure:
    """A case that is wrong; ``draft`` is its number, ``choices`` what its generator drew.

    ``value`` has the program and the assignment, ``faults`` what each judge found.
    """

    draft: int
    choices: list[int]
    value: dict[str, Any]
    faults: list[dict[str, str]]


@dataclass(slots=True)
class Result:
    """What became of a campaign so far. ``drafts`` is also where it goes on.

    ``commits`` are the sources that took part: more than one if the code changed on the way.
    """

    seed: int
    cases: int = 0
    drafts: int = 0
    discarded: dict[str, int] = field(default_factory=dict[str, int])
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    failures: list[Failure] = field(default_factory=list[Failure])
    coverage: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    seconds: float = 0.0
    commits: list[str] = field(default_factory=list[str])

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value; :meth:`from_json` reads it back."""
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Result:
        """Read what :meth:`to_json` wrote. KeyError or TypeError for anything else."""
        return Result(**{**value, "failures": [Failure(**f) for f in value["failures"]]})


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A case with the draft that it comes from."""

    number: int
    choices: list[int]
    case: Case


@dataclass(slots=True)
class _Block:
    """Drafts drawn together and judged together."""

    drafts: int = 0
    discarded: Counter[str] = field(default_factory=Counter[str])
    drawn: list[_Drawn] = field(default_factory=list[_Drawn])
    broken: list[Failure] = field(default_factory=list[Failure])


def draft_of(seed: int, number: int) -> tuple[Draft, list[int]]:
    """A campaign's draft of this number, and the choices that made it."""
    source = RandomSource(derived_seed(seed, "soundness", number))
    return draw_draft(source), source.taken


def run_campaign(
    result: Result,
    wanted: int,
    device: DeviceProfile,
    judges: Mapping[str, Judge],
    *,
    after_block: Callable[[Result], None] = lambda result: None,
    drafts_a_block: int = DRAFTS_A_BLOCK,
) -> Result:
    """Go on with ``result`` until it has ``wanted`` cases.

    ``after_block`` sees the result after each block; an interruption loses one or two blocks,
    and the same seed goes on with the same cases. DeviceError where a judge itself fails.
    """
    started = time.monotonic()
    with ExitStack() as stack:
        # A thread for each judge, which takes one block after the other.
        threads = {name: stack.enter_context(ThreadPoolExecutor(1)) for name in judges}
        waiting: tuple[_Block, dict[str, Future[list[Fault | None]]]] | None = None
        ahead, following_draft = result.cases, result.drafts
        while result.cases < wanted:
            following = None
            if ahead < wanted:
                most = wanted - ahead
                block = _block(result.seed, following_draft, device, drafts_a_block, most)
                following_draft += block.drafts
                ahead += len(block.drawn) + len(block.broken)
                cases = [drawn.case for drawn in block.drawn]
                # While these are judged, the next block is drawn.
                following = (
                    block,
                    {n: threads[n].submit(judge.judge, cases) for n, judge in judges.items()},
                )
            if waiting is not None:
                block, asked = waiting
                _count(result, block, [future.result() for future in asked.values()])
                now = time.monotonic()
                result.seconds += now - started
                started = now
                after_block(result)
            waiting = following
    return result


def _block(seed: int, first: int, device: DeviceProfile, drafts: int, most: int) -> _Block:
    """The next drafts, fewer than ``drafts`` where they give ``most`` cases before."""
    block = _Block()
    while block.drafts < drafts and len(block.drawn) + len(block.broken) < most:
        _draw(seed, first + block.drafts, device, block)
    del block.drawn[max(0, most - len(block.broken)) :]
    return block


def _draw(seed: int, number: int, device: DeviceProfile, block: _Block) -> None:
    block.drafts += 1
    draft, choices = draft_of(seed, number)
    try:
        cases = cases_of(draft, device, MAPPINGS)
    except BrokenPromise as error:
        fault = {"judge": "nestmap", "kind": error.kind, "message": error.message}
        block.broken.append(Failure(number, choices, error.value, [fault]))
        return
    if isinstance(cases, Discarded):
        block.discarded[cases.reason] += 1
        return
    block.drawn += [_Drawn(number, choices, case) for case in cases]


def _count(result: Result, block: _Block, verdicts: Sequence[list[Fault | None]]) -> None:
    result.drafts += block.drafts
    result.discarded = dict(Counter(result.discarded) + block.discarded)
    outcomes = Counter(result.outcomes)
    for failure in block.broken:
        outcomes[f"nestmap: {failure.faults[0]['kind']}"] += 1
        result.failures.append(failure)
    for position, drawn in enumerate(block.drawn):
        faults = [fault for verdict in verdicts if (fault := verdict[position]) is not None]
        outcomes["right" if not faults else faults[0].label] += 1
        of_case = [fault for fault in faults if not fault.of_judge]
        if of_case:
            result.failures.append(
                Failure(
                    drawn.number,
                    drawn.choices,
                    case_to_json(drawn.case),
                    [fault.to_json() for fault in of_case],
                )
            )
    result.outcomes = dict(outcomes)
    result.cases += len(block.drawn) + len(block.broken)
    found = histogram(features(drawn.case) for drawn in block.drawn)
    result.coverage = merged(result.coverage, found)
