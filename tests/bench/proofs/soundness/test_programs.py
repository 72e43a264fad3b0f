"""The generator: one seed one program, everything that the campaign promises is drawn."""

from __future__ import annotations

from collections import Counter

from bench.proofs.soundness.campaign import draft_of
from bench.proofs.soundness.cases import draw_draft
from bench.proofs.soundness.coverage import program_features
from mapper.ast_model.codec import program_from_json, program_to_json
from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.loop_nest import walk
from mapper.ast_model.printer import to_text
from mapper.ast_model.text_form import parse
from mapper.errors import InputError


class Recorded:
    def __init__(self, choices: list[int]) -> None:
        self.left = list(choices)

    def integer(self, high: int) -> int:
        value = self.left.pop(0)
        assert value <= high
        return value


class Zeros:
    def integer(self, high: int) -> int:
        return 0


def test_a_seed_and_a_number_give_one_draft() -> None:
    for number in range(50):
        assert draft_of(3, number) == draft_of(3, number)
    assert draft_of(3, 1) != draft_of(3, 2)
    assert draft_of(3, 1) != draft_of(4, 1)


def test_recorded_choices_give_the_draft_again() -> None:
    for number in range(50):
        draft, choices = draft_of(5, number)
        source = Recorded(choices)
        assert draw_draft(source) == draft
        assert source.left == []


def test_the_simplest_choices_give_a_program_of_one_map() -> None:
    program = draw_draft(Zeros()).program
    maps = {m for kernel in elaborate(program).kernels for m in kernel.map_ids()}
    assert len(program.kernels) == len(maps) == 1


def test_programs_survive_json_and_text() -> None:
    for number in range(60):
        program = draft_of(7, number)[0].program
        assert program_from_json(program_to_json(program)) == program
        assert parse(to_text(program)) == program


def test_drafts_cover_what_a_campaign_promises() -> None:
    found: Counter[tuple[str, str]] = Counter()
    readable = 0
    drafts = 300
    for number in range(drafts):
        program = draft_of(11, number)[0].program
        try:
            loops = elaborate(program, {p.name: p.values[0] for p in program.parameters})
        except InputError:
            continue
        readable += 1
        depths = [
            sum(loop.map_id is not None for loop in around)
            for kernel in loops.kernels
            for _, around in walk(kernel.statements)
        ]
        found.update({*program_features(program), ("depth", str(max(depths)))})
    assert readable > 0.9 * drafts
    memories = ("private", "local", "global", "in place or private")
    views = ("split", "join", "slide", "pad", "transpose", "reorder", "asvector", "zip")
    wanted = {
        *(("depth", str(depth)) for depth in range(1, 6)),
        *(("kernels", str(count)) for count in (1, 2, 3)),
        *(("tuning parameters", str(count)) for count in (0, 1, 2)),
        *(("accumulator", f"{kind}, {m}") for kind in ("scalar", "array") for m in memories),
        *(("view between producer and consumer", view) for view in views),
        *(("view of a result", view) for view in ("join", "pad", "transpose", "reorder", "split")),
        *(("kind of let", kind) for kind in ("stored", "computed scalar")),
        *(("reduction", function) for function in ("add", "max", "min", "lanes")),
        ("named sizes", "yes"),
        ("inputs", "3"),
        ("written in every round of a reduction", "yes"),
    }
    assert {pair for pair in wanted if found[pair] < 3} == set()
