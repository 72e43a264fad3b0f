"""Narrow: fewer values of a tuning parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mapper.ast_model.nodes import Program
from mapper.schedules.step import Step, refusal, step

NAME = "narrow"


def narrow(program: Program, parameter: str, values: Sequence[int]) -> Step:
    """A tuning parameter has only these of its values.

    The program computes the same; what no device or nest needs is not searched.
    """
    found = next((p for p in program.parameters if p.name == parameter), None)
    if found is None:
        known = ", ".join(p.name for p in program.parameters)
        raise refusal(
            NAME, parameter, "the program has no tuning parameter of this name", "", known
        )
    kept = tuple(value for value in found.values if value in values)
    if kept == found.values or not kept:
        why = "it has no other values" if kept else "none of its values is left"
        shown = ", ".join(map(str, values))
        raise refusal(NAME, parameter, why, shown, ", ".join(map(str, found.values)))
    parameters = tuple(replace(p, values=kept) if p is found else p for p in program.parameters)
    return step(NAME, parameter, program, replace(program, parameters=parameters))
