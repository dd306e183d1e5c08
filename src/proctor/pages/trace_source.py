"""Traces and labels for screens, for the caller of the request.

`proctor view` has no such screens.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from proctor.evidence.otlp.spans import Span
from proctor.pages.desk import get_caller, get_hub
from proctor.pages.ports import Record
from proctor.pages.words import quote_part
from proctor.service.access import agents
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.labels import agreement, queue
from proctor.service.labels.agreement import Agreement
from proctor.service.labels.annotations import NewAnnotation, create_annotation, list_annotations
from proctor.service.labels.claims import SubjectKind
from proctor.service.labels.queue import LabelQueue, Posed
from proctor.service.refusals import Refusal
from proctor.service.resource import Page
from proctor.service.traces import feed, search, span_trees
from proctor.service.traces.search import Facets, ResultSearch, TraceSearch, TraceSummary
from proctor.service.traces.span_trees import FoundSpan, SpanTree

RANKS = {"fail": 0, "error": 0, "skip": 1}
"""The order of outcomes: what failed first."""


class TraceSource:
    """The traces of the service, for one caller."""

    def __init__(self, hub: Hub, caller: Caller) -> None:
        self._hub = hub
        self._caller = caller

    @classmethod
    def of_request(cls, request: Request) -> TraceSource:
        """Return the source for the caller. Raises `Refusal` without a service."""
        return cls(get_hub(request), get_caller(request))

    async def list_traces(self, wanted: TraceSearch, cursor: str | None, limit: int) -> Page[TraceSummary]:
        """Return a page of traces."""
        return await search.list_traces(self._hub, self._caller, wanted, cursor=cursor, limit=limit)

    async def list_failing_cases(self, trace_ids: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
        """Return the id and key of the cases that failed, by trace."""
        return await search.list_failing_cases(self._hub, self._caller, trace_ids)

    async def count_facets(self, wanted: TraceSearch) -> Facets:
        """Return counts by agent, case, outcome and status."""
        return await search.count_facets(self._hub, self._caller, wanted)

    def find_event_address(self, project_id: str, agent_id: str | None) -> str:
        """Return the address of the event stream."""
        more = f"&agent_id={quote_part(agent_id)}" if agent_id else ""
        return f"/api/traces/events?project_id={quote_part(project_id)}{more}&after={quote_part(feed.find_now(self._hub))}"

    async def list_agents(self, project_id: str) -> Sequence[Record]:
        """Return the agents of a project, the newest hundred."""
        found = await agents.list_agents(self._hub, self._caller, project_id=project_id, limit=100)
        return found["data"]

    async def find_trace(self, id: str) -> Record:
        """Return one trace without the received body."""
        return await search.find_trace(self._hub, self._caller, id)

    async def read_tree(self, id: str) -> SpanTree:
        """Return its spans as a tree."""
        return await span_trees.read_span_tree(self._hub, self._caller, id)

    async def read_span(self, id: str, tree: SpanTree, span_id: str) -> Span | None:
        """Return one span in full."""
        return await span_trees.read_one_span(self._hub, self._caller, id, tree, span_id)

    async def find_spans(self, id: str, tree: SpanTree, words: str) -> tuple[list[FoundSpan], int]:
        """Return spans that contain a text."""
        return await span_trees.find_spans(self._hub, self._caller, id, tree, words)

    async def list_results(self, trace_id: str) -> Sequence[Record]:
        """Return the results of a trace, without assertions, what failed first."""
        page = await search.list_results(self._hub, self._caller, ResultSearch(trace_id=trace_id), limit=100)
        return sorted(page["data"], key=lambda one: (RANKS.get(one["outcome"], 2), one["case_key"]))

    async def get_result(self, id: str) -> Record:
        """Return a result with its assertions."""
        return await search.get_result(self._hub, self._caller, id)

    async def find_agent(self, id: str) -> Record | None:
        """Return an agent; None if it was deleted."""
        try:
            return await agents.get_agent(self._hub, self._caller, id)
        except Refusal:
            return None

    async def list_labels(self, *, trace_id: str | None = None, attempt_id: str | None = None) -> dict[tuple[str, int], str]:
        """Return the caller's labels of the claims of a trace or an attempt, by result or attempt and number."""
        found = await list_annotations(self._hub, self._caller, parent_id=trace_id, subject_id=attempt_id, limit=100)
        mine = [one for one in found["data"] if one["author"] == self._caller.actor]
        return {(one["subject_id"], one["claim"]): one["label"] or "" for one in mine if one["claim"] is not None}

    async def list_annotations(self, subject_id: str) -> Sequence[Record]:
        """Return the annotations of a subject."""
        return (await list_annotations(self._hub, self._caller, subject_id=subject_id, limit=20))["data"]

    async def list_latest_labels(self, project_id: str, most: int) -> Sequence[Record]:
        """Return the newest labels of a project."""
        return (await list_annotations(self._hub, self._caller, project_id=project_id, limit=most))["data"]

    async def annotate(self, annotation: NewAnnotation) -> Record:
        """Store a label or a note."""
        return await create_annotation(self._hub, self._caller, annotation)

    async def list_waiting(self, project_id: str, second: bool) -> LabelQueue:
        """Return the questions to label, or those for a second opinion."""
        return await queue.list_waiting(self._hub, self._caller, project_id, second=second)

    async def pose_next(self, waiting: LabelQueue) -> Posed | None:
        """Return the next claim to label."""
        return await queue.pose_next(self._hub, self._caller, waiting)

    async def pose_claim(self, kind: SubjectKind, id: str, number: int) -> Posed | None:
        """Return one claim."""
        return await queue.pose_claim(self._hub, self._caller, kind, id, number)

    async def read_agreement(self, project_id: str, *, figures: bool = True) -> Agreement:
        """Return the agreement of the judge with the labels."""
        return await agreement.read_agreement(self._hub, self._caller, project_id, figures=figures)
