"""What a ``propose`` request says: the run, its device, and what is known of its candidates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from mapper.ast_model.bounded_json import kind_of
from mapper.ast_model.json_reader import JsonObject, JsonReader
from mapper.constraint_rules.rule import Mode
from mapper.errors import InputError, NestmapError, Problem
from mapper.layer_sets import layer_of_name
from mapper.layer_spec import LayerSpec
from mapper.measurement import Outcome
from mapper.profiles import profile_names
from mapper.schedules.scheduled import SCHEDULED_SCHEMA
from mapper.schedules.sketches.derivation import AS_IS
from mapper.variants import LAST_RESORT, VARIANTS
from nestmap.stated import STATED
from nestmap.tasks.request_fields import Envelope, Fields, RestrictionTexts, read_mode
from nestmap.tuning.policy import DEFAULT_TIMEOUTS, TUNING_PROTOCOL, TimeoutPolicy
from nestmap.tuning.record_files import device_folder
from nestmap.tuning.sketch_subjects import MOST_SUBJECTS
from nestmap.tuning.starting_points import is_invented, paper_variants
from worker.measuring.settings import Protocol
from worker.measuring.wire import BadMessage, outcome_from_json

SUBJECT = "subject"
OWN_FIELDS = (
    "variants", "mode", "seed", "strategy", "transfer", "protocol", "pin", "forbid", "timeout_s",
    *STATED,
)  # fmt: skip
#: What the API keeps of a request beside what a proposal needs.
OTHER_FIELDS = ("schema", "device", "budget", "label", "priority", "low_water", "stand_ins")
#: ``auto`` leaves the choice to us.
STRATEGIES = ("auto", "guided", "analytic", "random")
#: Those that can learn first what other runs measured.
LEARNING = ("auto", "guided")
MOST_TIMEOUT_S = 6 * 3600.0
MOST_VARIANTS = MOST_SUBJECTS
MOST_CANDIDATES = 64
NOTHING = RestrictionTexts()

#: A candidate of a run: the variant's place among the run's, and its id.
Place = tuple[int, str]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run as its owner asked for it: what the API keeps in ``runs.request``."""

    subject: JsonObject
    #: None is the subject as it is written. Nothing at all: the first proposal chooses.
    variants: tuple[str | None, ...]
    mode: Mode
    seed: int = 0
    strategy: str = "auto"
    transfer: bool = False
    protocol: Protocol = TUNING_PROTOCOL
    restrictions: RestrictionTexts = NOTHING
    timeouts: TimeoutPolicy = DEFAULT_TIMEOUTS
    #: Fields of the request that :func:`nestmap.tasks.request_fields.read_stated` reads.
    stated: JsonObject = field(default_factory=dict[str, Any])

    def has_schedule(self, variant: str | None) -> bool:
        """Whether the subject in this variant is a program under a schedule."""
        document = self.subject.get("document")
        if isinstance(document, dict) and document.get("schema") == SCHEDULED_SCHEMA:
            return True
        if _is_layer(self.subject) and variant in VARIANTS:
            return False
        return variant not in (None, AS_IS)


@dataclass(frozen=True, slots=True)
class Earlier:
    """A program that another run measured: what was chosen (``CandidateRecord.chosen``), with its
    time in ms, None where it failed."""

    name: str
    program: JsonObject
    mode: Mode
    measured: tuple[tuple[JsonObject, float | None], ...]


@dataclass(frozen=True, slots=True)
class Known:
    """What the store knows: ``outcomes`` of measured candidates, those ``lost``; ``state`` is
    what the last proposal left for this one; ``earlier`` what other runs measured, ``best`` what
    was fast in runs of the same subject: objects of ``variant``, ``chosen``, ``time_ms``."""

    outcomes: Mapping[Place, Outcome]
    lost: frozenset[Place]
    state: JsonObject
    earlier: tuple[Earlier, ...] = ()
    best: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, slots=True)
class ProposeRequest:
    """All of a ``propose`` request. ``profile`` is a name or a JSON object; new artifacts are
    written into ``spool``."""

    run: RunRequest
    profile: object
    facts: dict[str, str]
    known: Known
    count: int
    spool: Path
    key: str = field(default="")


def read_propose(envelope: Envelope) -> ProposeRequest:
    """InputError with a pointer for everything that is wrong."""
    fields = Fields(envelope, ("run_id", "run", "device", "history", "count", "spool"), about=False)
    run = fields.object("run") or {}
    device = fields.object("device") or {}
    history = fields.object("history", required=False) or {}
    count = fields.integer("count", 8, 1, MOST_CANDIDATES) or 8
    fields.finish()
    spool = envelope.fields.get("spool")
    if not isinstance(spool, str) or not Path(spool).is_dir():
        raise InputError(Problem("/spool", "not a folder", kind_of(spool), "a folder's path"))
    facts = _facts(device.get("facts", {}))
    known_state = history.get("state")
    state = cast("JsonObject", known_state) if isinstance(known_state, dict) else {}
    request = read_run(run, facts, _settled(state))
    key = json.dumps([envelope.fields.get("run_id"), run, device], sort_keys=True)
    return ProposeRequest(
        request,
        _profile(device.get("profile"), facts),
        facts,
        _known(history, state, len(request.variants)),
        count,
        Path(spool),
        key,
    )


