"""A layer or program without any run: its rules, counts, mappings, and a checker.

Everything that was chosen is in the address, so that it can be sent to somebody, and works as a
form where there is no JavaScript.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.responses import Response

from api.dashboard.forms import form_fields
from api.dashboard.page_routes import PageRouter, see_other
from api.dashboard.rendering import render, render_apart
from api.dashboard.subjects import (
    CHECK_S,
    DESCRIBE_S,
    MAPPINGS_S,
    MOST_WATERFALL_S,
    ask,
    mappings_page,
)
from api.dashboard.views import layers
from api.dashboard.views.layers import LayerAddress, StatedChoices
from api.dashboard.views.nest_trees import trees_of_layer
from api.dashboard.views.rules import by_rule
from api.dashboard.views.schedules import legend
from api.problems import invalid_input, not_found
from api.routes.subjects import PROGRAM_SCHEMAS, HashPath, create_layer, create_program
from api.schemas.catalogue import LayerFacts
from api.schemas.solving import About, MappingsQuery, Restriction
from api.schemas.subjects import ProgramPost
from api.services import PrincipalOf, Services, ServicesOf
from mapper.constraint_rules.suits.catalogue import SUITS
from mapper.errors import InputError
from mapper.layer_sets import is_layer_name, layer_of_name, layer_set_names, load_layer_set
from mapper.layer_spec import LAYER_SCHEMA, Activation, DType, LayerSpec, Layout
from mapper.profiles import profile_names
from mapper.schedule import ScheduleCode
from mapper.tuning_space.language import MAX_CHARACTERS
from mapper.tuning_space.where import MAX_WHERE
from mapper.variants import DEFAULT_VARIANT, VARIANTS

routes = PageRouter()
_PAGE = 20
#: Seconds within which a script asks for the number of mappings under the list's choices.
COUNT_S = 20
_MOST_STORED = 50
#: Any other text is left to the layer's reader, which refuses it.
_NUMBER = re.compile("-?[0-9]{1,11}")
SetPath = Annotated[str, Path(max_length=64)]
#: Fields of the form of an own layer that are numbers.
NUMBERS = (
    ("channels", "Channels", 64), ("height", "Height", 56), ("width", "Width", 56),
    ("filters", "Filters", 64), ("kernel_height", "Kernel height", 3),
    ("kernel_width", "Kernel width", 3), ("stride_y", "Stride, rows", 1),
    ("stride_x", "Stride, columns", 1), ("dilation_y", "Dilation, rows", 1),
    ("dilation_x", "Dilation, columns", 1), ("pad_top", "Padding, top", 1),
    ("pad_bottom", "Padding, bottom", 1), ("pad_left", "Padding, left", 1),
    ("pad_right", "Padding, right", 1), ("groups", "Groups", 1), ("batch", "Images", 1),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ShownSubject:
    """What the page is about: of a layer ``layer``, else a program. ``name`` is a named layer's."""

    path: str
    subject: dict[str, Any]
    title: str
    layer: LayerSpec | None
    name: str = ""


class SubjectQuery(BaseModel):
    """The query of a subject's page; not all of it matters to every view.

    ``set`` are choices of a check, as texts like ``28=W0``; ``where`` has a constraint a line.
    ``add`` with ``name`` and ``value`` is what a form sends to pin or forbid one more.
    """

    model_config = ConfigDict(extra="ignore")

    variant: str = Field(default="", max_length=64)
    device: str = Field(default="pocl", max_length=64)
    mode: Literal["strict", "paper"] = "strict"
    view: Literal["rules", "counts", "mappings", "check"] = "rules"
    pin: list[Restriction] = Field(default=[], max_length=200)
    forbid: list[Restriction] = Field(default=[], max_length=200)
    chosen: list[Annotated[str, StringConstraints(max_length=500)]] = Field(
        default=[], max_length=1_000, alias="set"
    )
    cursor: str = Field(default="", max_length=2_000)
    seconds: int | None = Field(default=None, ge=1, le=MOST_WATERFALL_S)
    suits: str = Field(default="", max_length=500)
    no_sequential_fusion: bool = False
    replicate_private: bool = False
    free_grid: bool = False
    where: list[Annotated[str, StringConstraints(max_length=MAX_CHARACTERS * 4)]] = Field(
        default=[], max_length=MAX_WHERE
    )
    add: Literal["", "pin", "forbid"] = ""
    name: str = Field(default="", max_length=200)
    value: str = Field(default="", max_length=200)

    def address(self, path: str) -> LayerAddress:
        """The page's address without what a form adds."""
        chosen = tuple(text for text in self.chosen if text.rpartition("=")[2])
        return LayerAddress(
            path, self.variant, self.device, self.mode, self.view,
            tuple(self.pin), tuple(self.forbid), chosen, self._stated(),
        )  # fmt: skip

    def _stated(self) -> StatedChoices:
        # A line of the form's field is a constraint.
        lines = (line.strip() for text in self.where for line in text.splitlines())
        return StatedChoices(
            self.suits.strip(), self.no_sequential_fusion, self.replicate_private, self.free_grid,
            tuple(line for line in lines if line),
        )  # fmt: skip


