"""`@proctor.agent` marks a function as an agent, with the settings of its target.

    @proctor.agent(timeout_s=30)
    async def answer(message): ...

A marked function is found by the name of its module alone (`function: shop_agent`), and keeps its settings wherever it is driven:
in `proctor.yaml`, by `proctor.run(suite, target=answer)`, in pytest. Settings in `proctor.yaml` win.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

import msgspec

from proctor.errors import InputError

_MARK = "__proctor_agent__"
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class AgentMark(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an agent's decorator."""

    timeout_s: float | None = None
    """Maximum seconds for one call."""
    capture: Literal["otel"] | None = None
    """`otel`: spans that are recorded while the function runs are evidence, too."""


@overload
def agent(function: FunctionT, /) -> FunctionT: ...
@overload
def agent(*, timeout_s: float | None = None, capture: Literal["otel"] | None = None) -> Callable[[FunctionT], FunctionT]: ...
def agent(
    function: Callable[..., Any] | None = None, /, *, timeout_s: float | None = None, capture: Literal["otel"] | None = None
) -> Callable[..., Any]:
    """Mark a function as an agent: `@proctor.agent`, or `@proctor.agent(timeout_s=30)`. The function itself is unchanged."""
    if timeout_s is not None and (type(timeout_s) not in (int, float) or not timeout_s > 0):
        raise InputError(f"timeout_s: expected seconds above 0, found {timeout_s!r}")
    mark = AgentMark(timeout_s=timeout_s, capture=capture)

    def put(marked: FunctionT) -> FunctionT:
        setattr(marked, _MARK, mark)
        return marked

    return put if function is None else put(function)


def find_mark(function: object) -> AgentMark | None:
    """Return the mark of a function, or None."""
    try:
        found = getattr(function, _MARK, None)
    except Exception:  # a foreign object may raise anything
        return None
    return found if isinstance(found, AgentMark) else None


def list_marked(module: object) -> list[str]:
    """Return the names of a module's own marked functions, in order."""
    module_name = getattr(module, "__name__", None)
    # Reversed: if a function has several names in the module, the first one is used.
    found = {id(value): name for name, value in reversed(list(vars(module).items())) if find_mark(value) is not None}
    names = [name for name, value in vars(module).items() if found.get(id(value)) == name]
    written_here = [name for name in names if getattr(getattr(module, name), "__module__", module_name) == module_name]
    return written_here or names