def read_run(
    value: JsonObject, facts: Mapping[str, str], settled: tuple[str | None, ...] = ()
) -> RunRequest:
    """A run's request for a device of these facts; InputError points below ``/run``.

    ``settled`` are the variants that the run's first proposal chose, if it has been made.
    """
    reader = JsonReader()
    reader.object(value, "/run", (SUBJECT,), (*OWN_FIELDS, *OTHER_FIELDS))
    subject = value.get("subject")
    if not isinstance(subject, dict):
        reader.fail("/run/subject", "not a subject", kind_of(subject), "an object")
    variants = _variants(reader, value, subject, facts, settled)
    seed = value.get("seed", 0)
    if reader.integer(seed, "/run/seed") is None or not 0 <= cast("int", seed) < 2**63:
        reader.fail("/run/seed", "out of range", kind_of(seed), "0 to 2^63 - 1")
    strategy = value.get("strategy", "auto")
    if strategy not in STRATEGIES:
        reader.fail("/run/strategy", "no such strategy", kind_of(strategy), ", ".join(STRATEGIES))
    transfer = value.get("transfer", False)
    if not isinstance(transfer, bool):
        reader.fail("/run/transfer", "not a truth value", kind_of(transfer), "true or false")
    elif transfer and strategy not in LEARNING:
        reader.fail("/run/transfer", "this strategy does not learn", str(strategy)[:80],
                    ", ".join(LEARNING))  # fmt: skip
    pins, forbids = (
        reader.items(value.get(name) or [], f"/run/{name}", reader.text)
        for name in ("pin", "forbid")
    )
    most_s = reader.number(value.get("timeout_s", DEFAULT_TIMEOUTS.most_s), "/run/timeout_s")
    if most_s is not None and not 0 < most_s <= MOST_TIMEOUT_S:
        reader.fail("/run/timeout_s", "out of range", str(most_s), f"up to {MOST_TIMEOUT_S}")
    reader.finish()
    assert most_s is not None
    least_s = min(DEFAULT_TIMEOUTS.least_s, most_s)
    return RunRequest(
        cast("JsonObject", subject),
        variants,
        read_mode(value.get("mode")),
        cast("int", seed),
        str(strategy),
        bool(transfer),
        _protocol(value.get("protocol")),
        RestrictionTexts(pins, forbids),
        TimeoutPolicy(least_s, most_s, DEFAULT_TIMEOUTS.factor),
        {name: value[name] for name in STATED if name in value},
    )


def _settled(state: JsonObject) -> tuple[str | None, ...]:
    """The variants that were chosen when the run began. Outcomes are kept by their places, and
    what would be chosen today depends on the records that are shipped today."""
    value = state.get("variants", [])
    names = cast("list[object]", value) if isinstance(value, list) else [value]
    known = all(name is None or isinstance(name, str) for name in names)
    if not known or len(names) > MOST_VARIANTS:
        allowed = f"up to {MOST_VARIANTS} names of variants and sketches"
        raise InputError(
            Problem("/history/state/variants", "not variants", str(value)[:80], allowed)
        )
    return tuple(cast("list[str | None]", names))


def _variants(
    reader: JsonReader,
    value: JsonObject,
    subject: object,
    facts: Mapping[str, str],
    settled: tuple[str | None, ...],
) -> tuple[str | None, ...]:
    given = value.get("variants")
    if given is None and settled:
        return settled
    if given is None:
        # What is pinned or said of names is said of those of the program as it is written; sketches
        # want rules that the paper does not have.
        named = any(value.get(name) for name in ("pin", "forbid", "where"))
        as_written = named or value.get("mode") == Mode.PAPER.value
        if _is_layer(subject) and (as_written or is_invented(facts)):
            layer = _layer_of(cast("JsonObject", subject))
            return (LAST_RESORT,) if layer is None else paper_variants(layer)
        return (None,) if as_written else ()
    names = reader.items(given, "/run/variants", reader.text)
    if not 1 <= len(names) <= MOST_VARIANTS or len(set(names)) < len(names):
        reader.fail("/run/variants", "too few, too many or twice the same", str(len(names)),
                    f"1 to {MOST_VARIANTS} different ones")  # fmt: skip
    return names


