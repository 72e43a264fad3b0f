"""What every strategy promises, and that those which learn do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from mapper.errors import InputError
from mapper.search import learner, model_guided
from mapper.search.candidates import Candidates, Choices, SolvedCandidates, candidates_of
from mapper.search.evolution import Evolution
from mapper.search.gaussian_process import GaussianProcess, Priors
from mapper.search.goal import Fastest, FastestWithin, Front, Goal
from mapper.search.model_guided import (
    VIEWS_IN_DOUBT,
    VIEWS_OF_TREES_IN_DOUBT,
    ModelGuided,
    Rule,
    Settings,
)
from mapper.search.pool import Described, nothing_known
from mapper.search.predicted_first import PredictedFirst
from mapper.search.random_search import RandomSearch
from mapper.search.strategy import Choice, Outcome, Strategy
from mapper.search.trees import Forest
from mapper.solver.space import check
from tests.unit.search.spaces import limited_space, outcome_at, run, time_of

Make = Callable[[Candidates, int], Strategy]
SPACE = limited_space()

STRATEGIES: dict[str, Make] = {
    "random": RandomSearch,
    "evolution": Evolution,
    "model": lambda candidates, seed: ModelGuided(candidates, seed, space=SPACE),
    "expected": lambda candidates, seed: ModelGuided(
        candidates, seed, space=SPACE, settings=Settings(rule=Rule.EXPECTED)
    ),
    "trees": lambda candidates, seed: ModelGuided(
        candidates, seed, space=SPACE, settings=Settings(trees=True)
    ),
    "predicted": lambda candidates, seed: PredictedFirst(
        candidates, seed, describe=_guessed, space=SPACE
    ),
}


def _described(rows: np.ndarray) -> Described:
    return Described(1000 * rows[:, 2], np.zeros((len(rows), 0)))


def _guessed(rows: np.ndarray) -> Described:
    """Knows of the first variable only, so that many candidates are guessed alike."""
    guess = np.abs(np.log2(rows[:, 0]) - 4)
    return Described(1000 * rows[:, 2], np.zeros((len(rows), 0)), guess)


@pytest.fixture(params=STRATEGIES)
def make(request: pytest.FixtureRequest) -> Make:
    return STRATEGIES[request.param]


def test_candidates_are_valid_and_none_comes_twice(make: Make) -> None:
    found = run(make(candidates_of(SPACE), 1), 30, batch=4)
    names = [name for name, _ in SPACE.variables]
    assert len(set(found)) == len(found) == 30
    assert not any(check(SPACE, dict(zip(names, c, strict=True))) for c in found)


def test_one_seed_gives_one_search(make: Make) -> None:
    first, second, other = (run(make(candidates_of(SPACE), s), 24) for s in (5, 5, 6))
    assert first == second != other


def test_a_search_told_of_the_past_goes_on_where_it_ended(make: Make) -> None:
    whole = run(make(candidates_of(SPACE), 3), 26)
    again = make(candidates_of(SPACE), 3)
    stored = {choice: outcome_at(choice) for choice in whole[:20]}
    replayed: list[Choice] = []
    for _ in range(26):
        (choice,) = again.ask(1)
        replayed.append(choice)
        again.tell([(choice, stored.get(choice) or outcome_at(choice))])
    assert replayed == whole


def test_every_candidate_of_a_small_space_comes_once(make: Make) -> None:
    small = limited_space(2)
    listed = candidates_of(small).listed
    assert listed is not None
    # The learning strategies' features are those of the other space: of these variables too.
    found = run(make(candidates_of(small), 0), 1000, batch=7)
    assert sorted(found) == sorted(map(tuple, listed.tolist()))


def test_candidates_of_others_are_not_asked_again(make: Make) -> None:
    strategy = make(candidates_of(SPACE), 0)
    foreign = candidates_of(SPACE).draw(40, 99)
    strategy.tell([(choice, outcome_at(choice)) for choice in foreign])
    assert not set(foreign) & set(strategy.ask(20))


def test_models_find_the_best_of_160_with_a_fifth_of_the_evaluations() -> None:
    candidates = candidates_of(SPACE)
    least = {}
    for name in ("random", "model", "expected"):
        runs = [run(STRATEGIES[name](candidates, seed), 30) for seed in range(5)]
        least[name] = np.median([min(map(time_of, found)) for found in runs])
    assert least["model"] == 1.0
    assert least["expected"] == 1.0
    assert least["random"] > 1.0


@pytest.mark.parametrize("goal", [Fastest(), Front()], ids=["fastest", "front"])
def test_when_nothing_better_comes_some_turns_change_one_decision_of_the_best(goal: Goal) -> None:
    candidates = candidates_of(SPACE)
    best = (1, 1, 1)
    others = [choice for choice in candidates.draw(60, 7) if choice != best]

    def decisions_changed(told: int, patience: int) -> set[int]:
        """Of the next candidate, by seed, once so many were slower than the first."""
        found: set[int] = set()
        for seed in range(3):
            settings = Settings(patience=patience)
            strategy = ModelGuided(candidates, seed, space=SPACE, goal=goal, settings=settings)
            strategy.tell([(best, Outcome(0.99, 9000))])
            strategy.tell([(choice, outcome_at(choice)) for choice in others[: told - 1]])
            (asked,) = strategy.ask(1)
            found.add(sum(one != other for one, other in zip(asked, best, strict=True)))
        return found

    assert decisions_changed(32, 1000) - {1}
    if isinstance(goal, Front):
        assert decisions_changed(32, 30) == decisions_changed(32, 1000)
    else:
        assert decisions_changed(32, 30) == {1}
        assert decisions_changed(33, 30) == decisions_changed(33, 1000)
        assert decisions_changed(28, 30) == decisions_changed(28, 1000)
        # The first that was not better is the second outcome.
        assert decisions_changed(32, 31) == {1} and decisions_changed(32, 32) - {1}


def test_bounds_lie_two_deviations_below_the_mean_until_50_outcomes_and_three_after() -> None:
    candidates = candidates_of(SPACE)

    def asked(told: int, settings: Settings) -> list[Choice]:
        """The next candidate of each of eight searches that know so many outcomes."""
        found: list[Choice] = []
        for seed in range(8):
            strategy = ModelGuided(candidates, seed, space=SPACE, settings=settings)
            known = candidates.draw(told, seed)
            strategy.tell([(choice, outcome_at(choice)) for choice in known])
            found += strategy.ask(1)
        return found

    for told, near in ((20, True), (49, True), (50, False)):
        usual = asked(told, Settings(patience=1000))
        two = asked(told, Settings(patience=1000, early=0, optimism=2.0))
        three = asked(told, Settings(patience=1000, early=0))
        assert two != three
        assert usual == (two if near else three)


def test_in_a_batch_each_turn_beside_the_best_is_one_candidate() -> None:
    candidates = candidates_of(SPACE)
    best = (1, 1, 1)
    others = [choice for choice in candidates.draw(60, 7) if choice != best]
    strategy = ModelGuided(candidates, 0, space=SPACE)
    strategy.tell([(best, Outcome(0.99, 9000))])
    strategy.tell([(choice, outcome_at(choice)) for choice in others[:32]])
    changed = [sum(a != b for a, b in zip(c, best, strict=True)) for c in strategy.ask(8)]
    assert [changed[3], changed[7]] == [1, 1] and set(changed[:3] + changed[4:7]) - {1}


def test_what_is_not_admitted_is_not_the_best_to_look_beside() -> None:
    candidates = candidates_of(SPACE)
    fastest, best = (1, 1, 4), (1, 1, 1)
    others = [c for c in candidates.draw(80, 7) if c not in (fastest, best) and c[2] < 4]

    def describe(rows: Choices) -> Described:
        return Described(1000 * rows[:, 2], np.zeros((len(rows), 0)))

    strategy = ModelGuided(candidates, 0, space=SPACE, goal=FastestWithin(3000), describe=describe)
    strategy.tell([(fastest, Outcome(0.5, 4000)), (best, Outcome(0.99, 1000))])
    strategy.tell([(choice, outcome_at(choice)) for choice in others[:34]])
    (asked,) = strategy.ask(1)
    assert sum(a != b for a, b in zip(asked, best, strict=True)) == 1


@pytest.mark.parametrize("settings", [Settings(trees=True), Settings(beside_best=0)])
def test_forests_and_who_wants_none_have_no_turns_beside_the_best(settings: Settings) -> None:
    candidates = candidates_of(SPACE)
    choices = candidates.draw(60, 7)
    asked: list[list[Choice]] = []
    for patience in (5, 1000):
        strategy = ModelGuided(
            candidates, 0, space=SPACE, settings=replace(settings, patience=patience)
        )
        strategy.tell([(choices[0], Outcome(0.5, 9000))])
        strategy.tell([(choice, outcome_at(choice)) for choice in choices[1:40]])
        asked.append(strategy.ask(8))
    assert asked[0] == asked[1]


def test_in_a_wide_space_a_process_learns_from_what_is_known_beside_a_forest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("model_guided", "learner"):
        monkeypatch.setattr(f"mapper.search.{module}.MOST_FEATURES", 2)

    def describe(rows: Choices) -> Described:
        known = np.array([[time_of(tuple(row)), 1.0, row[2]] for row in rows.tolist()])
        return Described(np.zeros(len(rows), np.int64), known)

    space = limited_space()
    strategy = ModelGuided(candidates_of(space), 1, space=space, describe=describe)
    run(strategy, 18)
    forest, process = (learner._model for learner in strategy._learners)
    assert isinstance(forest, Forest) and isinstance(process, GaussianProcess)
    # Of the three columns one is the same everywhere.
    assert process.length_scales.shape == (2,)


def test_learners_in_doubt_see_nothing_of_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four learn where something is known of candidates, two where nothing is."""
    seen: list[int] = []

    class Watched(GaussianProcess):
        def __init__(self, features: int, priors: Priors | None = None) -> None:
            seen.append(features)
            super().__init__(features, priors)

    monkeypatch.setattr(learner, "GaussianProcess", Watched)

    def described(rows: Choices) -> Described:
        known = np.array([[time_of(tuple(row)), float(row[0] == 16)] for row in rows.tolist()])
        return Described(np.zeros(len(rows), np.int64), known)

    settings = Settings(start=6, views=VIEWS_IN_DOUBT)
    for describe in (described, nothing_known):
        strategy = ModelGuided(
            candidates_of(SPACE), 0, space=SPACE, describe=describe, settings=settings
        )
        run(strategy, 8)
    # Values have columns of their own; what is known are two.
    sizes, values = seen[4:]
    assert seen == [sizes + 2, values + 2, sizes, values, sizes, values] and values > sizes
    # Too many columns for a process: what is in doubt is not seen instead of them.
    for most, expected in ((sizes + 1, [2, sizes]), (values, [sizes + 2, 2, sizes, values])):
        seen.clear()
        monkeypatch.setattr(model_guided, "MOST_FEATURES", most)
        monkeypatch.setattr(learner, "MOST_FEATURES", most)
        trees = replace(settings, views_of_trees=VIEWS_OF_TREES_IN_DOUBT)
        strategy = ModelGuided(
            candidates_of(SPACE), 0, space=SPACE, describe=described, settings=trees
        )
        run(strategy, 8)
        assert seen == expected


