"""A visit: what every screen gets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from proctor.pages.forms import LARGEST_FORM, read_form
from proctor.pages.places import Record
from proctor.pages.rendering import render_page
from proctor.pages.words import find_project_address
from proctor.service.access.callers import Caller
from proctor.service.access.keys import name_actors
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.service.runs.run import ShownRun

if TYPE_CHECKING:
    from proctor.pages.folder_source import FolderSource
    from proctor.pages.service_source import ServiceSource

Source: TypeAlias = "ServiceSource | FolderSource"
"""Reads from the service, or the stored runs of a folder. In a folder (`is_local`) there is no login and one project, and nothing is
written. Lists are pages as in REST: `data` and `_meta` with cursors. Missing or forbidden objects raise `Refusal`.
"""
Answer = TypeVar("Answer")
Parameters = ParamSpec("Parameters")


def get_hub(request: Request) -> Hub:
    """Return the service. Raises `Refusal` in `proctor view`."""
    found: Hub | None = getattr(request.app.state, "hub", None)
    if found is None:
        raise Refusal("NOT_FOUND", "this page is not available in `proctor view`", hint="use `proctor serve`")
    return found


class Visit:
    """A request for a page, its data source, and the service for its caller."""

    def __init__(self, request: Request, source: Source) -> None:
        self.request = request
        self.source = source
        self.params = request.query_params
        self.path = request.path_params

    @property
    def hub(self) -> Hub:
        """The service. Raises `Refusal` in `proctor view`."""
        return get_hub(self.request)

    @property
    def caller(self) -> Caller:
        """The caller. Raises `Refusal` without one."""
        found: Caller | None = getattr(self.request.state, "caller", None)
        if found is None:
            raise Refusal("UNAUTHORIZED", "log in first")
        return found

    @property
    def cursor(self) -> str | None:
        """The requested page of a list."""
        return self.params.get("cursor") or None

    @property
    def project(self) -> Record:
        """The project that `find_project` has found."""
        return self.request.state.project

    @property
    def project_id(self) -> str:
        """The id of that project."""
        return self.project["id"]

    def find_address(self, *parts: str) -> str:
        """Return the address of the project, or of a page below it."""
        return find_project_address(self.project_id, *parts)

    def list_crumbs(self, word: str, name: str) -> list[tuple[str, str]]:
        """Return the breadcrumbs of a page below a list of the project."""
        return [(self.find_address(), self.project["name"]), (self.find_address(word), name)]

    async def call(
        self,
        operation: Callable[Concatenate[Hub, Caller, Parameters], Awaitable[Answer]],
        *arguments: Parameters.args,
        **options: Parameters.kwargs,
    ) -> Answer:
        """Call an operation of the service for the caller."""
        return await operation(self.hub, self.caller, *arguments, **options)

    def require_writer(self) -> None:
        """Reject keys that may not make changes, and `proctor view`."""
        if self.hub and not self.source.may_write:
            raise Refusal("FORBIDDEN", "changes require an organization key")

    async def find_project(self) -> Record:
        """Return the project that the path names, which the page then shows in its header."""
        self.request.state.project = await self.source.get_project(self.path["project"])
        return self.project

    async def find(self, noun: str, get: Callable[[Hub, Caller, str], Awaitable[Any]]) -> Record:
        """Return the object that the path names. Raises `Refusal` if it or its project is missing, or they do not belong together."""
        await self.find_project()
        return self._require_own(noun, await self.call(get, self.path[noun]))

    async def find_run(self, id: str | None = None) -> ShownRun:
        """Return the run that the path names, or another run of its project. Raises `Refusal` like `find`."""
        if id is None:
            await self.find_project()
        return self._require_own("run", await self.source.get_run(self.path["run"] if id is None else id))

    def _require_own(self, noun: str, found: Any) -> Any:
        if found["project_id"] != self.project_id:
            raise not_found(noun, found["id"])
        return found

    async def read_form(self, *, largest: int = LARGEST_FORM) -> dict[str, str]:
        """Return the fields of the form. Raises `Refusal`, also for one that was not sent from a page of this session."""
        return await read_form(self.request, largest=largest)

    async def name_authors(self, rows: Iterable[Mapping[str, Any]], field: str = "author") -> dict[str, str]:
        """Return the names of those who wrote rows, by the ids of their keys."""
        return await self.call(name_actors, [str(row[field]) for row in rows])

    def render(self, template: str, /, *, status: int = 200, **values: Any) -> Response:
        """Render a template as the response."""
        return render_page(self.request, template, values, status=status)


async def read_if_allowed(answer: Awaitable[Answer]) -> Answer | None:
    """Return the result, or None if the key may not read it."""
    try:
        return await answer
    except Refusal as refusal:
        if refusal.code != "FORBIDDEN":
            raise
        return None
