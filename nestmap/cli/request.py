"""What most commands begin with: options they share, and the space that these ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from mapper.constraint_rules.rule import Mode
from mapper.pipeline import subject_of_scheduled
from mapper.schedules.schedule import Schedule
from mapper.schedules.scheduled import Scheduled
from mapper.solver.limits import DEFAULT_MEMORY, SolveLimits
from mapper.variants import DEFAULT_VARIANT
from nestmap.choosing import DefaultVariant
from nestmap.cli.output import note
from nestmap.device_limits import limits_of_device
from nestmap.requests import Request, request_about
from nestmap.stated import NOTHING_STATED, Stated, stated
from nestmap.subjects import load_subject, sketch_of, written_in

XArgument = Annotated[
    str,
    typer.Argument(
        metavar="X",
        help="A layer's name (vgg16/7), or a file with a layer, a program, a nest tree or a "
        "tuning space; - reads standard input.",
        show_default=False,
    ),
]
VariantOption = Annotated[
    str | None,
    typer.Option(
        help="How a layer is computed: direct where that does it, else high-level, unless told; "
        "or one of its sketches. Of a program one of its sketches.",
        metavar="NAME",
        show_default=False,
    ),
]
ModeOption = Annotated[
    Mode,
    typer.Option(help="The rules as printed in the paper, or without their holes."),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="A profile (pocl, mali-g72, h200) or a device that is here (host, 0, nvidia, "
        "opencl:<platform>/<device>).",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON instead of tables.")]
SeedOption = Annotated[int, typer.Option(help="Of everything random.", min=0, max=2**63 - 1)]
TimeLimitOption = Annotated[
    float,
    typer.Option(help="Seconds that solving may take; 0: no limit.", min=0, metavar="SECONDS"),
]
MemoryLimitOption = Annotated[
    int,
    typer.Option(
        help="MiB by which solving may let the process grow; 0: no limit.",
        min=0,
        max=2**40,
        metavar="MIB",
    ),
]
PinOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pin",
        metavar="NAME=VALUE",
        help="Fix a map's schedule (28=W0), a tuning parameter (theta=5) or a local size "
        "(KERNEL.0=8), or let it be any of several (28=W0,W1); may be repeated.",
    ),
]
ForbidOption = Annotated[
    list[str] | None,
    typer.Option(
        "--forbid",
        metavar="NAME=VALUE",
        help="Take a value away, or several (28=G0,G1,G2); may be repeated.",
    ),
]
PreferOption = Annotated[
    list[str] | None,
    typer.Option(
        "--prefer",
        metavar="NAME=VALUE",
        help="Look for this value first, perhaps with a weight (28=W0:3,W1); may be repeated.",
    ),
]

SuitsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--suits",
        metavar="RULE",
        help="Ask for what suits the device, too: all, a rule (suits-whole-warps), or all but one "
        "(all,-suits-whole-warps); may be repeated. `nestmap constraints X --suits all` lists "
        "them.",
    ),
]

SequentialFusionOption = Annotated[
    bool,
    typer.Option(
        "--sequential-fusion/--no-sequential-fusion",
        help="Of two sequential maps in a perfect run one is fused with the other.",
    ),
]
ReplicatePrivateOption = Annotated[
    bool,
    typer.Option(
        "--replicate-private",
        help="What writes private memory alone may be run by every work-item.",
    ),
]
FreeGridOption = Annotated[
    bool,
    typer.Option(
        "--free-grid",
        help="Admit launches that the paper's rules (4) to (6) exclude though they run right.",
    ),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="EXPRESSION",
        help="Ask for what this says of parameters, code(MAP) and local_size(KERNEL, 0), too, as "
        "in 'kappa * sigma <= 32' or 'code(row) in [W0, W1]'; may be repeated.",
    ),
]

DEFAULT_TIME_LIMIT_S = 300.0
DEFAULT_MEMORY_LIMIT_MIB = DEFAULT_MEMORY >> 20


def prepare(
    x: str,
    variant: str | None,
    mode: Mode,
    device: str,
    stated: Stated = NOTHING_STATED,
    schedule: Schedule | None = None,
) -> Request:
    """Load what X names and derive its space, with what is stated of it.

    A program's variant is one of its sketches on the device, unless a ``schedule`` is given; a
    layer's is one of those of the program that it is, too.
    """
    # The device first: it is the cheaper one to be wrong.
    limits = limits_of_device(device)
    default = DefaultVariant()
    subject = load_subject(x, default=written_in(variant, default))
    if subject.layer is None and schedule is not None and subject.scheduled is None:
        subject = subject_of_scheduled(
            Scheduled(subject.require_program(), schedule), subject.label
        )
    elif (sketch := sketch_of(subject, variant)) is not None:
        # Loads the making of sketches.
        from nestmap.tuning.sketch_subjects import in_variant

        subject = in_variant(subject, sketch, limits)
    if subject.layer is not None and variant is None and subject.variant != DEFAULT_VARIANT:
        note(f"variant: {subject.variant} ({default.reason})")
    return request_about(subject, limits, mode, "--mode", default.reason, stated)


def stated_by(
    suits: Sequence[str] | None,
    sequential_fusion: bool,
    replicate_private: bool,
    free_grid: bool,
    where: Sequence[str] | None,
) -> Stated:
    """What the options of these names state."""
    return stated(suits or (), sequential_fusion, replicate_private, free_grid, where or ())


def seconds_or_none(time_limit: float) -> float | None:
    """A time limit as the solver wants it."""
    return time_limit or None


def limits_of(time_limit: float, memory_limit: int) -> SolveLimits:
    """Both options as the solver wants them."""
    memory = memory_limit << 20 or None
    return SolveLimits(time_s=seconds_or_none(time_limit), memory_bytes=memory)