@pytest.mark.parametrize(("guess", "unguided"), [(False, 16), (True, 8)])
def test_with_a_guess_the_model_begins_after_half_as_many(
    monkeypatch: pytest.MonkeyPatch, guess: bool, unguided: int
) -> None:
    told: list[int] = []

    def guided(search: ModelGuided, count: int) -> list[Choice]:
        told.append(len(search._told))
        return search._unguided(count)

    monkeypatch.setattr(ModelGuided, "_guided", guided)

    def describe(rows: Choices) -> Described:
        nothing = np.zeros((len(rows), 0))
        guesses = rows[:, 0].astype(np.float64) if guess else None
        return Described(np.zeros(len(rows), np.int64), nothing, guesses)

    run(ModelGuided(candidates_of(limited_space()), 1, describe=describe), 18)
    assert told[0] == unguided


def test_a_trusted_guess_chooses_all_of_the_first_and_counts_after_that() -> None:
    """Times follow no feature, only the guess: learners alone would look anywhere."""
    listed = candidates_of(SPACE)
    assert listed.listed is not None
    order = np.random.default_rng(0).permutation(len(listed.listed))
    place_of = {tuple(row): int(p) for row, p in zip(listed.listed.tolist(), order, strict=True)}

    def guessed(rows: np.ndarray) -> Described:
        guess = np.array([place_of[tuple(row)] for row in rows.tolist()], np.float64)
        return Described(np.zeros(len(rows), np.int64), np.zeros((len(rows), 0)), guess)

    def places(trusted: bool) -> list[int]:
        settings = Settings(trusted=trusted)
        search = ModelGuided(listed, 0, describe=guessed, settings=settings)
        found: list[int] = []
        for _ in range(24):
            (choice,) = search.ask(1)
            found.append(place_of[choice])
            search.tell([(choice, Outcome(1.0 + found[-1], 0))])
        return found

    assert places(True)[:8] == list(range(8))
    assert places(False)[:8:2] == list(range(4))
    assert np.mean(places(True)[8:]) < 0.8 * np.mean(places(False)[8:])