Asking = Annotated[SubjectQuery, Query()]


@routes.get("/layers")
async def show_layers(request: Request, services: ServicesOf) -> Response:
    """Named layers, those that were stored, and forms for one's own."""
    catalogue = services.farm.catalogue
    stored = await services.database(catalogue.documents, (LAYER_SCHEMA,), limit=_MOST_STORED)
    programs = await services.database(catalogue.hashes, PROGRAM_SCHEMAS, limit=_MOST_STORED)
    return render(
        request,
        "layers.html",
        sets=[load_layer_set(name) for name in layer_set_names()],
        stored=[(found.hash, _layer_of(found.json_text)) for found in stored],
        programs=programs,
        numbers=NUMBERS,
        activations=[one.value for one in Activation],
        dtypes=[one.value for one in DType],
        layouts=[one.value for one in Layout],
    )


@routes.post("/layers", is_costly=True)
async def enter_layer(request: Request, services: ServicesOf, principal: PrincipalOf) -> Response:
    """Store what a form says, as ``POST /v1/layers`` and ``/v1/programs`` do, and show it."""
    form = await form_fields(request)
    name = form.get("layer_name", "").strip()
    if name:
        if not is_layer_name(name):
            raise not_found("layer", name)
        return see_other(f"/layers/{name}")
    if form.get("program", "").strip():
        made = await create_program(_program(form["program"]), services, principal)
    else:
        made = await create_layer(_layer_value(form), services, principal)
    stored = made.headers["Location"].rpartition("/")[2]
    return see_other(f"/layers/{stored}")


def _program(text: str) -> ProgramPost:
    try:
        return ProgramPost(text=text)
    except ValidationError as error:
        raise invalid_input(error.errors()) from None


def _layer_value(form: dict[str, str]) -> dict[str, Any]:
    """The fields of a form as a layer's JSON; its reader says what is wrong with them."""
    value: dict[str, Any] = {}
    for field, _, _ in NUMBERS:
        text = form.get(field, "").strip()
        if text:
            value[field] = int(text) if _NUMBER.fullmatch(text) else text
    for field in ("activation", "dtype", "layout"):
        if form.get(field):
            value[field] = form[field]
    if form.get("bias"):
        value["bias"] = True
    if form.get("name", "").strip():
        value["name"] = form["name"].strip()[:100]
    return value


@routes.get("/layers/{set_name}/{number}", is_costly=True)
async def show_named_layer(
    request: Request, set_name: SetPath, number: SetPath, query: Asking, services: ServicesOf
) -> Response:
    """A layer by its name."""
    name = f"{set_name}/{number}"
    if not is_layer_name(name):
        raise not_found("layer", name)
    shown = ShownSubject(f"/layers/{name}", {"name": name}, name, layer_of_name(name), name)
    return await _page(request, services, shown, query)


@routes.get("/layers/{subject_id}", is_costly=True)
async def show_stored_subject(
    request: Request, subject_id: HashPath, query: Asking, services: ServicesOf
) -> Response:
    """A stored layer, program, nest tree or tuning space."""
    try:
        found = await services.database(services.farm.store.program, subject_id)
    except InputError:
        raise not_found("layer", subject_id) from None
    layer = _layer_of(found.json_text) if found.schema == LAYER_SCHEMA else None
    title = layer.name if layer else f"program {subject_id[:10]}"
    shown = ShownSubject(f"/layers/{subject_id}", {"id": subject_id}, title, layer)
    return await _page(request, services, shown, query)


def _layer_of(text: str) -> LayerSpec:
    return LayerSpec.from_json(json.loads(text))


async def _page(
    request: Request, services: Services, shown: ShownSubject, query: SubjectQuery
) -> Response:
    address = query.address(shown.path)
    if query.add and query.name.strip() and query.value.strip():
        change = address.pinned if query.add == "pin" else address.forbidden
        changed = change(query.name.strip(), query.value.strip())
        return see_other(changed.url())
    try:
        about = About.model_validate(_about(shown, address))
    except ValidationError as error:
        raise invalid_input(error.errors()) from None
    described, reason = await ask(services, "describe", about, DESCRIBE_S), None
    if shown.layer is not None and not address.variant:
        # Who reads the layer chooses; links of the page name what was chosen.
        found = {} if described.answer is None else described.answer.end
        address = replace(address, variant=found.get("variant", DEFAULT_VARIANT))
        reason = found.get("variant_reason")
    context: dict[str, Any] = {}
    if described.answer is not None and query.view == "check" and not address.chosen:
        start = await _start(services, address, about)
        if start is not None:
            return see_other(start)
    if described.answer is not None:
        variables, description = described.answer.items, described.answer.end
        context = {
            "description": description,
            "variables": variables,
            **await _view(services, shown, address, about, query, variables, description),
        }

    def make() -> dict[str, Any]:
        return {
            "shown": shown,
            "address": address,
            "views": layers.VIEWS,
            "problem": described.problem,
            "variants": VARIANTS,
            "variant_reason": reason,
            "profiles": profile_names(),
            "legend": legend(),
            "suits": SUITS,
            "layer_facts": None if shown.layer is None else LayerFacts.of(shown.layer),
            **context,
        }

    return await render_apart(services, request, "layer.html", make)


