"""What a noun of the verification API is: its fields, and what can be done with it. Declared once, for every door.

    SIMULATOR = Resource(kind="simulator", prefix="sim", name="Simulator", about="A simulated system.", tag="environments", fields={...})

    @Operation(SIMULATOR, "POST /simulators", takes=SIMULATOR.new, gives=SIMULATOR.whole, creates=True, tool="create")
    async def create_simulator(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
        '''Create a simulator.'''

The first line of the function is what OpenAPI, the MCP tool and the reference say that it does. It is called with the hub, the caller, the
ids in its path in their order, and what was sent; lists also take `limit`, `cursor` and the parent they are narrowed to. What gives nothing
deletes something.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

from proctor.model.evidence import Json
from proctor.service.verification.shared.fields import Field, Shape, Table, read_fields, read_only
from proctor.store.sql.pages import Row

Call = TypeVar("Call", bound=Callable[..., Awaitable[Any]])
_ID_IN_PATH = re.compile(r"\{(\w+)\}")
_STAMPS = ("organization_id", "created_at", "updated_at")


STAMPS: Table = {
    "id": read_only("string", "its id"),
    "organization_id": read_only("string", "whose it is", in_tool=False),
    "created_at": read_only("string", "when it was made"),
    "updated_at": read_only("string", "when it was changed last", in_tool=False),
}
"""What every record has."""


@dataclass(frozen=True)
class ToolWords:
    """What the MCP tool of a noun is called, and what it says of itself."""

    name: str
    title: str
    about: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Resource:
    """One noun."""

    kind: str
    """Of its records in the store."""
    prefix: str = ""
    """Of their ids."""
    name: str
    """Of its shape in OpenAPI."""
    about: str
    fields: Table
    parent: str | None = None
    """The field that names what a record belongs to."""
    what: str = ""
    """In the words of people; left out, its kind."""
    stamped: bool = True
    """Whether an answer says whose a record is, and when it was made and changed."""
    tag: str = ""
    """Its chapter in OpenAPI."""
    tool: ToolWords | None = None
    operations: list[Operation] = field(default_factory=lambda: list[Operation]())

    # --- the shapes of its bodies and answers ---

    @functools.cached_property
    def summary(self) -> Shape:
        """A record as lists show it."""
        several = any(one.full for one in self.fields.values())
        return Shape(f"{self.name}Summary" if several else self.name, self.about, self._shown_fields(full=False), self.name)

    @functools.cached_property
    def whole(self) -> Shape:
        """A record with everything that is known of it."""
        more = [name.replace("_", " ") for name, one in self.fields.items() if one.full]
        if not more:
            return self.summary
        return Shape(self.name, f"The same with its {' and '.join(more)}.", self._shown_fields(full=True), self.name)

    @functools.cached_property
    def new(self) -> Shape:
        """What a caller writes to make one."""
        return Shape(f"New{self.name}", f"What {add_article(self.called)} is made of.", self.writable())

    @functools.cached_property
    def changes(self) -> Shape:
        """What a caller writes to change one."""
        return Shape(f"{self.name}Changes", "What changes; the rest stays, and null clears what may be empty.", self.writable(partial=True))

    def new_within(self, parent: str) -> Shape:
        """What a caller writes to make one below a parent that the path names."""
        return Shape(self.new.name, self.new.about, {name: one for name, one in self.new.fields.items() if name != parent})

    def _shown_fields(self, *, full: bool) -> Table:
        fields = {name: one for name, one in self.fields.items() if one.shown and (full or not one.full)}
        return {**(STAMPS if self.stamped else {"id": STAMPS["id"]}), **fields}

    # --- reading and showing ---

    @property
    def called(self) -> str:
        """What people call one of them."""
        return self.what or self.kind.replace("_", " ")

    def writable(self, *, partial: bool = False) -> Table:
        """Return the fields that callers write; with `partial` those that may change."""
        return {name: one for name, one in self.fields.items() if one.written and (one.changeable or not partial)}

    def read(self, given: Mapping[str, Json], *, partial: bool = False) -> dict[str, Json]:
        """Return the fields of a request; of one that changes a record only those that may change and are there."""
        return read_fields(self.writable(partial=partial), given, self.called, partial=partial)

    def show(self, row: Row) -> dict[str, Json]:
        """Return a record as lists have it, but for the other records in it."""
        fields = {name: self._show_field(name, one, row) for name, one in self._own_fields().items()}
        return {"id": row["id"], **fields, **{name: row[name] for name in _STAMPS}}

    def _show_field(self, name: str, one: Field, row: Row) -> Json:
        if one.compute is not None:
            return one.compute(row)
        return row["parent_id"] if name == self.parent else row["body"].get(name, one.default)

    def fill(self, **fields: Json) -> dict[str, Json]:
        """Return the body of a new record: what every one begins with, and `fields`."""
        kept = {name: one.default for name, one in self._own_fields().items() if one.compute is None}
        return {name: value for name, value in {**kept, **fields}.items() if name != self.parent}

    def _own_fields(self) -> Table:
        return {name: one for name, one in self.fields.items() if one.shown and not one.full and not one.joined}


@dataclass(frozen=True, eq=False)
class Operation:
    """Declares what a function does with a noun: its address in REST, what it takes and gives, its name in the tool."""

    noun: Resource
    route: str
    """Method and path."""
    _: KW_ONLY
    takes: Shape | None = None
    """The body."""
    takes_optional: bool = False
    """Whether the body may be left out."""
    takes_whole: bool = False
    """Whether the body is the value of its only field, and has no fields of its own."""
    gives: Shape | None = None
    """What it answers with; without it something is deleted."""
    pages: bool = False
    """Whether it gives a page of them."""
    large: bool = False
    """Whether what it gives may be so large that looking at all of it again would keep others waiting."""
    within: str | None = None
    """Of a list: the id of what it can be narrowed to."""
    creates: bool = False
    """Whether there is something new afterwards."""
    open: bool = False
    """Whether anybody may ask it, without a key; it is called without a caller then."""
    rest: bool = True
    """Whether REST has it."""
    tool: str | tuple[str, ...] = ()
    """Its names in the MCP tool; without one the tool does not have it."""
    call: Callable[..., Awaitable[Any]] = field(init=False)
    name: str = field(init=False)
    """Of its function."""
    about: str = field(init=False)
    """What it does, in one sentence."""

    def __call__(self, call: Call) -> Call:
        """Give the noun this operation, done by a function."""
        for name, value in (("call", call), ("name", call.__name__), ("about", (call.__doc__ or "").partition("\n")[0])):
            object.__setattr__(self, name, value)
        self.noun.operations.append(self)
        return call

    @property
    def method(self) -> str:
        """Its method in REST."""
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        """Its path in REST."""
        return self.route.partition(" ")[2]

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids in its path."""
        return tuple(_ID_IN_PATH.findall(self.path))

    @property
    def actions(self) -> tuple[str, ...]:
        """Its names in the MCP tool."""
        return (self.tool,) if isinstance(self.tool, str) else self.tool

    @property
    def status(self) -> int:
        """The status of its answer in REST."""
        return 204 if self.gives is None else 201 if self.creates else 200


def add_article(what: str) -> str:
    """Return a noun of people with its article."""
    return f"{'an' if what[0] in 'aeiou' else 'a'} {what}"
