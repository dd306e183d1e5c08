"""A walk over every screen at three widths, light and dark: rules for all pages."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Match, Route

from proctor.pages.routes import make_router
from tests.doctor.servers import http_server
from tests.foreign import install_from_npm
from tests.live.browser.accessibility import open_details
from tests.live.browser.chromium import CHROMIUM, launch_chromium
from tests.live.browser.served_page import Place, Visitor, opened_place

playwright = pytest.importorskip("playwright.sync_api", reason="the browser tests need the package playwright")

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("pages browser"),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed"),
]
MOST_BYTES, MOST_REQUESTS = 30_000, 8
EDITORS = (
    "/ui/p/{project}/cases/new",
    "/ui/p/{project}/cases/{case}/edit",
    "/ui/p/{project}/proposals/{proposal}/edit",
)
PARTS = 4
"""Tests that share the walk, so that each stays within its time."""
LOOKS = ((1440, "light"), (1440, "dark"), (820, "light"), (820, "dark"), (390, "light"), (390, "dark"))
_COLOURS = "{runOnly: ['color-contrast', 'link-in-text-block']}"
_SIZES = "{runOnly: ['target-size', 'scrollable-region-focusable']}"
RULES = {(1440, "light"): "{}", (1440, "dark"): _COLOURS, (820, "light"): _SIZES, (390, "light"): _SIZES}
"""What axe tries at a width and scheme: each rule where its answer can differ."""
ID = re.compile(r"\b(?:[a-z]{2,8}_)?[0-9A-HJKMNP-TV-Z]{26}\b|\b[0-9a-f]{32}\b")
EXPONENT = re.compile(r"(?<![\w.\-])\d+(?:\.\d+)?e[+-]?\d+\b")
_READ = """() => {
  const shown = (one) => one.checkVisibility();
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const dead = [];
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), at = walker.currentNode.parentElement;
    if (/^and [\\d,]+ more/.test(text) && shown(at) && !at.closest("a, summary, button")) dead.push(text);
  }
  return {
    headings: [document.title, ...[...document.querySelectorAll("h1, .crumbs a")].map((one) => one.textContent)],
    text: [...document.querySelectorAll("main")].map((one) => one.innerText).join(" "),
    dead,
  };
}"""

# Links in a sentence share lines; a button or a tag has a place of its own.
_OVERLAPS = """() => {
  const placed = [...document.querySelectorAll("main :is(a, button, summary, input, select, textarea)")]
    .filter((one) => one.checkVisibility({visibilityProperty: true}))
    .map((one) => [one, one.getBoundingClientRect()]).filter(([, box]) => box.width > 2);
  const found = [];
  for (const [one, box] of placed) if (getComputedStyle(one).display !== "inline") for (const [other, next] of placed) {
    const apart = box.left > next.right - 1 || next.left > box.right - 1 || box.top > next.bottom - 1 || next.top > box.bottom - 1;
    if (apart || one.contains(other) || other.contains(one)) continue;
    found.push([one, other].map((each) => each.outerHTML.slice(0, 120)).join(" and "));
  }
  return found;
}"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service with two runs, the second one worse in many ways, example data, and one of everything else."""
    with opened_place(tmp_path_factory.mktemp("pages-walk"), None) as opened:
        cases: list[dict[str, Any]] = [
            {"id": f"case-{number}", "input": f"question {number}", "expect": [{"response_contains": f"question {number}"}]}
            for number in range(40)
        ]
        opened.runs = [opened.start_run(cases, concurrency=16, name="nightly", note="before")]
        opened.wait_for(opened.runs[0])
        opened.agent.bad = True
        opened.runs.append(opened.start_run(cases, concurrency=16, name="nightly", note="a new prompt"))
        opened.wait_for(opened.runs[1])
        opened.agent.bad = False
        opened.runs.append(opened.start_run(repeat=15))  # more than a page of attempts
        opened.wait_for(opened.runs[2])
        yield opened


