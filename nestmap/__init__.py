"""nestmap: every valid way to run a convolution in parallel, with proof, kernels and times.

The public Python API. Names are looked up when they are first used, so that ``import
nestmap`` costs nothing and only what needs the solver or a device loads them::

    import nestmap

    subject = nestmap.load_subject("vgg16/7", variant="high-level")
    space = nestmap.derive_space(
        subject, nestmap.Mode.STRICT, nestmap.load_profile("pocl"), nestmap.RuleOptions()
    )
    with nestmap.enumerate_assignments(space, limit=1) as found:
        plan = nestmap.generate_kernels(subject, next(found))
    print(plan.source, plan.memory_bytes)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from db.store import Store
    from mapper.ast_model.text_form import parse, to_text
    from mapper.constraint_rules.rule import Constraint, Mode, RuleOptions
    from mapper.device_profile import DeviceProfile
    from mapper.errors import (
        DeviceError,
        InputError,
        LimitError,
        NestmapError,
        Problem,
        StoreError,
        TypeErrors,
        UnsatisfiableError,
    )
    from mapper.host_plan import HostPlan
    from mapper.layer_sets import named_layer
    from mapper.layer_spec import Activation, DType, LayerSpec, Layout
    from mapper.pipeline import (
        Subject,
        assignment_from_json,
        assignment_to_json,
        derive_space,
        generate_kernels,
        subject_of_layer,
        subject_of_nest,
        subject_of_program,
    )
    from mapper.profiles import load_profile, profile_names
    from mapper.schedule import ScheduleCode
    from mapper.solver.counting import Mappings, count_assignments, count_mappings
    from mapper.solver.enumeration import enumerate_assignments
    from mapper.solver.explanation import explain_conflict
    from mapper.solver.limits import SolveLimits, Watch
    from mapper.solver.nearest import nearest
    from mapper.solver.preferences import best
    from mapper.solver.restrictions import Restrictions, narrowed
    from mapper.solver.sampling import Measure, complete, sample
    from mapper.solver.space import Space, Violation, check
    from mapper.solver.strata import by_dimensions, up_to_symmetry
    from mapper.tuning_space.codec import space_from_json, space_to_json
    from mapper.tuning_space.document import TuningSpace
    from mapper.tuning_space.lowering import solver_space
    from mapper.tuning_space.where import with_where
    from nestmap.client import AsyncClient, Client, ServiceError
    from nestmap.device_limits import limits_of_device
    from nestmap.subjects import load_subject

__version__ = "0.1.0"

_HOME: dict[str, str] = {
    "Store": "db.store",
    "parse": "mapper.ast_model.text_form",
    "to_text": "mapper.ast_model.text_form",
    "Constraint": "mapper.constraint_rules.rule",
    "Mode": "mapper.constraint_rules.rule",
    "RuleOptions": "mapper.constraint_rules.rule",
    "DeviceProfile": "mapper.device_profile",
    "DeviceError": "mapper.errors",
    "InputError": "mapper.errors",
    "LimitError": "mapper.errors",
    "NestmapError": "mapper.errors",
    "Problem": "mapper.errors",
    "StoreError": "mapper.errors",
    "TypeErrors": "mapper.errors",
    "UnsatisfiableError": "mapper.errors",
    "HostPlan": "mapper.host_plan",
    "LayerSpec": "mapper.layer_spec",
    "Activation": "mapper.layer_spec",
    "DType": "mapper.layer_spec",
    "Layout": "mapper.layer_spec",
    "named_layer": "mapper.layer_sets",
    "Subject": "mapper.pipeline",
    "assignment_from_json": "mapper.pipeline",
    "assignment_to_json": "mapper.pipeline",
    "derive_space": "mapper.pipeline",
    "generate_kernels": "mapper.pipeline",
    "subject_of_layer": "mapper.pipeline",
    "subject_of_nest": "mapper.pipeline",
    "subject_of_program": "mapper.pipeline",
    "load_profile": "mapper.profiles",
    "profile_names": "mapper.profiles",
    "ScheduleCode": "mapper.schedule",
    "complete": "mapper.solver.sampling",
    "count_mappings": "mapper.solver.counting",
    "enumerate_assignments": "mapper.solver.enumeration",
    "sample": "mapper.solver.sampling",
    "Space": "mapper.solver.space",
    "Violation": "mapper.solver.space",
    "check": "mapper.solver.space",
    "Mappings": "mapper.solver.counting",
    "count_assignments": "mapper.solver.counting",
    "explain_conflict": "mapper.solver.explanation",
    "SolveLimits": "mapper.solver.limits",
    "Watch": "mapper.solver.limits",
    "nearest": "mapper.solver.nearest",
    "best": "mapper.solver.preferences",
    "Restrictions": "mapper.solver.restrictions",
    "narrowed": "mapper.solver.restrictions",
    "Measure": "mapper.solver.sampling",
    "by_dimensions": "mapper.solver.strata",
    "up_to_symmetry": "mapper.solver.strata",
    "space_from_json": "mapper.tuning_space.codec",
    "space_to_json": "mapper.tuning_space.codec",
    "TuningSpace": "mapper.tuning_space.document",
    "solver_space": "mapper.tuning_space.lowering",
    "with_where": "mapper.tuning_space.where",
    "AsyncClient": "nestmap.client",
    "Client": "nestmap.client",
    "ServiceError": "nestmap.client",
    "limits_of_device": "nestmap.device_limits",
    "load_subject": "nestmap.subjects",
}

__all__ = [
    "Activation",
    "AsyncClient",
    "Client",
    "Constraint",
    "DType",
    "DeviceError",
    "DeviceProfile",
    "HostPlan",
    "InputError",
    "LayerSpec",
    "Layout",
    "LimitError",
    "Mappings",
    "Measure",
    "Mode",
    "NestmapError",
    "Problem",
    "Restrictions",
    "RuleOptions",
    "ScheduleCode",
    "ServiceError",
    "SolveLimits",
    "Space",
    "Store",
    "StoreError",
    "Subject",
    "TuningSpace",
    "TypeErrors",
    "UnsatisfiableError",
    "Violation",
    "Watch",
    "__version__",
    "assignment_from_json",
    "assignment_to_json",
    "best",
    "by_dimensions",
    "check",
    "complete",
    "count_assignments",
    "count_mappings",
    "derive_space",
    "enumerate_assignments",
    "explain_conflict",
    "generate_kernels",
    "limits_of_device",
    "load_profile",
    "load_subject",
    "named_layer",
    "narrowed",
    "nearest",
    "parse",
    "profile_names",
    "sample",
    "solver_space",
    "space_from_json",
    "space_to_json",
    "subject_of_layer",
    "subject_of_nest",
    "subject_of_program",
    "to_text",
    "up_to_symmetry",
    "with_where",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'nestmap' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
