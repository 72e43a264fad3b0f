"""A long run of random chains: what holds of each, and how often each primitive applied."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from bench.proofs.schedules.chains import NAMES, Chain
from bench.proofs.schedules.computations import arrays, computation
from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.text_form import parse, to_text

SCHEMA = "nestmap/schedule-chains/1"
MAX_LENGTH = 9
MAX_FAILURES = 20


def check_chain(seed: int) -> Chain:
    """A random computation after a random chain of one to eight primitives.

    AssertionError or InputError if its meaning changed, it does not elaborate, or its text does
    not give it back.
    """
    random = Random(seed)
    program = computation(random)
    inputs = arrays(program, random)
    wanted = interpret(program, {}, inputs)
    chain = Chain(random, program)
    for _ in range(random.randrange(1, MAX_LENGTH)):
        chain.grow()
    found = interpret(chain.program, chain.values, inputs)
    np.testing.assert_array_equal(found, wanted, str(chain.log))
    elaborate(chain.program, chain.values)
    if parse(to_text(chain.program)) != chain.program:
        raise AssertionError(f"the text is of another program: {chain.log}")
    return chain


@dataclass
class Campaign:
    """What was found so far."""

    seed: int
    chains: int = 0
    applied: Counter[str] = field(default_factory=Counter[str])
    lengths: Counter[int] = field(default_factory=Counter[int])
    failures: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """``nestmap/schedule-chains/1``."""
        return {
            "schema": SCHEMA,
            "seed": self.seed,
            "chains": self.chains,
            "failures": self.failures,
            "applied": {name: self.applied[name] for name in NAMES},
            "lengths": {str(k): self.lengths[k] for k in sorted(self.lengths)},
            "cpu_seconds": round(self.seconds, 1),
        }


def run(count: int, seed: int, told: Callable[[Campaign], None] = lambda _: None) -> Campaign:
    """Chains of seeds ``seed`` to ``seed + count - 1``; ``told`` after every hundred."""
    found = Campaign(seed)
    started = time.process_time()
    for number in range(seed, seed + count):
        try:
            chain = check_chain(number)
        except Exception as error:  # whatever it is, it is a fault of a primitive
            found.failures.append(
                {"seed": number, "error": f"{type(error).__name__}: {error}"[:500]}
            )
        else:
            found.applied.update(line.split("(")[0] for line in chain.log)
            found.lengths[len(chain.log)] += 1
        found.chains += 1
        found.seconds = time.process_time() - started
        if found.chains % 100 == 0:
            told(found)
        if len(found.failures) >= MAX_FAILURES:
            break
    return found