def test_children_of_good_parents_are_better_than_random_candidates() -> None:
    candidates = candidates_of(SPACE)
    means = [
        np.mean(
            [np.mean([time_of(c) for c in run(make(candidates, s), 50)[25:]]) for s in range(8)]
        )
        for make in (STRATEGIES["random"], STRATEGIES["evolution"])
    ]
    assert means[1] < 0.85 * means[0]


def test_the_fastest_within_some_bytes_asks_for_no_more_bytes() -> None:
    goal = FastestWithin(2000)
    strategy = ModelGuided(candidates_of(SPACE), 0, space=SPACE, goal=goal, describe=_described)
    found = run(strategy, 35)
    assert {choice[2] for choice in found} <= {1, 2}
    assert min(map(time_of, found)) == pytest.approx(time_of((16, 4, 2)))


@pytest.mark.parametrize("rule", Rule)
def test_a_front_has_the_best_time_for_every_amount_of_memory(rule: Rule) -> None:
    strategy = ModelGuided(
        candidates_of(SPACE),
        0,
        space=SPACE,
        goal=Front(),
        describe=_described,
        settings=Settings(rule=rule),
    )
    found = run(strategy, 60)
    for c in (1, 2, 3):
        best = min(time_of(choice) for choice in found if choice[2] == c)
        assert best <= 1.25 * time_of((16, 4, c))


