"""Listing 1 of CC'22 as a program, for the mappings of its Table 1."""

from __future__ import annotations

from typing import Any

from mapper.ast_model.text_form import parse
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.pipeline import (
    Assignment,
    Subject,
    assignment_from_json,
    derive_space,
    subject_of_program,
)
from mapper.profiles import load_profile
from mapper.solver.space import Space


def listing1(memory: str) -> Subject:
    """Sizes that 2, 4 and vectors divide."""
    return subject_of_program(
        parse(
            f"""
program "listing1" {{
  size I = 6
  size J = 8
  size K = 12
  fun f(x) = x * 2.0
  fun g(x) = x + 1.0
  input x : [[[float]K]J]I
  kernel out = map#A(plane =>
      let buffer = to_{memory}(map#B(row => map#C(v => f(v), row), plane)) in
      map#D(column => map#E(v => g(v), column), transpose(buffer)), x)
}}
"""
        )
    )


def strict_space(subject: Subject, **options: Any) -> Space:
    return derive_space(subject, Mode.STRICT, load_profile("pocl"), RuleOptions(**options))


def assignment(
    space: Space, ids: str, codes: str, local_size: tuple[int, int, int], kernel: str = "out"
) -> Assignment:
    return assignment_from_json(
        space,
        {
            "mapping": dict(zip(ids.split(), codes.split(), strict=True)),
            "local_sizes": {kernel: list(local_size)},
        },
    )
