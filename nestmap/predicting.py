"""What the analytic model predicts of the candidates of a request, for commands and searches."""

from __future__ import annotations

from mapper.constraint_rules.predicate import Assignment
from mapper.cost.analytic import DeviceConstants, counts_of, predicted_ms
from mapper.cost.best_predicted import BestPredicted, best_predicted
from mapper.cost.relaxed_objective import RelaxedTime, add_relaxed_time
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, UnsatisfiableError
from mapper.pipeline import Subject, choices_of, generate_kernels
from mapper.solver.limits import Watch
from mapper.solver.model import Model
from mapper.solver.restrictions import narrowed
from mapper.solver.space import Space
from nestmap.answers import empty_space_error
from nestmap.requests import Request, refuse_unpredictable


def predicted_time_ms(
    subject: Subject, assignment: Assignment, device: DeviceProfile, constants: DeviceConstants
) -> float | None:
    """The predicted time of a candidate; None where the generator refuses it."""
    try:
        plan = generate_kernels(subject, assignment)
    except InputError:
        return None
    choices = choices_of(assignment)
    codes = {str(name): code for name, code in choices.codes.items()}
    program, lanes = subject.require_program(), constants.lanes
    counts = counts_of(program, choices.parameters, codes, plan, device, lanes)
    return predicted_ms(counts, constants)


def best_of_request(
    request: Request,
    count: int,
    constants: DeviceConstants,
    seed: int,
    watch: Watch,
    effort: float | None = None,
) -> BestPredicted:
    """The best predicted candidates of a request, its restrictions kept.

    InputError for a subject without kernels and in paper mode, which chooses codes only; else
    as :func:`best_of_space`.
    """
    refuse_unpredictable(request)
    space = narrowed(request.space, request.restrictions)
    try:
        return best_of_space(
            request.subject, space, request.device, count, constants, seed, watch, effort
        )
    except UnsatisfiableError:
        raise empty_space_error(request, watch.left_s) from None


def best_of_space(
    subject: Subject,
    space: Space,
    device: DeviceProfile,
    count: int,
    constants: DeviceConstants,
    seed: int,
    watch: Watch,
    effort: float | None = None,
) -> BestPredicted:
    """The best predicted candidates of a subject's space, or of what is left of it.

    Raises as :func:`mapper.cost.best_predicted.best_predicted`, which says what ``effort`` is.
    """
    program = subject.require_program()

    def relax(model: Model, reference_ms: float) -> RelaxedTime:
        return add_relaxed_time(model, program, device, constants, reference_ms)

    def predict(assignment: Assignment) -> float | None:
        return predicted_time_ms(subject, assignment, device, constants)

    return best_predicted(space, relax, predict, count, seed=seed, watch=watch, effort=effort)