def test_evolution_keeps_the_front_and_the_bound() -> None:
    front = run(Evolution(candidates_of(SPACE), 0, goal=Front()), 60)
    assert len({choice[2] for choice in front[-20:]}) > 1
    bounded = Evolution(candidates_of(SPACE), 0, goal=FastestWithin(1000))
    late = run(bounded, 60)[30:]
    # A quarter of all do; parents do, so more of their children do.
    assert sum(choice[2] == 1 for choice in late) >= 0.4 * len(late)


def test_a_space_too_large_to_list_is_drawn_and_completed() -> None:
    candidates = SolvedCandidates(SPACE)
    strategy = ModelGuided(candidates, 0, space=SPACE, settings=Settings(growth=24), goal=Fastest())
    found = run(strategy, 40, batch=4)
    assert len(set(found)) == 40
    assert min(map(time_of, found)) <= 1.4


def test_the_best_predicted_come_first_and_ties_at_random() -> None:
    whole, other = (run(STRATEGIES["predicted"](candidates_of(SPACE), s), 160) for s in (0, 1))
    guesses = _guessed(np.array(whole)).guess
    assert guesses is not None and (np.diff(guesses) >= 0).all()
    assert whole != other and sorted(whole[:20]) == sorted(other[:20])


def test_a_predicted_front_comes_before_the_rest() -> None:
    def described(rows: np.ndarray) -> Described:
        guess = 1.0 / rows[:, 2] + 10.0 * (rows[:, 0] != 16) + rows[:, 1]
        return Described(1000 * rows[:, 2], np.zeros((len(rows), 0)), guess)

    strategy = PredictedFirst(candidates_of(SPACE), 0, describe=described, goal=Front())
    assert strategy.ask(4) == [(16, 1, 4), (16, 1, 3), (16, 1, 2), (16, 1, 1)]


