"""Where the mappings of ``nestmap solve --url`` come from: a service."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mapper.constraint_rules.predicate import CodeVariable
from mapper.errors import InputError, LimitError, Problem
from mapper.pipeline import Assignment, assignment_from_json
from mapper.solver.limits import Progress
from mapper.tuning_space.configuration import configuration_from_json
from nestmap.cli.remote import asking, question_of, subject_of
from nestmap.cli.solving import Counted, Predictions, note_diverse, note_drawn, note_fewer
from nestmap.client.errors import BAD_ANSWER, ServiceError
from nestmap.requests import Request

if TYPE_CHECKING:
    from mapper.cost.analytic import DeviceConstants
    from nestmap.client import Client
    from nestmap.client.calls import Restricted


class There:
    """A service that solves: a :class:`nestmap.cli.solving.Source`."""

    def __init__(
        self,
        client: Client,
        request: Request,
        time_limit: float,
        pin: Sequence[str] = (),
        forbid: Sequence[str] = (),
        prefer: Sequence[str] = (),
        up_to_symmetry: bool = False,
    ) -> None:
        self.complete: bool | None = None
        self._client = client
        self._request = request
        self._about: Restricted = {
            **question_of(request, time_limit), "pin": list(pin), "forbid": list(forbid),
        }  # fmt: skip
        self._prefer = list(prefer)
        self._up_to_symmetry = up_to_symmetry

    def count(self, joint: bool, stratify: bool) -> Counted:
        """See :class:`nestmap.cli.solving.Source`."""
        with asking(self._request):
            found = self._client.count(
                subject_of(self._request),
                **self._about,
                joint=joint,
                stratify=stratify,
                up_to_symmetry=self._up_to_symmetry,
            )
            number = found.get("count") if found["complete"] else found.get("at_least")
            if number is None:
                raise ServiceError(BAD_ANSWER, Problem("/count", "a count without a number"))
        return Counted(number, found["complete"], found.get("by_dimensions"))

    def enumerate(self, limit: int | None, seed: int) -> Iterator[Assignment]:
        """See :class:`nestmap.cli.solving.Source`."""
        request = self._request
        whole = not (self._prefer or request.is_tree or request.subject.tuning_space is not None)
        given = 0
        try:
            with asking(request):
                found = self._client.mappings(
                    subject_of(request),
                    **self._about,
                    prefer=self._prefer,
                    limit=limit,
                    joint=whole,
                    up_to_symmetry=self._up_to_symmetry,
                )
                with found:
                    for item in found:
                        assignment = assignment_of(request, item)
                        # Of a bare tree a mapping is its codes; the service adds sizes.
                        yield _codes_of(assignment) if request.is_tree else assignment
                        given += 1
                    self.complete = found.end is not None and found.end["next"] is None
        except LimitError as error:
            # As without a service: some spaces are too large for one model.
            too_complex = isinstance(error.__cause__, ServiceError) and (
                error.__cause__.kind == "too-complex"
            )
            if given or limit is None or not whole or not too_complex:
                raise
            note_drawn(error)
            yield from self.sample(limit, seed, False, False)

    def sample(self, number: int, seed: int, joint: bool, stratify: bool) -> Iterator[Assignment]:
        """See :class:`nestmap.cli.solving.Source`."""
        with asking(self._request):
            found = self._client.sample(
                subject_of(self._request),
                **self._about,
                number=number,
                seed=seed,
                joint=joint,
                stratify=stratify,
                up_to_symmetry=self._up_to_symmetry,
            )
            if reason := found.get("not_uniform"):
                note_diverse(reason)
            for item in found["items"]:
                yield assignment_of(self._request, item)
        note_fewer(len(found["items"]), number, stratify)

    def best(
        self, number: int, constants: DeviceConstants | None, seed: int, progress: Progress
    ) -> Predictions:
        """See :class:`nestmap.cli.solving.Source`; a service tells of no progress."""
        del progress
        with asking(self._request):
            found = self._client.best(
                subject_of(self._request),
                **self._about,
                number=number,
                seed=seed,
                constants=None if constants is None else constants.to_json(),
            )
            return Predictions(
                [_predicted_of(self._request, item) for item in found["items"]],
                found["bound_ms"],
                found["gap"],
                found["proved"],
                found["predicted"],
            )


def _codes_of(assignment: Assignment) -> Assignment:
    return {v: value for v, value in assignment.items() if isinstance(v, CodeVariable)}


def _predicted_of(request: Request, item: Mapping[str, Any]) -> tuple[Assignment, float]:
    time_ms = item.get("predicted_ms")
    if not isinstance(time_ms, int | float):
        raise ServiceError(BAD_ANSWER, Problem("/items", "a prediction without a time"))
    chosen = {name: value for name, value in item.items() if name != "predicted_ms"}
    return assignment_of(request, chosen), float(time_ms)


def assignment_of(request: Request, item: Mapping[str, Any]) -> Assignment:
    """A mapping of the service in the space that was derived here; ServiceError where it is in
    another: then the service is of another version."""
    fields = {name: value for name, value in item.items() if name != "number"}
    tuning_space = request.subject.tuning_space
    try:
        if tuning_space is not None:
            return configuration_from_json(tuning_space, json.dumps(fields))
        fields = {name: value for name, value in fields.items() if value is not None}
        return assignment_from_json(request.space, fields)
    except InputError as error:
        raise ServiceError(
            BAD_ANSWER,
            [Problem(p.path, f"the service's mapping is of another space: {p.message}", p.found)
             for p in error.problems],
        ) from None  # fmt: skip
