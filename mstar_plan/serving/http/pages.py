"""Pages for people and machines that watch: health, metrics, and the list of routes, without a byte from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from mstar_plan.serving.http.house import House
from mstar_plan.serving.http.metrics import CONTENT_TYPE

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
code, td:first-child { font-family: ui-monospace, monospace } table { border-collapse: collapse; width: 100% }
td, th { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0; border-bottom: 1px solid #ddd }
summary { cursor: pointer; padding: .4rem 0 } .method { display: inline-block; width: 4rem; font-weight: 600 }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd } td, th { border-color: #444 }
  a { color: #8bf } }
"""


def page_routes(house: House) -> APIRouter:
    """The routes, for an app."""
    router = APIRouter(tags=["Watching"])

    @router.get("/healthz", response_class=PlainTextResponse, summary="The server is there")
    async def healthz() -> Response:
        return PlainTextResponse("OK\n")

    @router.get(
        "/readyz",
        response_class=PlainTextResponse,
        responses={503: {"description": "It is shutting down"}},
        summary="The server takes requests",
    )
    async def readyz() -> Response:
        if house.closing:
            return PlainTextResponse("shutting down\n", 503)
        return PlainTextResponse("ready\n")

    @router.get("/metrics", response_class=PlainTextResponse, summary="Counters for Prometheus")
    async def metrics() -> Response:
        return Response(house.metrics.text(), headers={"content-type": CONTENT_TYPE})

    return router


def add_docs(app: FastAPI) -> None:
    """Adds `/docs`, a page that lists the routes and their fields, made here from the OpenAPI description."""

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(docs_page(app.openapi()))

    @app.get("/", include_in_schema=False)
    async def root() -> Response:
        return RedirectResponse("/docs")


def docs_page(description: dict[str, Any]) -> str:
    """An OpenAPI description as a page of HTML."""
    schemas = description.get("components", {}).get("schemas", {})
    routes = [
        _route(method, path, operation, schemas)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    title, about = escape(description["info"]["title"]), escape(description["info"].get("description", ""))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f'<h1>{title}</h1><p>{about}</p><p>The same for programs: <a href="/openapi.json">openapi.json</a></p>'
        f"{''.join(routes)}</html>"
    )


def _route(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    rows = [
        (f"{each['name']} ({each['in']})", _type(each["schema"]), each.get("description", ""), each.get("required"))
        for each in operation.get("parameters", ())
    ]
    for content in operation.get("requestBody", {}).get("content", {}).values():
        schema = _resolved(content["schema"], schemas)
        required = schema.get("required", ())
        rows += [
            (name, _type(field), field.get("description", ""), name in required)
            for name, field in schema.get("properties", {}).items()
        ]
    lines = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(kind)}</td><td>{'required' if required else ''}</td>"
        f"<td>{escape(about)}</td></tr>"
        for name, kind, about, required in rows
    )
    table = f"<table>{lines}</table>" if rows else "<p>It takes nothing.</p>"
    return (
        f'<details><summary><span class="method">{method.upper()}</span> <code>{escape(path)}</code> '
        f"{escape(operation.get('summary', ''))}</summary>{table}</details>"
    )


def _resolved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    return found


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(_type(each) for each in schema[several] if each.get("type") != "null")
    if "enum" in schema or "const" in schema:
        return " or ".join(repr(each) for each in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))
