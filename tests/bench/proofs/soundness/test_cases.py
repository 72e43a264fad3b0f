"""Cases of drafts: what fails before anything runs is told from what promises nothing."""

from __future__ import annotations

import pytest

from bench.proofs.soundness import cases
from bench.proofs.soundness.cases import BrokenPromise, Discarded, Draft, cases_of
from mapper.ast_model.text_form import parse
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.pipeline import derive_space, subject_of_program
from mapper.profiles import load_profile
from mapper.solver.sampling import sample
from mapper.solver.space import check

DEVICE = load_profile("pocl")
ONE = 'program "one" { input x : [float]4 kernel out = map#a(v => id(v), x) }'
#: The sampler failed for it: a flag of its diagram was used by nothing.
UNUSED_FLAG = """program "p" { size N1 = 9 size N2 = 1 input x : [[[[[float]N2]2]N1]1]8
  kernel one = let t = to_private(map#m1(a => map#m2(b => map#m3(c => map#m4(d => map#m5(e =>
      id(e), d), c), b), a), x)) in
    map#m6(a => map#u(b => join(b), join(map#m7(b => map#m8(c =>
      reduce((acc, row) => map#m10(p => max(p.0, p.1), zip(acc, reorder(reverse, row))),
             map#m9(z => id(z), fill(-1000.0, N2)), c), b), a))),
      pad(0, -1, 0.0, t)) }"""


def draft(text: str) -> Draft:
    return Draft(parse(text), RuleOptions(sequential_fusion=False), 1, None)


def test_a_program_without_a_mapping_makes_no_case() -> None:
    text = ONE.replace("map#a(v => id(v), x)", "map#b(w => id(w), to_local(map#a(v => id(v), x)))")
    assert cases_of(draft(text), DEVICE, 2) == Discarded("no mapping")


def test_a_refused_program_makes_no_case() -> None:
    found = cases_of(draft(ONE.replace("id(v)", "v")), DEVICE, 2)
    assert isinstance(found, Discarded)
    assert found.reason.startswith("refused: ")


def test_whatever_else_the_sampler_raises_is_a_broken_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sample(*arguments: object) -> object:
        raise KeyError(4)

    monkeypatch.setattr(cases, "sample", sample)
    with pytest.raises(BrokenPromise, match="sampling: KeyError: 4") as caught:
        cases_of(draft(ONE), DEVICE, 2)
    assert set(caught.value.value) == {"program", "options"}


def test_a_space_with_an_unused_flag_is_sampled() -> None:
    subject = subject_of_program(parse(UNUSED_FLAG))
    options = RuleOptions(sequential_fusion=False, replicate_private=True)
    space = derive_space(subject, Mode.STRICT, DEVICE, options)
    found = list(sample(space, 3, 55112))
    assert len(found) == 3
    assert all(check(space, assignment) == () for assignment in found)
