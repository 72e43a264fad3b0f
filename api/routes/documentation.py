"""/docs, /openapi.json and /problems: the API explained by itself, from its own files."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from api.auth import Access
from api.problems import PROBLEM_TYPES, not_found
from api.routing import GuardedRouter
from api.schemas.service import ProblemTypeDocument
from api.schemas.types import NO_NUL

#: React of Swagger UI sets style attributes, and its icons are data: images.
DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'"
)
_ASSETS = {
    "swagger-ui-bundle.js": ("swagger-ui/swagger-ui-bundle.js", "text/javascript"),
    "swagger-ui.css": ("swagger-ui/swagger-ui.css", "text/css"),
    "index.css": ("swagger-ui/index.css", "text/css"),
    "favicon-32x32.png": ("swagger-ui/favicon-32x32.png", "image/png"),
    "start.js": ("swagger-start.js", "text/javascript"),
}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>nestmap HTTP API</title>
<link rel="stylesheet" href="/docs/swagger-ui.css">
<link rel="stylesheet" href="/docs/index.css">
<link rel="icon" type="image/png" href="/docs/favicon-32x32.png">
</head>
<body>
<div id="swagger-ui"></div>
<noscript>This page needs JavaScript; <a href="/openapi.json">the document</a> does not.</noscript>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""


def documentation_router(with_pages: bool) -> APIRouter:
    """The routes; without pages only the explanations of problems."""
    routes = GuardedRouter("documentation")

    @routes.get(
        "/problems", Access.PUBLIC, summary="The types of problems",
        response_model=list[ProblemTypeDocument],
    )  # fmt: skip
    async def list_problem_types() -> list[ProblemTypeDocument]:
        """Every `type` that a problem of this API may have."""
        return [ProblemTypeDocument.of(found) for found in PROBLEM_TYPES.values()]

    @routes.get(
        "/problems/{slug}", Access.PUBLIC, summary="What a type of problem means",
        response_model=ProblemTypeDocument, problems=(404,),
    )  # fmt: skip
    async def get_problem_type(
        slug: Annotated[str, Path(max_length=200, pattern=NO_NUL)],
    ) -> ProblemTypeDocument:
        """The `type` of a problem is this path."""
        found = PROBLEM_TYPES.get(slug)
        if found is None:
            raise not_found("type of problem", slug)
        return ProblemTypeDocument.of(found)

    if not with_pages:
        return routes.router
    headers = {"Content-Security-Policy": DOCS_POLICY}

    @routes.get("/docs", Access.PUBLIC, summary="This page", include_in_schema=False)
    async def show_documentation() -> Response:
        return HTMLResponse(_PAGE, headers=headers)

    @routes.get("/docs/{name}", Access.PUBLIC, summary="Its files", include_in_schema=False)
    async def get_documentation_asset(name: str) -> Response:
        if name not in _ASSETS:
            raise not_found("file", name)
        path, media_type = _ASSETS[name]
        content = files("api.assets").joinpath(path).read_bytes()
        caching = {"Cache-Control": "public, max-age=3600"}
        return Response(content, media_type=media_type, headers=headers | caching)

    @routes.get(
        "/openapi.json", Access.PUBLIC, summary="The OpenAPI document", include_in_schema=False
    )
    async def get_openapi_document(request: Request) -> Response:
        return JSONResponse(request.app.openapi())

    return routes.router
