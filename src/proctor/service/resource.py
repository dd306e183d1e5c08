"""How a resource of `/api` is declared: once, in the module of the service that implements it.

    class Alert(TypedDict):                                    # a value, as every entry point shows it
        '''A rule over results, and the webhook that it calls.'''

        id: str
        state: Annotated[str | None, about("firing, quiet, or null before there are enough results")]

    class NewAlert(msgspec.Struct, frozen=True, kw_only=True):  # a request
        '''A new rule.'''

        name: Annotated[str, about(min_length=1, max_length=200)]
        active: bool = True

    @operation("alerts", "POST /api/alerts", doing="creating alerts", status=201)
    async def create_alert(hub: Hub, caller: Caller, spec: NewAlert) -> Alert:
        '''Create a rule.'''

`rest/declared_routes.py` derives the route and the OpenAPI schemas from the signature, `pages/inputs.py` the inputs of a form. After hub
and caller come the ids of the path in order. A `Struct` is the body, or with GET the query; `Annotated[Mapping, AlertChanges]` gets the
fields that were sent. Keyword parameters are query parameters; `**paging` selects a page. The operation checks the declared types and
limits of requests for every caller.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Any, Generic, Literal, TypedDict, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from proctor.model.typed import convert_to
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import require_writer
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal

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


class Paging(TypedDict, total=False):
    """The requested page of a list."""

    limit: int | None
    cursor: str | None


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
    tag: str, route: str, *, doing: str = "", status: int | None = None, stored: bool = False, name: str = "", person: bool = False
) -> Callable[[Call], Call]:
    """Declare the decorated function as an operation; `route` is its method and path, `doing` names what requires an organization key."""
    method, _, path = route.partition(" ")

    def declare(call: Call) -> Call:
        checked = guard_operation(call, doing, is_search=method == "GET")
        declared = Operation(
            tag=tag, method=method, path=path, status=status, stored=stored, call=checked, name=name or call.__name__, person=person
        )
        OPERATIONS.append(declared)
        return checked

    return declare


def guard_operation(call: Call, doing: str, *, is_search: bool = False) -> Call:
    """Return an operation that checks its arguments, and requires an organization key for `doing` something."""

    @functools.wraps(call)
    async def checked(hub: Hub, caller: Caller, *values: Any, **options: Any) -> Any:
        if doing:
            require_writer(caller, doing)
        check_arguments(call, (*values, *options.values()), is_search=is_search)
        return await call(hub, caller, *values, **options)

    return cast(Call, checked)


def check_arguments(call: Callable[..., Any], values: Iterable[object], *, is_search: bool) -> None:
    """Reject requests among the arguments of an operation with a field that is not as declared."""
    for value in values:
        if isinstance(value, msgspec.Struct) and type(value) in _list_requests(call):
            defaults = {field.name: field.default for field in msgspec.structs.fields(value)}
            sent = {name: each for name, each in msgspec.structs.asdict(value).items() if each is not defaults[name]}
            check_fields_of(type(value), sent, is_search=is_search)
        elif isinstance(value, Mapping):
            for kind in _list_requests(call):
                check_fields_of(kind, cast(Mapping[str, object], value), is_search=is_search)


@functools.cache
def _list_requests(call: Callable[..., Any]) -> tuple[type[msgspec.Struct], ...]:
    """Return the requests that an operation takes, besides the hub and the caller."""
    hints = [
        each for name, hint in get_type_hints(call, include_extras=True).items() for each in (hint, *get_args(hint)) if name != "return"
    ]
    structs = (hint for hint in hints if isinstance(hint, type) and issubclass(hint, msgspec.Struct))
    return tuple(hint for hint in structs if hint.__name__ not in ("Hub", "Caller"))


def check_fields_of(kind: type[msgspec.Struct], values: Mapping[str, object], *, path: str = "", is_search: bool = False) -> None:
    """Reject values of fields that are of another type than declared, or beyond a declared limit; `path` is put before their names."""
    hints = _get_hints(kind)
    wrong: dict[str, list[str]] = {}
    for name in values.keys() & hints.keys():
        hint, may_be_null = hints[name]
        if values[name] is None and may_be_null:
            continue
        reason = _explain_wrong(values[name], hint, is_search=is_search)
        if reason is not None:
            wrong[path + name] = [reason]
    if wrong:
        raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields=wrong)


def _explain_wrong(value: object, hint: Any, *, is_search: bool) -> str | None:
    try:
        convert_to(value, hint)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        if value is None:
            reason = "cannot be empty"
        elif not place and any(word in reason for word in ("length", "= ", "> ", "enum")):
            reason = _describe_limits(hint, value) or reason
        inside = f"{place.strip('.`')}: " if place else ""
        return f"{inside}{reason[:1].lower()}{reason[1:]}"
    # PostgreSQL cannot store a NUL character, and a name of spaces cannot be seen.
    if not is_search and isinstance(value, str) and ("\0" in value or (_find_limits(hint).get("min_length") and not value.strip())):
        return _describe_limits(hint, value) or "has a NUL character"
    return None


def _describe_limits(hint: Any, value: object) -> str | None:
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if get_origin(plain) is Literal:
        return f"expected one of {', '.join(get_args(plain))}"
    limits = _find_limits(hint)
    if "max_length" in limits:
        unit = "entries" if get_origin(plain) is list else "characters"
        least = f"{limits['min_length']} to" if "min_length" in limits else "at most"
        return f"expected {least} {limits['max_length']} {unit}"
    if "le" in limits and "ge" in limits:
        return f"expected {limits['ge']} to {limits['le']}, got {value}"
    return f"expected a number above {limits['gt']}, at most {limits['le']}" if "le" in limits and "gt" in limits else None


def _find_limits(hint: Any) -> dict[str, Any]:
    metas = [part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Meta)]
    names = ("ge", "gt", "le", "min_length", "max_length")
    return {name: limit for meta in metas for name in names if (limit := getattr(meta, name)) is not None}


@functools.cache
def _get_hints(kind: type) -> dict[str, tuple[Any, bool]]:
    """Return the type of each field without null, which msgspec cannot combine with limits, and whether it may be null."""
    found: dict[str, tuple[Any, bool]] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        plain, *metadata = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        parts = get_args(plain) if type(None) in get_args(plain) else (plain,)
        without = Union[tuple(part for part in parts if part is not type(None))]  # noqa: UP007 - the parts are data
        found[name] = Annotated[without, *metadata] if metadata else without, len(parts) > 1
    return found


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