def _is_layer(subject: object) -> bool:
    if not isinstance(subject, dict):
        return False
    fields = cast("JsonObject", subject)
    document = fields.get("document")
    schema = cast("JsonObject", document).get("schema") if isinstance(document, dict) else ""
    stated = isinstance(schema, str) and schema.startswith("nestmap/layer/")
    return "name" in fields or stated or (isinstance(document, dict) and "channels" in document)


def _layer_of(subject: JsonObject) -> LayerSpec | None:
    """The layer, None for one that cannot be read: that is said where the run begins."""
    try:
        if "name" in subject:
            return layer_of_name(str(subject["name"]))
        return LayerSpec.from_json(cast("dict[str, Any]", subject["document"]))
    except (InputError, KeyError, TypeError):
        return None


def _protocol(value: object) -> Protocol:
    if value is None:
        return TUNING_PROTOCOL
    allowed = Protocol().to_json()
    if not isinstance(value, dict) or not set(value) <= set(allowed):
        raise InputError(
            Problem("/run/protocol", "not a protocol", kind_of(value), ", ".join(allowed))
        )
    numbers = cast("dict[str, Any]", value)
    for name, number in numbers.items():
        whole = isinstance(allowed[name], int)
        if isinstance(number, bool) or not isinstance(number, int if whole else int | float):
            wanted = "an integer" if whole else "a number"
            raise InputError(
                Problem(f"/run/protocol/{name}", f"not {wanted}", kind_of(number), wanted)
            )
    return Protocol(**{**TUNING_PROTOCOL.to_json(), **numbers})


def _facts(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise InputError(Problem("/device/facts", "not an object", kind_of(value), "an object"))
    return {str(name): str(fact) for name, fact in cast("JsonObject", value).items()}


def _profile(value: object, facts: Mapping[str, str]) -> object:
    """The stated profile, else the shipped one that the facts are of."""
    if value is not None:
        return value
    name = device_folder(facts)
    if name in profile_names():
        return name
    raise InputError(
        Problem(
            "/device/profile",
            "nothing says what the device allows",
            facts.get("device.name", "no device.name"),
            f"a profile ({', '.join(profile_names())}, or an object), given with the device",
        )
    )


def _known(history: JsonObject, state: JsonObject, variants: int) -> Known:
    outcomes: dict[Place, Outcome] = {}
    for number, entry in enumerate(_entries(history, "measured", 3)):
        try:
            outcomes[_place(entry, variants)] = outcome_from_json(cast("Any", entry[2]))
        except (BadMessage, KeyError, TypeError, ValueError, NestmapError) as error:
            raise InputError(
                Problem(f"/history/measured/{number}", "not an outcome", str(error)[:200])
            ) from error
    lost = frozenset(_place(entry, variants) for entry in _entries(history, "lost", 2))
    best = _best(state.get("best", history.get("best", [])))
    return Known(outcomes, lost, state, _earlier(history.get("earlier", [])), best)


def _best(value: object) -> tuple[JsonObject, ...]:
    """What was fast in earlier runs; the first proposal settled it, where one was made."""
    found = cast("list[Any]", value if isinstance(value, list) else [value])
    for number, one in enumerate(found):
        try:
            if not isinstance(one["variant"], str) or not isinstance(one["chosen"], dict):
                raise TypeError("neither a variant nor what was chosen")
            float(one["time_ms"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                Problem(f"/history/best/{number}", "not a candidate", str(error)[:200])
            ) from error
    return tuple(found)


def _earlier(value: object) -> tuple[Earlier, ...]:
    """Studies of the farm's own; InputError says which one is none."""
    studies = cast("list[Any]", value if isinstance(value, list) else [value])
    found: list[Earlier] = []
    for number, study in enumerate(studies):
        try:
            measured = tuple((dict(chosen), time_ms) for chosen, time_ms in study["measured"])
            program = dict(study["program"])
            found.append(Earlier(str(study["name"]), program, Mode(study["mode"]), measured))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                Problem(f"/history/earlier/{number}", "not a study", str(error)[:200])
            ) from error
    return tuple(found)


def _entries(history: JsonObject, name: str, length: int) -> list[list[object]]:
    value = history.get(name, [])
    entries = cast("list[object]", value) if isinstance(value, list) else [value]
    if any(not isinstance(entry, list) or len(cast("Any", entry)) != length for entry in entries):
        raise InputError(
            Problem(f"/history/{name}", "not a list of lists", kind_of(value), f"of {length} each")
        )
    return cast("list[list[object]]", entries)


def _place(entry: list[object], variants: int) -> Place:
    index, candidate = entry[0], entry[1]
    if not isinstance(index, int) or not 0 <= index < variants or not isinstance(candidate, str):
        raise InputError(Problem("/history", "no such variant or candidate", str(entry[:2])[:200]))
    return index, candidate
