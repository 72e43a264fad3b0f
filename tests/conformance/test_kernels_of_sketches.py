"""Kernels of sketches, a GPU's among them, on the processor's driver against the interpreter.

What is drawn is a solution under what suits the device that the sketch is for. The seed is fresh
and printed, so that a failure can be reproduced (NESTMAP_CAMPAIGN_SEED=<seed>).
"""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from bench.proofs.schedules.computations import arrays
from mapper.ast_model.interpreter import interpret
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Mode
from mapper.constraint_rules.suits.catalogue import ALL_SUITS
from mapper.errors import UnsatisfiableError
from mapper.pipeline import derive_space, generate_kernels, subject_of_program
from mapper.profiles import load_profile
from mapper.schedules.sketches.derivation import sketches_of
from mapper.solver.factored.suited import SuitedSpace
from tests.effort import cases, combined
from tests.kernels import run_once
from tests.unit.schedules.test_sketches import DEVICES, PROGRAMS, program_of

pytestmark = pytest.mark.kernels
SEED = int(os.environ.get("NESTMAP_CAMPAIGN_SEED", secrets.randbelow(2**31)))
DRAWS = cases(1, 20)
#: So many sketches of each program that have a solution, others in each run.
SKETCHES = cases(6, 1000)
SUITS = replace(DEFAULT_OPTIONS, suits=ALL_SUITS)


@pytest.mark.parametrize(("name", "device"), combined([*PROGRAMS], DEVICES))
def test_kernels_of_sketches_compute_what_the_program_says(name: str, device: str) -> None:
    program, random = program_of(name), Random(SEED)
    # PoCL's groups are no larger.
    sizes = {"max_work_group_size": 256, "max_work_item_sizes": (256, 256, 256)}
    profile = replace(load_profile(device), **sizes)
    print(f"seed {SEED}")
    inputs = arrays(program, random)
    expected = interpret(program, {}, inputs)
    tried = 0
    found = sketches_of(program, profile)
    for sketch in random.sample(found, len(found)):
        subject = subject_of_program(sketch.program, sketch.name)
        space = derive_space(subject, Mode.STRICT, profile, SUITS)
        try:
            suited = SuitedSpace(space)
        except UnsatisfiableError:
            continue
        for _ in range(DRAWS):
            drawn = suited.draw_joint(random)
            if drawn is None:
                break
            plan = generate_kernels(subject, drawn)
            held = {b.name: b.dtype for b in plan.buffers}
            got = run_once(plan, {key: a.astype(held[key]) for key, a in inputs.items()})
            np.testing.assert_array_equal(got, expected, f"{sketch.name}: {drawn}")
            tried += 1
        if tried >= SKETCHES * DRAWS:
            break
    assert tried > 0