def test_a_prediction_is_needed_to_go_by_it() -> None:
    with pytest.raises(InputError, match="predicts nothing"):
        PredictedFirst(candidates_of(SPACE), 0, describe=_described).ask(1)


def test_a_prediction_leads_through_a_space_too_large_to_list() -> None:
    strategy = PredictedFirst(SolvedCandidates(SPACE), 0, describe=_guessed, growth=16)
    found = run(strategy, 24, batch=4)
    assert len(set(found)) == 24
    # Children of the best predicted are near it: a random draw has a = 16 in one of eight.
    assert sum(choice[0] == 16 for choice in found) >= 12


def test_what_a_search_starts_from_is_asked_for_once_and_placed_by_its_prediction() -> None:
    def guessed(rows: np.ndarray) -> np.ndarray:
        return rows @ np.array([-100.0, 10.0, 1.0])

    def described(rows: np.ndarray) -> Described:
        return Described(1000 * rows[:, 2], np.zeros((len(rows), 0)), guessed(rows))

    asked: list[int] = []

    def start() -> list[tuple[int, ...]]:
        asked.append(1)
        return [best, worst]

    every = candidates_of(SPACE).listed
    assert every is not None
    order = np.argsort(guessed(every))
    best, worst = (tuple(every[order[place]].tolist()) for place in (0, -1))
    solved = SolvedCandidates(SPACE)
    strategy = PredictedFirst(solved, 0, describe=described, growth=16, start=start)
    found = run(strategy, 24, batch=4)
    assert found[0] == best and worst not in found
    assert asked == [1]
    # Where all candidates are listed, there is nothing to look for.
    run(PredictedFirst(candidates_of(SPACE), 0, describe=described, start=start), 8, batch=4)
    assert asked == [1]


def test_first_candidates_come_first() -> None:
    known = [(1, 1, 1), (2, 2, 2), (1, 1, 1)]
    strategy = ModelGuided(candidates_of(SPACE), 0, space=SPACE, first=known)
    assert strategy.ask(2) == known[:2]


def test_a_search_in_which_everything_fails_goes_on() -> None:
    strategy = ModelGuided(candidates_of(SPACE), 0, space=SPACE)
    for _ in range(30):
        asked = strategy.ask(1)
        strategy.tell([(choice, Outcome(None)) for choice in asked])
        assert asked


@pytest.mark.parametrize(
    ("time_ms", "memory", "noise"), [(0.0, 0, 0.0), (float("nan"), 0, 0.0), (1.0, -1, 0.0)]
)
def test_impossible_outcomes_are_refused(time_ms: float, memory: int, noise: float) -> None:
    with pytest.raises(InputError):
        Outcome(time_ms, memory, noise)
