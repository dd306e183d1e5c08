"""How a resource of `/api` is declared: once, in the module of the service that implements it.

    class Alert(TypedDict):                                    # a value, as every entry point shows it
        '''A rule over results, and the webhook that it calls.'''

        id: str
        state: Annotated[str | None, about("firing, quiet, or null before there are enough results")]

    class NewAlert(msgspec.Struct, frozen=True, kw_only=True):  # a request
        '''A new rule.'''

        name: Annotated[str, about(min_length=1, max_length=200)]
        active: bool = True

    @operation("alerts", "POST /api/alerts", status=201)
    async def create_alert(hub: Hub, caller: Caller, spec: NewAlert) -> Alert:
        '''Create a rule.'''

`rest/declared_routes.py` derives the route and the OpenAPI schemas from the signature, `pages/inputs.py` the inputs of a form. After hub
and caller come the ids of the path in order. A `Struct` is the body, or with GET the query; `Annotated[Mapping, AlertChanges]` gets the
fields that were sent. Keyword parameters are query parameters; `limit` and `cursor` select a page.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypedDict, TypeVar, cast, get_type_hints

import msgspec
from msgspec import Meta

T = TypeVar("T")
Call = TypeVar("Call", bound=Callable[..., Awaitable[Any]])
_ID_IN_PATH = re.compile(r"\{(\w+)\}")


class PageMeta(TypedDict):
    """The cursors of a page."""

    next: str | None
    prev: str | None
    limit: int


Counts = TypedDict("Counts", {"pass": int, "fail": int, "error": int, "skip": int})
Counts.__doc__ = "Number of attempts by outcome."


class Page(TypedDict, Generic[T]):
    """A page of a list, newest first."""

    data: list[T]
    _meta: PageMeta


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """A declared operation."""

    tag: str
    """Its section in OpenAPI."""
    method: str
    path: str
    status: int | None
    """The status of its response, if it is not 200, or 204 without a value."""
    stored: bool
    """Whether it returns stored data, which is not validated again."""
    call: Callable[..., Awaitable[Any]]
    name: str
    """The name of its function, or another one for OpenAPI."""
    person: bool = False
    """Whether a person decides: over MCP it requires a key, also in a service without keys."""

    @property
    def ids(self) -> list[str]:
        """The ids in its path."""
        return _ID_IN_PATH.findall(self.path)


OPERATIONS: list[Operation] = []
"""Every declared operation, in the order of declaration."""


def operation(
    tag: str, route: str, *, status: int | None = None, stored: bool = False, name: str = "", person: bool = False
) -> Callable[[Call], Call]:
    """Declare the decorated function as an operation; `route` is its method and path."""
    method, _, path = route.partition(" ")

    def declare(call: Call) -> Call:
        declared = Operation(
            tag=tag, method=method, path=path, status=status, stored=stored, call=call, name=name or call.__name__, person=person
        )
        OPERATIONS.append(declared)
        return call

    return declare


def about(description: str | None = None, **limits: Any) -> Meta:
    """Return the description and the limits of a field."""
    return Meta(description=description, **limits)


@functools.cache
def list_fields(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a value."""
    return tuple(get_type_hints(kind))


def show_row(kind: type[T], row: Mapping[str, Any], **computed: object) -> T:
    """Return a value: computed fields as given, the others from the columns of the same name."""
    return cast(T, {name: computed[name] if name in computed else row[name] for name in list_fields(kind)})