def list_project_screens(place: Place) -> list[str]:
    """Return every kind of page of a project: one without data, and one with runs, traces, labels and the rest."""
    project, (before, after) = f"/ui/p/{place.project}", place.runs[:2]
    empty = place.ask("POST", "/api/projects", {"name": "Empty"})["id"]
    made = place.ask("POST", f"/api/projects/{place.project}/example")
    place.wait_for(made["run_id"])
    failed = place.ask("GET", f"/api/runs/{after}/results?outcome=fail")["data"][0]["id"]
    one, other = (one["id"] for one in place.ask("GET", f"/api/runs/{place.runs[2]}/results?case=hours")["data"][:2])
    trace = place.ask("GET", f"/api/traces?project_id={place.project}")["data"][0]["id"]
    label = place.ask("POST", "/api/annotations", {"subject": "trace", "subject_id": trace, "label": "fail", "note": "rude"})["id"]
    alert = {"project_id": place.project, "name": "few pass", "kind": "pass_rate", "webhook_url": "https://example.com/h"}
    alert_id = place.ask("POST", "/api/alerts", alert)["id"]
    run = {"cases": [made["case_id"]], "target": place.agent.target}
    schedule = {"project_id": place.project, "name": "nightly", "cron": "30 2 * * *", "run": run}
    schedule_id = place.ask("POST", "/api/schedules", schedule)["id"]
    place.ask("PUT", f"/api/projects/{place.project}/secrets/TOKEN", {"value": "secret"})
    document = "proctor: 1\ncases:\n  - id: refund\n    input: Refund 17\n    expect:\n      - tool_called: refund\n"
    proposed = {"project_id": place.project, "document": document, "because": "seen in a ticket", "case_id": made["case_id"]}
    with http_server("--defect", "unknown-tool") as url:
        wanted = {"project_id": place.project, "server": url, "areas": ["tools"], "timeout_s": 2}
        examined = place.ask("POST", "/api/examinations", wanted)["id"]
        place.wait_for(examined)
    proposal = f"{project}/proposals/{place.ask('POST', '/api/proposals', proposed)['id']}"
    case, agent = f"{project}/cases/{made['case_id']}", f"{project}/agents/{made['agent_id']}"
    return [
        "/ui/", f"/ui/p/{empty}", f"/ui/p/{empty}/runs", f"/ui/p/{empty}/traces", project, f"{project}/runs",
        f"{project}/runs/new?run={after}",
        f"{project}/runs/{before}", f"{project}/runs/{after}", f"{project}/runs/{after}?outcome=fail", f"{project}/runs/{made['run_id']}",
        f"{project}/runs/{after}/mutation",
        f"{project}/runs/{after}/r/{failed}", f"{project}/history?suite=shop&case=case-1",
        f"{project}/runs/{place.runs[2]}/r/{one}?with={other}",
        f"{project}/compare?runs={before},{after}", f"{project}/compare?runs={before},{after},{place.runs[2]}",
        f"{project}/compare/answers?runs={before},{after}&case=case-1",
        f"{project}/cases", f"{project}/cases/new", case, f"{case}/edit",
        f"{project}/examinations", f"{project}/examinations/new", f"{project}/examinations/{examined}", f"{project}/runs/{examined}",
        f"{project}/proposals", proposal, f"{proposal}/edit", f"{proposal}/delete",
        f"{project}/agents", f"{project}/agents/new", agent, f"{agent}/edit",
        f"{project}/traces", f"{project}/traces/reevaluate", f"{project}/traces/{trace}",
        f"{project}/labels", f"{project}/labels/all", f"{project}/labels/{label}", f"{project}/labels/{label}/change",
        f"{project}/labels/{label}/delete",
        f"{project}/alerts", f"{project}/alerts/new?kind=failing_case", f"{project}/alerts/{alert_id}",
        f"{project}/alerts/{alert_id}/change", f"{project}/alerts/{alert_id}/delete",
        f"{project}/schedules", f"{project}/schedules/new", f"{project}/schedules/{schedule_id}",
        f"{project}/schedules/{schedule_id}/change", f"{project}/schedules/{schedule_id}/delete",
        f"{project}/settings", f"{project}/settings/change", f"{project}/retention", f"{project}/delete",
        f"{project}/secrets", f"{project}/secrets/delete?name=TOKEN", f"{project}/nowhere", "/ui/nowhere",
    ]  # fmt: skip


def list_service_screens(place: Place) -> list[str]:
    """Return every kind of page that belongs to no project: benchmarks, keys, the audit log, health and search."""
    key = place.ask("GET", "/api/keys")["data"][0]["id"]
    benchmark = place.ask("POST", "/benchmarks", {"name": "Calls", "description": "By telephone."})["id"]
    task = {"benchmark_id": benchmark, "name": "Book", "task_item": {"instruction": "book"}, "tags": ["voice"]}
    task_id = place.ask("POST", "/tasks", task)["id"]
    claim = {"assert": "voice-transcript", "speaker": "agent", "contains": ["hello"]}
    criterion = {"task_id": task_id, "label": "greets", "assertion": claim, "weight": 2, "axis": "manner"}
    place.ask("POST", "/criteria", criterion)
    reference = place.ask("POST", f"/benchmarks/{benchmark}/publish")["reference"]
    run = place.ask("POST", "/benchmark-runs", {"benchmark_id": benchmark, "version": 1, "agent": "agent 1"})["id"]
    place.ask("PUT", f"/benchmark-runs/{run}/state", {"voice": {"turns": [{"speaker": "agent", "text": "good morning"}]}})
    done = place.ask("POST", f"/benchmark-runs/{run}/complete")
    place.ask("POST", f"/benchmark-runs/{run}/publish")
    token = place.ask("POST", f"/benchmark-runs/{run}/shares", {"visibility": "criteria"})["token"]
    solver = place.ask("POST", "/solvers", {"alias": f"solver-{benchmark[-8:]}"})["id"]
    seed = {"orders": {"rows": [{"id": 1, "status": "open"}]}}
    simulator = place.ask("POST", "/simulators", {"name": "orders", "type": "Records", "config": {"seed": seed}})["id"]
    sandbox = place.ask("POST", "/sandboxes", {"simulator_id": simulator})["id"]
    place.ask("PATCH", f"/sandboxes/{sandbox}/records/orders/1", {"status": "paid"})
    return [
        "/ui/login", "/ui/projects/new", "/ui/keys", "/ui/keys/new", f"/ui/keys/{key}/revoke", "/ui/audit", "/ui/health",
        "/ui/search?q=shop", "/ui/benchmarks", f"/ui/benchmarks/{benchmark}", f"/ui/benchmarks/{benchmark}/change",
        f"/ui/tasks/{task_id}", "/ui/criteria/new", f"/ui/benchmark-runs/{run}", f"/ui/leaderboard/{reference}", f"/ui/shared/{token}",
        f"/ui/task-runs/{done['task_runs'][0]['id']}", f"/ui/solvers/{solver}", "/ui/benchmark-runs/new", f"/ui/sandboxes/{sandbox}",
    ]  # fmt: skip


