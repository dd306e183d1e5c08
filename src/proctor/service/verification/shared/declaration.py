"""Declares a resource of the verification API once, for REST, MCP, pages and reference: its fields and operations.

    SIMULATOR = Resource(kind="simulator", prefix="sim", name="Simulator", about="A simulated system.", tag="environments", fields={...})

    @Operation(SIMULATOR, "POST /simulators", takes=SIMULATOR.new, gives=SIMULATOR.whole, creates=True, tool="create")
    async def create_simulator(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
        '''Create a simulator.'''

The first line of the docstring is the description in OpenAPI, the MCP tool and the reference. The function gets the hub, the caller, the
ids in its path in order, and the body; lists also get `limit`, `cursor` and the parent they are limited to. An operation without `gives`
deletes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

from proctor.model.evidence import Json
from proctor.service.resource import guard_operation
from proctor.service.verification.shared.fields import Shape, Table, read_fields, read_only
from proctor.store.sql.pages import Row

Call = TypeVar("Call", bound=Callable[..., Awaitable[Any]])
_ID_IN_PATH = re.compile(r"\{(\w+)\}")

STAMPS: Table = {
    "id": read_only("string", "the id"),
    "organization_id": read_only("string", "the owner", in_tool=False),
    "created_at": read_only("string", "when it was created"),
    "updated_at": read_only("string", "when it was last changed", in_tool=False),
}


@dataclass(frozen=True)
class ToolWords:
    """Name and description of the MCP tool of a resource."""

    name: str
    title: str
    about: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Resource:
    """A resource."""

    kind: str
    """The kind of its records in the store."""
    prefix: str = ""
    """The prefix of their ids."""
    name: str
    """The name of its schema in OpenAPI."""
    about: str
    fields: Table
    parent: str | None = None
    """The field with the id of the parent."""
    what: str = ""
    """The display name; by default its kind."""
    stamped: bool = True
    """Whether responses have owner and times."""
    tag: str = ""
    """Its section in OpenAPI."""
    tool: ToolWords | None = None
    operations: list[Operation] = field(default_factory=lambda: list[Operation]())

    # --- the shapes of requests and responses ---

    @functools.cached_property
    def summary(self) -> Shape:
        """A record as in lists."""
        several = any(declared.full for declared in self.fields.values())
        return Shape(f"{self.name}Summary" if several else self.name, self.about, self._shown_fields(full=False), self.name)

    @functools.cached_property
    def whole(self) -> Shape:
        """A record with all fields."""
        more = [name.replace("_", " ") for name, declared in self.fields.items() if declared.full]
        if not more:
            return self.summary
        return Shape(self.name, f"With its {' and '.join(more)}.", self._shown_fields(full=True), self.name)

    @functools.cached_property
    def new(self) -> Shape:
        """The body that creates a record."""
        return Shape(f"New{self.name}", f"A new {self.called}.", self.writable())

    @functools.cached_property
    def changes(self) -> Shape:
        """The body that changes a record."""
        return Shape(
            f"{self.name}Changes",
            "Changed fields; null clears an optional field.",
            self.writable(partial=True),
        )

    def new_within(self, parent: str) -> Shape:
        """The body that creates a record below a parent in the path."""
        return Shape(self.new.name, self.new.about, {name: declared for name, declared in self.new.fields.items() if name != parent})

    def _shown_fields(self, *, full: bool) -> Table:
        fields = {name: declared for name, declared in self.fields.items() if declared.shown and (full or not declared.full)}
        return {**(STAMPS if self.stamped else {"id": STAMPS["id"]}), **fields}

    @property
    def called(self) -> str:
        """The display name."""
        return self.what or self.kind.replace("_", " ")

    def writable(self, *, partial: bool = False) -> Table:
        """Return the fields that callers write; with `partial` those they may change."""
        return {name: declared for name, declared in self.fields.items() if declared.written and (declared.changeable or not partial)}

    def read(self, request_body: Mapping[str, Json], *, partial: bool = False) -> dict[str, Json]:
        """Return the checked fields of a request; with `partial` only those that are present."""
        return read_fields(self.writable(partial=partial), request_body, self.called, partial=partial)

    def show(self, row: Row) -> dict[str, Json]:
        """Return a record as in lists, without nested records."""
        shown: dict[str, Json] = {"id": row["id"]}
        for name, declared in self._own_fields().items():
            if declared.compute is not None:
                shown[name] = declared.compute(row)
            else:
                shown[name] = row["parent_id"] if name == self.parent else row["body"].get(name, declared.default)
        return {**shown, **{name: row[name] for name in STAMPS}}

    def fill(self, **fields: Json) -> dict[str, Json]:
        """Return the body of a new record: defaults and `fields`."""
        defaults = {name: declared.default for name, declared in self._own_fields().items() if declared.compute is None}
        return {name: value for name, value in {**defaults, **fields}.items() if name != self.parent}

    def _own_fields(self) -> Table:
        return {name: declared for name, declared in self.fields.items() if declared.shown and not declared.full and not declared.joined}


@dataclass(eq=False)
class Operation:
    """Declares an operation: its REST address, bodies, and name in the tool."""

    noun: Resource
    route: str
    """Method and path."""
    _: KW_ONLY
    takes: Shape | None = None
    takes_optional: bool = False
    takes_whole: bool = False
    """Whether the body is the value of its only field."""
    gives: Shape | None = None
    """The response; without it the operation deletes."""
    pages: bool = False
    large: bool = False
    """Whether the response may be too large to validate again."""
    within: str | None = None
    """For a list: the id it can be filtered by."""
    creates: bool = False
    open: bool = False
    """Whether it needs no key; it is called without a caller then."""
    doing: str = "using the verification API"
    """What requires an organization key; empty: the function checks access itself."""
    rest: bool = True
    """Whether REST has it."""
    tool: str | tuple[str, ...] = ()
    """Its names in the MCP tool, if any."""
    call: Callable[..., Awaitable[Any]] = field(init=False)
    name: str = field(init=False)
    about: str = field(init=False)

    def __post_init__(self) -> None:
        """Derive the rest from the route."""
        self.method, _, self.path = self.route.partition(" ")
        self.ids = tuple(_ID_IN_PATH.findall(self.path))
        self.actions = (self.tool,) if isinstance(self.tool, str) else self.tool
        self.status = 204 if self.gives is None else 201 if self.creates else 200

    def __call__(self, call: Call) -> Call:
        """Add this operation, implemented by a function, to its resource; return the function with the check of access."""
        self.call = call if self.open else guard_operation(call, self.doing)
        self.name, self.about = call.__name__, (call.__doc__ or "").partition("\n")[0]
        self.noun.operations.append(self)
        return self.call
