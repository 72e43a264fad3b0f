"""What a campaign found, rule by rule: as JSON and as tables."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.proofs.completeness.campaign import (
    NO_CODE,
    ONE_SIZE,
    RIGHT,
    SAME_KERNEL,
    Losses,
    ProgramResult,
    RuleSet,
)
from bench.proofs.completeness.judge import Verdict
from bench.proofs.layers.result_file import commit, versions
from mapper.errors import InputError, Problem

SCHEMA = "nestmap/bench-completeness/1"
_COLUMNS = (
    RIGHT,
    SAME_KERNEL,
    ONE_SIZE,
    Verdict.SAME_VALUE_RACE.value,
    Verdict.RACE.value,
    Verdict.WRONG.value,
    NO_CODE,
)


@dataclass
class RuleFigures:
    """Outcomes of assignments that a rule rejects: it alone, and it among others."""

    alone: Counter[str] = field(default_factory=Counter[str])
    among: Counter[str] = field(default_factory=Counter[str])


def by_rule(results: Iterable[ProgramResult]) -> dict[str, RuleFigures]:
    """Outcomes by rule, over all programs."""
    found: dict[str, RuleFigures] = {}
    for result in results:
        for rules, outcomes in result.rejected.items():
            for rule in rules:
                figures = found.setdefault(rule, RuleFigures())
                (figures.alone if len(rules) == 1 else figures.among).update(outcomes)
    return dict(sorted(found.items()))


def lost_by_kind(
    results: Iterable[ProgramResult], *, wide: bool
) -> dict[RuleSet, tuple[int, dict[str, Any]]]:
    """Lost kernels by the rules that keep them out, most first, with an example of each."""
    counts: Counter[RuleSet] = Counter()
    examples: dict[RuleSet, dict[str, Any]] = {}
    for result in results:
        losses = result.lost_wide if wide else result.lost
        counts.update(losses.kernels)
        for rules, shown in losses.examples.items():
            examples.setdefault(rules, {"program": result.name, **shown})
    return {rules: (count, examples[rules]) for rules, count in counts.most_common()}


def to_json(
    results: Sequence[ProgramResult], seed: int, facts: Mapping[str, str]
) -> dict[str, Any]:
    """The whole result as a JSON value."""
    accepted, widened = Counter[str](), Counter[str]()
    for result in results:
        accepted.update(result.accepted)
        accepted.update(result.not_preferred)
        widened.update(result.widened)
    return {
        "schema": SCHEMA,
        "seed": seed,
        "machine": dict(facts),
        "versions": versions(),
        "commit": commit(),
        "assignments": sum(result.assignments for result in results),
        "kernels": sum(result.kernels for result in results),
        "accepted": dict(accepted),
        "accepted_with_all_switches": dict(widened),
        "accepted_kernels": sum(result.accepted_kernels for result in results),
        "failures": sum(len(result.failures) for result in results),
        "rules": {
            rule: {"alone": dict(figures.alone), "among": dict(figures.among)}
            for rule, figures in by_rule(results).items()
        },
        "lost": _kinds(lost_by_kind(results, wide=False)),
        "lost_with_all_switches": _kinds(lost_by_kind(results, wide=True)),
        "programs": [_program(result) for result in results],
    }


def _kinds(kinds: Mapping[RuleSet, tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {"rules": list(rules), "kernels": count, "example": example}
        for rules, (count, example) in kinds.items()
    ]


def _program(result: ProgramResult) -> dict[str, Any]:
    return {
        "name": result.name,
        "text": " ".join(result.text.split()),
        "assignments": result.assignments,
        "kernels": result.kernels,
        "device_checks": result.device_checks,
        "seconds": round(result.seconds, 1),
        "accepted": dict(result.accepted),
        "not_preferred": dict(result.not_preferred),
        "accepted_with_all_switches": dict(result.widened),
        "accepted_kernels": result.accepted_kernels,
        "rejected": {
            " ".join(rules): dict(outcomes) for rules, outcomes in sorted(result.rejected.items())
        },
        "refusals": dict(result.refusals),
        "lost": _losses(result.lost),
        "lost_with_all_switches": _losses(result.lost_wide),
        "failures": result.failures,
    }


def _losses(losses: Losses) -> dict[str, Any]:
    return {
        " ".join(rules): {"kernels": count, **losses.examples[rules]}
        for rules, count in sorted(losses.kernels.items())
    }


def write_result(path: Path, value: dict[str, Any]) -> None:
    """Replace the file at once, compactly; InputError if it cannot be written."""
    fresh = path.with_name(path.name + ".new")
    lists = ",\n".join(json.dumps(program) for program in value["programs"])
    head = json.dumps({name: item for name, item in value.items() if name != "programs"}, indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(f'{head[:-2]},\n "programs": [\n{lists}\n]\n}}\n', encoding="utf-8")
        os.replace(fresh, path)
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be written: {error.strerror}")) from error


def markdown(results: Sequence[ProgramResult]) -> str:
    """The tables of docs/completeness.md."""
    lines = [
        "| rule | alone: right, lost | right, same kernel accepted | other sizes wrong | "
        "same-value race | race | wrong | no code | among others: right, lost | of |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for rule, figures in by_rule(results).items():
        alone = [figures.alone[name] for name in _COLUMNS]
        lines.append(
            f"| {rule} | {' | '.join(map(str, alone))} | "
            f"{figures.among[RIGHT]} | {figures.among.total()} |"
        )
    for title, wide in (("strict mode", False), ("all switches set", True)):
        lines += ["", f"| kept out by ({title}) | kernels | example |", "|---|--:|---|"]
        for rules, (count, example) in lost_by_kind(results, wide=wide).items():
            lines.append(f"| {', '.join(rules)} | {count} | {_example(example)} |")
    return "\n".join(lines) + "\n"


def _example(example: Mapping[str, Any]) -> str:
    codes = " ".join(f"{name}={code}" for name, code in example["mapping"].items())
    sizes = "; ".join(
        "×".join(map(str, sizes)) for sizes in example.get("local_sizes", {}).values()
    )
    return f"{example['program']}: {codes}, local size {sizes}"