NO_PAGES = {
    "/", "/ui", "/static/{name}", "/ui/p/{project}/labels/export", "/ui/p/{project}/runs/{run}/rows",
    "/ui/p/{project}/runs/{run}/r/{result}/json", "/ui/p/{project}/runs/{run}/r/{result}/text",
}  # fmt: skip
"""Routes that answer with a redirect, a file or a part of a page."""


def find_route(path: str) -> str:
    """Return the route that answers at an address, as the router chooses it."""
    scope = {"type": "http", "method": "GET", "path": path.partition("?")[0]}
    return next(route.path for route in ROUTES if route.matches(scope)[0] is Match.FULL)


ROUTES = [route for route in make_router(lambda request: None).routes if isinstance(route, Route) and "GET" in (route.methods or ())]


def measure(response: Any) -> int:
    """Return the bytes of a response on the wire; a stream of events has no end."""
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        return 0
    body = response.body()
    return len(gzip.compress(body, 6)) if response.headers.get("content-encoding") == "gzip" else len(body)


def test_the_walk_has_a_page_of_every_route(screens: list[str]) -> None:
    assert {route.path for route in ROUTES} - NO_PAGES == {find_route(path) for path in screens}


@pytest.mark.in_turn
@pytest.mark.parametrize("part", range(PARTS))
def test_no_screen_breaks_a_rule_at_any_width_and_scheme(browser: Any, filled: Place, screens: list[str], axe: str, part: int) -> None:
    flaws: list[str] = []
    with Visitor(browser, filled, bypass_csp=True, reduced_motion="reduce") as visitor:
        visitor.log_in()
        loaded: list[Any] = []
        visitor.page.on("response", lambda response: loaded.append(response))
        for path in screens[part::PARTS]:
            loaded.clear()
            visitor.complaints.clear()
            flaws += [f"{path}: {flaw}" for flaw in find_page_flaws(visitor, path, loaded, axe)]
    assert not flaws, "\n".join(flaws)


def find_page_flaws(visitor: Visitor, path: str, loaded: list[Any], axe: str) -> Iterator[str]:
    """Open a page and yield its violations; `loaded` collects its responses."""
    page = visitor.page
    answer = page.goto(path)
    page.wait_for_load_state()
    if answer.status != (404 if path.endswith("/nowhere") else 200):
        yield f"status {answer.status}"
    size = sum(measure(response) for response in loaded if response.ok)
    # The editor of cases alone loads the module that colours its text.
    most = MOST_BYTES if find_route(path) not in EDITORS else MOST_BYTES + 20_000
    if size > most or len(loaded) > MOST_REQUESTS:
        yield f"{size:,} bytes in {len(loaded)} requests"
    yield from (f"console: {text}" for text in visitor.complaints if "404" not in text)
    open_details(page)
    page.evaluate("for (const menu of document.querySelectorAll('details.menu')) menu.open = false")
    found = page.evaluate(_READ)
    yield from (f"an id as heading: {text}" for text in found["headings"] if ID.search(text))
    yield from EXPONENT.findall(found["text"])
    yield from (f"without a link: {text}" for text in found["dead"])
    page.evaluate(axe)
    for width, scheme in LOOKS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        if page.evaluate("document.documentElement.scrollWidth") > width:
            yield f"wider than {width} px"
        if scheme == "light":
            yield from (f"{width} px: targets overlap: {text}" for text in page.evaluate(_OVERLAPS))
        if (width, scheme) in RULES:
            broken = page.evaluate(f"axe.run(document, {{...{RULES[width, scheme]}, resultTypes: ['violations']}})")["violations"]
            yield from (f"{width} px, {scheme}: {rule['id']}: {rule['nodes'][0]['html'][:160]}" for rule in broken)


@pytest.fixture(scope="module")
def screens(filled: Place) -> list[str]:
    return [*list_project_screens(filled), *list_service_screens(filled)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = launch_chromium(started)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def axe(pytestconfig: pytest.Config) -> str:
    folder = Path(pytestconfig.cache.mkdir("live-npm-axe"))  # type: ignore[union-attr]
    return (install_from_npm(folder, "axe-core@4.14.0") / "axe-core/axe.min.js").read_text(encoding="utf-8")
