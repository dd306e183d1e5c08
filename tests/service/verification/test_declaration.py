"""One declaration per noun: bodies, answers, OpenAPI, tools, validation and the reference page all come from it."""

from __future__ import annotations

from typing import Any

import pytest
from docs.verification_pages import verification_page
from fastapi import FastAPI
from pydantic import ValidationError

from proctor.mcp_server.arguments import to_camel
from proctor.mcp_server.nouns import NOUNS as TOOLS
from proctor.mcp_server.nouns import make_tool
from proctor.model.evidence import Json
from proctor.rest.routes.verification import make_body, make_routes
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.verification.nouns import NOUNS
from proctor.service.verification.shared.declaration import Operation, Resource, ToolWords
from proctor.service.verification.shared.fields import NAME, Field, Shape, Table, number, one_of
from tests.rest.openapi_document import DOCUMENT

OPERATIONS = {f"{operation.name} ({noun.name})": (noun, operation) for noun in NOUNS for operation in noun.operations}
COLOUR = {"colour": Field(one_of("red", "green", exact=True), "what it is painted in", default="red", null=False)}
DEPTH = {"depth_cm": Field(number(most=60), "from front to back")}


def make_shelf(more: Table) -> Resource:
    """A separate resource with additional fields."""
    shelf = Resource(
        kind="shelf",
        name="Shelf",
        about="Something to put books on.",
        tag="shelves",
        tool=ToolWords("shelves", "Shelves", "Author shelves."),
        fields={"name": NAME, **more},
    )

    @Operation(shelf, "GET /shelves", gives=shelf.summary, pages=True, tool="list")
    async def list_shelves(hub: Hub, caller: Caller, **paging: Json) -> None:
        """List shelves, newest first."""

    @Operation(shelf, "POST /shelves", takes=shelf.new, gives=shelf.whole, creates=True, tool="create")
    async def create_shelf(hub: Hub, caller: Caller, given: Json) -> None:
        """Create a shelf."""

    @Operation(shelf, "PATCH /shelves/{shelf_id}", takes=shelf.changes, gives=shelf.whole, tool="update")
    async def update_shelf(hub: Hub, caller: Caller, id: str, given: Json) -> None:
        """Change a shelf."""

    assert list_shelves and create_shelf and update_shelf
    return shelf


def schemas_of(noun: Resource) -> dict[str, Any]:
    app = FastAPI()
    app.include_router(make_routes(noun))
    return app.openapi()["components"]["schemas"]


@pytest.mark.parametrize(
    ("more", "name", "good", "bad", "kind"),
    [
        pytest.param(COLOUR, "colour", "green", "blue", {"type": "string", "enum": ["red", "green"]}, id="a word"),
        pytest.param(DEPTH, "depth_cm", 30, 61, {"type": "number"}, id="a number that may be null"),
    ],
)
def test_a_field_that_is_declared_is_at_every_door(more: Table, name: str, good: Json, bad: Json, kind: Json) -> None:
    without, shelf = make_shelf({}), make_shelf(more)

    # The body of REST, in both cases of its name, and the validation of the service.
    body = make_body(shelf.new, "tests")
    for written in {name, to_camel(name)}:
        assert body.model_validate({"name": "a", written: good}).model_dump()[name] == good
    for refused in ({"name": "a", name: bad}, {name: good}):
        with pytest.raises(ValidationError):
            body.model_validate(refused)
        with pytest.raises(Refusal):
            shelf.read(refused)
    assert shelf.read({"name": "a"})[name] == more[name].default
    with pytest.raises(ValidationError):
        make_body(without.new, "tests").model_validate({"name": "a", name: good})
    with pytest.raises(Refusal, check=lambda error: list(error.fields) == [name]):
        without.read({"name": "a", name: good})

    # The OpenAPI document.
    before, after = schemas_of(without), schemas_of(shelf)
    for model in ("Shelf", "NewShelf", "ShelfChanges"):
        assert name not in before[model]["properties"]
        assert after[model]["properties"][name]["description"] == more[name].about
    assert name in after["Shelf"]["required"] and name not in after["NewShelf"]["required"]

    # The tool, in its own case.
    tool = make_tool(shelf)
    taken = tool.properties[to_camel(name)]
    assert taken["description"] == more[name].about and to_camel(name) not in make_tool(without).properties
    record = tool.result["anyOf"][0]
    kinds = {**kind, "type": [kind["type"], "null"]} if more[name].null else kind
    assert {key: taken[key] for key in kinds} == kinds == record["properties"][to_camel(name)]
    assert to_camel(name) in tool.actions["create"].allowed and to_camel(name) in tool.actions["update"].allowed

    # The reference page.
    assert f"| `{name}` |" in verification_page([shelf]) and f"`{name}`" not in verification_page([without])


def test_the_effect_of_an_operation_is_declared_once() -> None:
    shelf = make_shelf({})
    app = FastAPI()
    app.include_router(make_routes(shelf))
    assert app.openapi()["paths"]["/shelves"]["post"]["description"] == "Create a shelf."
    assert make_tool(shelf).actions["create"].does == "Create a shelf"
    assert "| Create a shelf. | `POST /shelves` | `shelves` `create` |" in verification_page([shelf])


def fields_in(schema: dict[str, Any]) -> set[str]:
    """The fields of a schema in OpenAPI, of the records in it where it is a page, of the one that is not null."""
    if "anyOf" in schema:
        schema = next(one for one in schema["anyOf"] if "$ref" in one)
    found = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["properties"]
    return fields_in(found["data"]["items"]) if "_meta" in found else set(found)


def with_other_names(shape: Shape) -> set[str]:
    return {*shape.fields, *(field.also for field in shape.fields.values() if field.also is not None)}


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_at_its_entry_points_as_declared(name: str) -> None:
    noun, operation = OPERATIONS[name]
    if operation.rest:
        written = DOCUMENT["paths"][operation.path][operation.method.lower()]
        assert written["description"] == operation.about and written["tags"] == [noun.tag]
        if operation.takes is not None and not operation.takes_whole:
            body = written["requestBody"]["content"]["application/json"]["schema"]
            assert fields_in(body) == with_other_names(operation.takes)
        if operation.gives is not None:
            answer = written["responses"][str(operation.status)]["content"]["application/json"]["schema"]
            assert fields_in(answer) == set(operation.gives.fields)
    if operation.actions:
        assert noun.tool is not None
        (tool,) = (tool for tool in TOOLS if tool.name == noun.tool.name)
        offered = (
            {} if operation.takes is None else {to_camel(one): field for one, field in operation.takes.fields.items() if field.in_tool}
        )
        for action in operation.actions:
            assert set(offered) <= set(tool.actions[action].allowed) <= set(tool.properties)


def test_every_field_that_callers_write_is_explained() -> None:
    shapes = [operation.takes for noun in NOUNS for operation in noun.operations if operation.takes is not None]
    assert shapes and all(field.about for shape in shapes for field in shape.fields.values())


def test_every_id_that_a_noun_holds_names_a_kind_of_record() -> None:
    kinds = {noun.kind for noun in NOUNS}
    referred = {field.kind.refers for noun in NOUNS for field in noun.fields.values() if field.kind.refers is not None}
    assert referred and referred <= kinds
