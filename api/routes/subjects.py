"""Layers, programs and kernels by their content: posted once, fetched by hash."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import Body, Header, Path
from starlette.responses import JSONResponse, Response

from api.auth import Access, Principal
from api.caching import etag_of, not_modified
from api.paging import (
    DEFAULT_PAGE,
    LayerCursor,
    Limit,
    ProgramCursor,
    decode_cursor,
    encode_cursor,
)
from api.problems import ProblemError, not_found
from api.routing import GuardedRouter
from api.schemas.catalogue import LayerValue
from api.schemas.solving import About, DocumentSubject, KernelQuery, TextSubject
from api.schemas.subjects import (
    KernelDocument,
    LayerDocument,
    LayerPage,
    ProgramDocument,
    ProgramPage,
    ProgramPost,
    ProgramSummary,
)
from api.services import PrincipalOf, Services, ServicesOf
from db.canonical import canonical_json, content_hash
from db.farm.catalogue import DocumentName
from db.farm.owners import Owner
from db.farm.run_records import ArtifactContent
from db.records import StoredProgram
from mapper.errors import InputError, Problem
from mapper.layer_spec import LAYER_SCHEMA, LayerSpec

routes = GuardedRouter("subjects")

D = TypeVar("D", StoredProgram, DocumentName)
HashPath = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
IfNoneMatch = Annotated[str | None, Header(max_length=1_000)]
#: Schemas of what is not a layer.
PROGRAM_SCHEMAS = ("nestmap/program/1", "nestmap/nest/1", "nestmap/space/1")
KERNEL_TYPE = "application/vnd.nestmap.kernel+json"
SOURCE_TYPE = "text/x-opencl"
_KEPT = {200: {"description": "It was there before"}}


@routes.post(
    "/v1/layers", Access.USER, summary="Store a layer", status=201, problems=(409,),
    responses={200: {"model": LayerDocument, **_KEPT[200]}}, response_model=LayerDocument,
)  # fmt: skip
async def create_layer(
    body: Annotated[LayerValue, Body()], services: ServicesOf, principal: PrincipalOf
) -> Response:
    """Equal layers are one; its `id` is then a subject: `{"id": …}`."""
    try:
        layer = LayerSpec.from_json({"name": "layer", **body})
    except InputError as error:
        raise ProblemError("invalid-input", error.problems[0].message, error.problems) from None
    text = canonical_json(layer.to_json())
    status, hash_ = await _stored(services, principal, LAYER_SCHEMA, text)
    return _created(
        LayerDocument.of_stored(hash_, layer).model_dump(), status, f"/v1/layers/{hash_}"
    )


@routes.get("/v1/layers", Access.USER, summary="Stored layers", response_model=LayerPage)
async def list_layers(
    services: ServicesOf, limit: Limit = DEFAULT_PAGE, cursor: LayerCursor = None
) -> LayerPage:
    """By id. Named ones are in /v1/layer-sets."""
    documents = partial(services.farm.catalogue.documents, (LAYER_SCHEMA,))
    found, following = await _page(services, "layers", documents, limit, cursor)
    return LayerPage(items=[_layer(item) for item in found], next=following)


@routes.get(
    "/v1/layers/{layer_id}", Access.USER, summary="A stored layer", problems=(404,),
    response_model=LayerDocument,
)  # fmt: skip
async def get_layer(layer_id: HashPath, services: ServicesOf) -> LayerDocument:
    """The layer of an id."""
    return _layer(await _document(services, "layer", layer_id, (LAYER_SCHEMA,)))


@routes.post(
    "/v1/programs", Access.USER, summary="Store a program", status=201, holds_program=True,
    problems=(409,),
    responses={200: {"model": ProgramDocument, **_KEPT[200]}}, response_model=ProgramDocument,
)  # fmt: skip
async def create_program(
    body: ProgramPost, services: ServicesOf, principal: PrincipalOf
) -> Response:
    """A program is type-checked first, a nest tree and a tuning space are read. Equal ones are
    one, and the `id` is then a subject: `{"id": …}`."""
    if (body.document is None) == (body.text is None):
        problem = Problem("", "one of document and text is wanted", "both" if body.text else "none")
        raise ProblemError("invalid-input", problem.message, [problem])
    if body.text is not None:
        subject = TextSubject(text=body.text)
    else:
        subject = DocumentSubject(document=body.document or {})
    request = await services.solving.request_of("describe", About(subject=subject))
    answer = await services.solving.ask(request, services.solving.limits(None))
    if answer.end["layer"] is not None:
        problem = Problem("/document", "is a layer", "", "post it to /v1/layers")
        raise ProblemError("invalid-input", problem.message, [problem])
    schema, document = answer.end["schema"], answer.end["document"]
    status, hash_ = await _stored(services, principal, schema, canonical_json(document))
    value = {"id": hash_, "schema": schema, "document": document}
    return _created(value, status, f"/v1/programs/{hash_}")


@routes.get("/v1/programs", Access.USER, summary="Stored programs", response_model=ProgramPage)
async def list_programs(
    services: ServicesOf, limit: Limit = DEFAULT_PAGE, cursor: ProgramCursor = None
) -> ProgramPage:
    """By id; those that runs have made of layers are among them."""
    hashes = partial(services.farm.catalogue.hashes, PROGRAM_SCHEMAS)
    found, following = await _page(services, "programs", hashes, limit, cursor)
    items = [ProgramSummary(id=item.hash, schema_=item.schema) for item in found]
    return ProgramPage(items=items, next=following)


@routes.get(
    "/v1/programs/{program_id}", Access.USER, summary="A stored program", problems=(404,),
    response_model=ProgramDocument,
)  # fmt: skip
async def get_program(program_id: HashPath, services: ServicesOf) -> ProgramDocument:
    """Its canonical document."""
    found = await _document(services, "program", program_id, PROGRAM_SCHEMAS)
    return ProgramDocument(
        id=found.hash, schema_=found.schema, document=json.loads(found.json_text)
    )


@routes.post(
    "/v1/kernels", Access.USER, summary="Print the kernels of a mapping", status=201,
    holds_program=True, problems=(409,), response_model=KernelDocument,
    responses={200: {"model": KernelDocument, **_KEPT[200]}},
)  # fmt: skip
async def create_kernel(
    query: KernelQuery, services: ServicesOf, principal: PrincipalOf
) -> Response:
    """Of the mapping given, else of the one that is preferred, else of one drawn by `seed`.

    422 `invalid-mapping` with the violations where it is not valid.
    """
    request = await services.solving.request_of("kernel", query)
    answer = await services.solving.ask(request, services.solving.limits(query.time_limit_s))
    text = canonical_json(answer.end)
    hash_ = content_hash(text)
    artifacts = services.farm.artifacts
    known = await services.database(artifacts.find, hash_)
    owner = _owner(services, principal)
    # The document last: where there is no room for both, there is no kernel.
    for content, media_type in ((answer.end["source"], SOURCE_TYPE), (text, KERNEL_TYPE)):
        put = ArtifactContent(content.encode(), media_type)
        await services.database(artifacts.put, put, owner)
    status = 201 if known is None else 200
    headers = {"ETag": etag_of(hash_)}
    return _created({"hash": hash_, **answer.end}, status, f"/v1/kernels/{hash_}", headers)


@routes.get(
    "/v1/kernels/{kernel_hash}", Access.USER, summary="Kernels by their hash", problems=(404,),
    responses={304: {"description": "As `If-None-Match` says"}}, response_model=KernelDocument,
)  # fmt: skip
async def get_kernel(
    kernel_hash: HashPath, services: ServicesOf, if_none_match: IfNoneMatch = None
) -> Response:
    """Source, host plan, memory. What nobody asked for again is dropped after some days."""
    document = await _kernel(services, kernel_hash)
    unchanged = not_modified(kernel_hash, if_none_match)
    if unchanged is not None:
        return unchanged
    return JSONResponse({"hash": kernel_hash, **document}, headers={"ETag": etag_of(kernel_hash)})


@routes.get(
    "/v1/kernels/{kernel_hash}/source", Access.USER, summary="OpenCL source", problems=(404,),
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        304: {"description": "As `If-None-Match` says"},
    },
    response_class=Response,
)  # fmt: skip
async def get_kernel_source(
    kernel_hash: HashPath, services: ServicesOf, if_none_match: IfNoneMatch = None
) -> Response:
    """The source alone."""
    source: str = (await _kernel(services, kernel_hash))["source"]
    hash_ = content_hash(source)
    unchanged = not_modified(hash_, if_none_match)
    if unchanged is not None:
        return unchanged
    return Response(source, media_type="text/plain", headers={"ETag": etag_of(hash_)})


async def _kernel(services: Services, hash_: str) -> dict[str, Any]:
    artifacts = services.farm.artifacts
    known = await services.database(artifacts.find, hash_)
    if known is None or known.media_type != KERNEL_TYPE:
        raise not_found("kernel", hash_)
    return json.loads(await services.database(artifacts.read, hash_))


async def _stored(
    services: Services, principal: Principal, schema: str, text: str
) -> tuple[int, str]:
    """The status, 200 for what was there before, and the hash."""
    documents = services.farm.documents
    hash_, is_new = await services.database(
        documents.put, schema, text, _owner(services, principal)
    )
    return 201 if is_new else 200, hash_


def _owner(services: Services, principal: Principal) -> Owner:
    return Owner(principal.id, services.settings.most_stored_bytes_each)


async def _document(
    services: Services, what: str, hash_: str, schemas: tuple[str, ...]
) -> StoredProgram:
    try:
        found = await services.database(services.farm.store.program, hash_)
    except InputError:
        raise not_found(what, hash_) from None
    if found.schema not in schemas:
        raise not_found(what, hash_)
    return found


async def _page(
    services: Services,
    kind: str,
    read: Callable[..., tuple[D, ...]],
    limit: int,
    cursor: str | None,
) -> tuple[tuple[D, ...], str | None]:
    key = decode_cursor(kind, cursor, str)
    after = "" if key is None else str(key[0])
    found = await services.database(read, after=after, limit=limit + 1)
    more = len(found) > limit
    items = found[:limit]
    return items, encode_cursor(kind, (items[-1].hash,)) if more else None


def _layer(found: StoredProgram) -> LayerDocument:
    return LayerDocument.of_stored(found.hash, LayerSpec.from_json(json.loads(found.json_text)))


def _created(
    value: dict[str, Any], status: int, location: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    return JSONResponse(value, status, {"Location": location, **(headers or {})})
