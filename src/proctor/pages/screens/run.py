"""Runs: the list, the form to start one, and one run with failures and attempts, live while it is running."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar, cast, get_args
from urllib.parse import urlencode

from starlette.responses import Response

from proctor.actions.history.compare_several import MOST_RUNS
from proctor.actions.history.failures import Failures
from proctor.model.case import MOST_REPEATS
from proctor.model.mutation import KIND_NAMES
from proctor.pages.drawing import name_run, subtract
from proctor.pages.places import FIRST, Place, Record, sort_page
from proctor.pages.rendering import redirect
from proctor.pages.screens.case_edit import LARGEST_FORM, read_object
from proctor.pages.visit import Source, Visit
from proctor.pages.words import OUTCOMES, measure_run_ms, read_number, read_typed_number
from proctor.report.words.findings import find_shape
from proctor.report.words.html_text import duration_words
from proctor.scoring.intervals import Counts, wilson
from proctor.scoring.statistics import count_outcomes
from proctor.service.refusals import Refusal
from proctor.service.runs.requests import plan_run, read_request, start_run
from proctor.service.runs.results import LONGEST_TEXT
from proctor.service.runs.run import MOST_AT_ONCE, MOST_CASES, AttemptFilter, NewRun, RunSearch, RunStatus, ShownRun
from proctor.service.traces import cases
from proctor.store.sql.compressed_json import to_json

# --- list of runs

STATUSES: tuple[RunStatus, ...] = get_args(RunStatus)
_LONGEST = 200
"""Characters of a search text."""
_ORDERS = ("name", "rate", "since", "tokens", "target", "started", "duration")
_LISTED = 50
"""Runs on one page."""


async def show_runs(visit: Visit) -> Response:
    """Show a page of runs."""
    await visit.find_project()
    params, source = visit.params, visit.source
    search = RunSearch(
        status=next((status for status in STATUSES if status == params.get("status")), None),
        name=_read_word(params.get("name")),
        suite=_read_word(params.get("suite")),
        tag=(_read_word(params.get("tag")) or "").removeprefix("@") or None,
        query=_read_word(params.get("q")),
    )
    order = read_order(params.get("sort"), _ORDERS)
    listing = partial(source.list_runs, visit.project_id, search)
    if order is None:
        page = await listing(cursor=visit.cursor, limit=_LISTED)
    else:
        find_values = partial(_find_values, source, visit.project_id, order.lstrip("-"))
        page = await sort_page(listing, find_values, down=order.startswith("-"), cursor=visit.cursor, limit=_LISTED)
    # Filters other than the status, as a query.
    others = {"name": search.name, "suite": search.suite, "tag": search.tag, "q": search.query}
    narrowed = {name: value for name, value in others.items() if value is not None}
    return visit.render(
        "runs.html",
        page=page,
        previous=await source.find_previous_runs(visit.project_id, page["data"]),
        facts=await source.list_facts(page["data"]),
        order=order or "",
        chosen=[id for word in params.getlist("runs") for id in word.split(",") if id][:MOST_RUNS],
        wanted=search,
        narrowed=narrowed,
        rest=f"&{urlencode(narrowed)}" if narrowed else "",
        statuses=STATUSES,
        most=MOST_RUNS,
    )


def read_order(text: str | None, known: Sequence[str]) -> str | None:
    """Return the column that a list is sorted by, after a minus if the largest comes first."""
    return text if text and text.removeprefix("-") in known else None


async def _find_values(source: Source, project_id: str, name: str, runs: Sequence[ShownRun]) -> list[Any]:
    """Return the value of each run in a column."""
    if name == "since":
        previous = await source.find_previous_runs(project_id, runs)
        changes = [subtract(run, previous.get(run["id"])) for run in runs]
        return [None if change is None else change.effect for change in changes]
    if name == "tokens":
        facts = await source.list_facts(runs)
        return [facts[run["id"]].totals.tokens if run["id"] in facts else None for run in runs]
    if name == "rate":
        found = [count_outcomes(cast(dict[str, int], run["counts"])) for run in runs]
        return [one.rate if one.runs else None for one in found]
    if name == "duration":
        return [measure_run_ms(run) for run in runs]
    if name == "started":
        return [run["started_at"] or run["created_at"] for run in runs]
    return [(name_run(run) if name == "name" else run["target"] or "").casefold() for run in runs]


def _read_word(text: str | None) -> str | None:
    """Return a search text; None if blank."""
    return (text or "").strip().replace("\0", "")[:_LONGEST] or None


# --- start a run

Form = dict[str, Any]
_OTHER = "other:"
"""Marks a target described in the form."""


async def show_new_run(visit: Visit) -> Response:
    """Show the form; `case` in the query selects cases, `run` copies the request of a run."""
    visit.require_writer()
    await visit.find_project()
    form: Form = {"repeat": "1", "concurrency": "4", "timeout_s": "120", "what": "cases", "case": visit.params.getlist("case")}
    if visit.params.get("run"):
        form = _write_form(await visit.call(read_request, visit.params["run"]))
    return await _show_form(visit, form)


def _write_form(spec: NewRun) -> Form:
    """Return the form that sends a request."""
    own = spec.target if isinstance(spec.target, dict) else None
    return {
        "what": "suite" if spec.cases is None else "cases",
        "suite": spec.suite if isinstance(spec.suite, str) else "",
        "dialect": spec.dialect or "",
        "case": spec.cases or [],
        "target": _OTHER if own is not None else spec.target or "",
        "own_target": "" if own is None else to_json(own).decode(),
        "tags": ", ".join(spec.tags),
        "timeout_s": f"{spec.timeout_s:g}",
        **{name: str(getattr(spec, name) or "") for name in ("repeat", "concurrency", "selection", "name", "note")},
    }


async def send_new_run(visit: Visit) -> Response:
    """Start a run and show it, or show a dry run."""
    form: Form = dict(await visit.read_form(largest=LARGEST_FORM))
    form |= {"case": form.get("case", "").splitlines(), "suite": form.get("suite", "").replace("\r\n", "\n")}
    visit.require_writer()
    await visit.find_project()
    try:
        spec = _read_spec(visit.project_id, form)
        if form.get("do") != "start":
            return await _show_form(visit, form, plan=await visit.call(plan_run, spec))
        run = await visit.call(start_run, spec)
    except Refusal as refusal:
        return await _show_form(visit, form, refusal=refusal, status=refusal.status)
    return redirect(visit.find_address("runs", run["id"]))


def _read_spec(project_id: str, form: Record) -> NewRun:
    """Return the run request of a form. Raises `Refusal`."""
    fields: dict[str, list[str]] = {}
    target = form.get("target") or None
    if target == _OTHER:
        target = read_object(form.get("own_target", ""), "own_target")
    numbers: dict[str, Any] = {}
    for name, is_whole in (("repeat", True), ("concurrency", True), ("timeout_s", False)):
        try:
            numbers[name] = read_typed_number(form.get(name, ""), whole=is_whole)
        except ValueError as error:
            fields[name] = [str(error)]
    if fields:
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields=fields)
    selection = {"suite": form["suite"]} if form.get("what") == "suite" else {"cases": list(form["case"])}
    return NewRun(
        project_id=project_id,
        target=target,
        dialect=(form.get("dialect") or None) if form.get("what") == "suite" else None,
        selection=form.get("selection", "").strip() or None,
        name=form.get("name", "").strip(),
        tags=[tag.strip() for tag in form.get("tags", "").split(",") if tag.strip()],
        note=form.get("note", "").strip(),
        **selection,
        **numbers,
    )


async def _show_form(visit: Visit, form: Record, *, status: int = 200, **more: Any) -> Response:
    page = await visit.call(cases.list_cases, project_id=visit.project_id, limit=MOST_CASES)
    settings = visit.project["settings"]
    described = settings.get("targets")
    values = {
        "form": form,
        "cases": page["data"],
        "more_cases": page["_meta"]["next"] is not None,
        "targets": sorted(map(str, cast(Record, described))) if isinstance(described, dict) else [],
        "default_target": settings.get("default_target"),
        "other": _OTHER,
        "most_repeats": MOST_REPEATS,
        "most_at_once": MOST_AT_ONCE,
        "plan": None,
        "refusal": None,
        **more,
    }
    return visit.render("run_new.html", status=status, **values)


T = TypeVar("T")
PAGE = 50
"""Attempts on one page."""
_MOST_COMPARED = 20_000
"""Attempts of two runs that the page of a run compares."""
_MOST_SURVIVORS = 200
_NOTHING = Failures(groups=(), looked_at=0, more=False)


async def show_run(visit: Visit) -> Response:
    """Show a run with a page of its attempts."""
    source = visit.source
    await visit.find_project()
    # First: events from here on are streamed, earlier ones are in what is read below.
    events = await source.find_event_address(visit.path["run"])
    run = await visit.find_run()
    filter, place = _read_filter(visit), _read_place(visit)
    went_wrong = run["counts"].get("fail", 0) + run["counts"].get("error", 0)
    is_live = run["status"] in ("queued", "running")
    # In parallel: each mostly waits for its own connection.
    page, failures, before, latency, totals = await asyncio.gather(
        source.list_results(run["id"], filter, place=place),
        source.group_failures(run["id"]) if went_wrong else _give(_NOTHING),
        source.find_previous_runs(visit.project_id, [run]) if run["finished"] else _give({}),
        _give(None) if is_live else source.measure_latency(run["id"]),
        _give(None) if is_live else source.read_totals(run["id"]),
    )
    previous = before.get(run["id"])
    compared, new_reasons = None, set[str]()
    if previous is not None:
        if not is_live and previous["finished"] + run["finished"] <= _MOST_COMPARED:
            compared = (await source.compare_several([previous["id"], run["id"]])).comparisons[0].found
        if failures.groups:
            earlier = await source.group_failures(previous["id"])
            # Reasons that the previous run did not have, if all of its reasons are known.
            if not (earlier.more or earlier.more_groups):
                new_reasons = {find_shape(group.reason) for group in failures.groups}
                new_reasons -= {find_shape(group.reason) for group in earlier.groups}
    if not page["data"] and place.position and page["_meta"]["total"]:
        # A position after the last row shows the last page.
        place = Place(position=(page["_meta"]["total"] - 1) // PAGE * PAGE)
        page = await source.list_results(run["id"], filter, place=place)
    return visit.render(
        "run.html",
        run=run,
        page=page,
        outcome=filter.outcome,
        case=filter.case,
        text=filter.text,
        outcomes=OUTCOMES,
        is_live=is_live,
        failures=failures,
        went_wrong=went_wrong,
        before=previous,
        compared=compared,
        new_reasons=new_reasons,
        find_shape=find_shape,
        totals=totals,
        latency=latency,
        events=events,
        pace=_find_pace(run, datetime.now(UTC)) if is_live else None,
    )


async def _give(value: T) -> T:
    return value


async def show_rows(visit: Visit) -> Response:
    """Show rows of attempts without the page, for a long list."""
    run = await visit.find_run()
    page = await visit.source.list_results(run["id"], _read_filter(visit), place=_read_place(visit))
    return visit.render("run_rows.html", run=run, page=page, here=visit.find_address("runs", run["id"]))


def _read_filter(visit: Visit) -> AttemptFilter:
    params = visit.params
    outcome = params.get("outcome") if params.get("outcome") in OUTCOMES else None
    text = params.get("q", "").strip()[:LONGEST_TEXT]
    return AttemptFilter(outcome=outcome, case=params.get("case") or None, text=text or None)


def _read_place(visit: Visit) -> Place:
    """Return where a page of attempts starts: cursor, position, or row number."""
    if visit.cursor:
        return Place(cursor=visit.cursor)
    if visit.params.get("row"):
        row = max(0, read_number(visit.params["row"].replace(",", "").replace(".", "").strip(), 2**31) - 1)
        return Place(position=row // PAGE * PAGE)
    return Place(position=read_number(visit.params["position"], 2**31)) if visit.params.get("position") else FIRST


async def show_mutation(visit: Visit) -> Response:
    """Show which planted faults the suite of a run detects, and the claims that would detect the others."""
    run = await visit.find_run()
    found = await visit.source.measure_suite(run["id"])
    kinds = sorted(found.kinds.items(), key=lambda pair: pair[1].share if pair[1].share is not None else 2.0)
    survivors = [fault for fault in found.faults if fault.status == "survived"]
    cases = dict.fromkeys(claim.case for claim in found.proposals)
    return visit.render(
        "mutation.html",
        run=run,
        found=found,
        interval=wilson(Counts(found.total.planted, found.total.detected)),
        kinds=[(KIND_NAMES[kind], counts) for kind, counts in kinds],
        kind_names=KIND_NAMES,
        proposals=[(case, [claim for claim in found.proposals if claim.case == case]) for case in cases],
        survivors=survivors[:_MOST_SURVIVORS],
        more=max(0, len(survivors) - _MOST_SURVIVORS),
    )


async def cancel_run(visit: Visit) -> Response:
    """Cancel a run and show it."""
    await visit.read_form()
    run = await visit.find_run()
    await visit.source.cancel_run(run["id"])
    return redirect(visit.find_address("runs", run["id"]))


def _find_pace(run: ShownRun, now: datetime) -> Record | None:
    """Return finished attempts per minute, and the remaining time."""
    if not run["started_at"] or not run["finished"]:
        return None
    seconds = (now - datetime.fromisoformat(run["started_at"])).total_seconds()
    if seconds <= 0:
        return None
    left_s = max(0, run["attempts"] - run["finished"]) * seconds / run["finished"]
    rate = run["finished"] / seconds * 60
    # Slow agents finish less than one per minute.
    decimals = 0 if rate >= 10 else 1 if rate >= 1 else 2
    rate_text = f"{rate:,.{decimals}f}" if rate >= 0.01 else f"< {0.01:,.2f}"
    return {"rate": rate_text, "left": duration_words(left_s * 1000)}
