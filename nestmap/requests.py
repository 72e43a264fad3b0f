"""What a command or a service is asked about: a subject on a device under the rules of a mode."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mapper.constraint_rules.rule import Mode
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, Problem
from mapper.pipeline import Subject, derive_space
from mapper.schedules.schedule_text import schedule_to_json
from mapper.solver.restrictions import UNRESTRICTED, Restrictions
from mapper.solver.space import Space
from mapper.tuning_space.where import with_where
from nestmap.choosing import NAMED
from nestmap.stated import NOTHING_STATED, Stated, refuse_meaningless


@dataclass(frozen=True, slots=True)
class Request:
    """A subject with its space; ``space`` is everything that device, mode and what is ``stated``
    leave, ``restrictions`` what the user leaves of it. ``variant_reason`` says why a layer is
    computed in this variant; empty where it was named."""

    subject: Subject
    device: DeviceProfile
    mode: Mode
    space: Space
    restrictions: Restrictions = UNRESTRICTED
    variant_reason: str = ""
    stated: Stated = NOTHING_STATED

    def variant(self) -> dict[str, str]:
        """A layer's variant and why it is that one, as answers say it; empty of anything else."""
        if self.subject.layer is None:
            return {}
        return {"variant": self.subject.variant, "variant_reason": self.variant_reason or NAMED}

    def rewriting(self) -> dict[str, Any]:
        """A rewritten program's variant and schedule, with which what was chosen can be used again;
        empty of anything else."""
        scheduled = self.subject.scheduled
        if scheduled is None:
            return {}
        schedule = schedule_to_json(scheduled.schedule)
        return {"variant": self.subject.variant, "schedule": schedule}

    @property
    def is_tree(self) -> bool:
        """Whether it is about a bare nest tree, of which nothing but mappings is known."""
        return bool(self.subject.nests) and self.subject.program is None


def request_about(
    subject: Subject,
    device: DeviceProfile,
    mode: Mode,
    mode_field: str = "mode",
    variant_reason: str = "",
    stated: Stated = NOTHING_STATED,
) -> Request:
    """The request about everything valid under the rules and what is ``stated``.

    InputError names ``mode_field`` where a tuning space is asked about in paper mode, and the
    fields beside it for what has no meaning for the subject, or no name in its space.
    """
    if subject.tuning_space is not None and mode is Mode.PAPER:
        raise InputError(
            Problem(
                mode_field,
                "a tuning space states its constraints itself, so no rules are read",
                mode.value,
                f"leave {mode_field} out",
            )
        )
    refuse_meaningless(stated, subject, mode, mode_field)
    space = derive_space(subject, mode, device, stated.options)
    request = Request(subject, device, mode, space, variant_reason=variant_reason)
    return with_stated(request, stated, mode_field)


def with_stated(request: Request, stated: Stated, mode_field: str = "mode") -> Request:
    """A request under the same options with the constraints that are ``stated`` as well."""
    space = with_where(request.space, stated.where, mode_field.replace("mode", "where"))
    return replace(request, space=space, stated=stated)


def refuse_unpredictable(
    request: Request, subject_field: str = "", mode_field: str = "mode"
) -> None:
    """InputError, which names these fields, where the analytic model has nothing to predict: for
    a subject without kernels, and in paper mode, which chooses codes only."""
    try:
        request.subject.require_program()
    except InputError as error:
        raise InputError(
            Problem(subject_field or p.path, p.message, p.found, p.allowed) for p in error.problems
        ) from None
    if request.mode is not Mode.STRICT:
        raise InputError(
            Problem(mode_field, "predictions need parameters and local sizes, which this mode "
                    "does not choose", request.mode.value, Mode.STRICT.value)
        )  # fmt: skip