def _about(shown: ShownSubject, address: LayerAddress) -> dict[str, Any]:
    fields = {"subject": shown.subject, "device": address.device, "mode": address.mode}
    fields |= address.stated.about()
    return fields | ({"variant": address.variant} if address.variant else {})


async def _view(
    services: Services,
    shown: ShownSubject,
    address: LayerAddress,
    about: About,
    query: SubjectQuery,
    variables: list[dict[str, Any]],
    description: dict[str, Any],
) -> dict[str, Any]:
    """What the chosen view shows beside the description."""
    kernels = description["kernels"]
    match query.view:
        case "rules":
            asked = await ask(services, "constraints", about, DESCRIBE_S)
            items = [] if asked.answer is None else asked.answer.items
            return {"trees": trees_of_layer(kernels), "rules": by_rule(items),
                    "rules_problem": asked.problem}  # fmt: skip
        case "counts":
            return await _counts(services, address, about, query.seconds)
        case "mappings":
            return await _mappings(services, shown, address, query)
        case "check":
            return await _check(services, address, about, variables, kernels)


async def _counts(
    services: Services, address: LayerAddress, about: About, seconds: int | None
) -> dict[str, Any]:
    found: dict[str, Any] = {"seconds": seconds, "rows": (), "counted": None, "problem_here": None}
    if seconds is None:
        return found
    asked = await ask(services, "waterfall", about, float(seconds))
    if asked.answer is not None:
        found["rows"] = layers.waterfall_rows(asked.answer.items)
        found["counted"] = asked.answer.end
    return found | {"problem_here": asked.problem}


async def _mappings(
    services: Services, shown: ShownSubject, address: LayerAddress, query: SubjectQuery
) -> dict[str, Any]:
    try:
        question = MappingsQuery.model_validate(
            _about(shown, address)
            | {"pin": list(address.pins), "forbid": list(address.forbids), "limit": _PAGE,
               "cursor": query.cursor or None, "time_limit_s": MAPPINGS_S}
        )  # fmt: skip
    except ValidationError as error:
        raise invalid_input(error.errors()) from None
    page = await mappings_page(services, question, query.seconds)
    more = {} if page.problem is None else page.problem.more
    conflict = more.get("conflict") or {}
    return {
        "page": page,
        "mappings": layers.mapping_rows(page.items, address),
        "next_url": address.url(cursor=page.next) if page.next else None,
        "is_first": not query.cursor,
        "conflict": layers.broken_rules(conflict.get("parts", ())),
        "seconds": query.seconds,
        "count_url": address.url(cursor=query.cursor, seconds=COUNT_S),
        "codes": [code.short_name for code in ScheduleCode],
    }


async def _check(
    services: Services,
    address: LayerAddress,
    about: About,
    variables: list[dict[str, Any]],
    kernels: list[dict[str, Any]],
) -> dict[str, Any]:
    document, missing = layers.checked_document(variables, address.chosen)
    chosen = document.get("mapping", {})
    context: dict[str, Any] = {
        "choices": {c.name: c for c in layers.choices(variables, address.chosen)},
        "missing": missing,
        "verdict": None,
        "check_problem": None,
        "broken": (),
        "unmet": (),
        "marked": {},
        "nearest": None,
        "impossible": (),
    }
    if address.chosen and not missing:
        asked = await ask(services, "check", about, CHECK_S, mapping=document, nearest=True)
        if asked.answer is None:
            context["check_problem"] = asked.problem
        else:
            end = asked.answer.end
            broken = layers.broken_rules(end["violations"])
            context |= {
                "verdict": end,
                "broken": broken,
                "unmet": layers.broken_rules(end["preferences"]),
                "marked": layers.marked_maps(broken, chosen),
            }
            if end.get("nearest"):
                context["nearest"] = layers.nearest_view(end["nearest"], address)
            if end.get("conflict"):
                context["impossible"] = layers.broken_rules(end["conflict"]["parts"])
    return {**context, "trees": trees_of_layer(kernels, chosen)}


async def _start(services: Services, address: LayerAddress, about: About) -> str | None:
    """The check of the first valid mapping, from which a reader goes on; None without one."""
    first = await ask(services, "mappings", about, MAPPINGS_S, limit=1)
    if first.answer is None or not first.answer.items:
        return None
    return address.checking(layers.chosen_texts(first.answer.items[0])).url()
