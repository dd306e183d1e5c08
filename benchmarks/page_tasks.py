"""Ten tasks done on the pages in a browser: clicks, fields typed into, and seconds until the last page shows what was wanted.

Each task starts on the overview of its project and uses the pages alone, as a person would; seconds are those of the pages, without reading
or thinking. Next to each is whether Arize Phoenix 20.26 and Inspect view 0.3.285 have a way to do it on their pages; this was looked up
in both, not measured. It needs Chromium and the package playwright.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.live.browser.served_page import Place, Visitor, opened_place

from benchmarks.measure import find_chromium
from benchmarks.page_peers import make_trace, send_traces
from benchmarks.report import Figure
from proctor.report.words.wording import count_noun

CASES = [f"{kind}-{number}" for number in range(12) for kind in ("refund", "parcel", "hours")]
_SLOW_S = 3.0
_CASE = """\
proctor: 1
name: refunds
cases:
  - id: refunds
    expect:
      - response_contains: refunded
      - judged: {criteria: The answer is polite., threshold: 0.8}
"""


class AgentAndJudge:
    """An agent of the shop that knows less with each prompt, and a judge that likes answers with "done" or "refunded"."""

    def __init__(self) -> None:
        self.prompt, self.delay_s = 1, 0.0
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
                body = json.dumps(agent.judge(sent) if "messages" in sent else agent.answer(sent["input"])).encode()
                with contextlib.suppress(OSError):  # a cancelled run waits for no answer
                    self.send_response(200)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, question: str) -> Any:
        """Answer as an agent."""
        time.sleep(self.delay_s)
        if self.prompt == 3 and "parcel" in question:
            return {"text": "I cannot track it.", "tool_calls": []}
        calls = [{"name": "track_parcel", "arguments": {"id": 1}, "result": "on its way"}] if "parcel" in question else []
        return {"text": f"{question} is done", "tool_calls": calls}

    def judge(self, sent: Any) -> Any:
        """Answer as a chat model that judges."""
        items = sent["response_format"]["json_schema"]["schema"]["properties"]["results"]["items"]["properties"]
        score = 0.9 if "done" in str(sent) or "was refunded" in str(sent) else 0.2
        results = [{"id": id, "quotes": [], "reason": "by its tone", "score": score} for id in items["id"]["enum"]]
        message = {"role": "assistant", "content": json.dumps({"results": results})}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "model": sent["model"]}


def seed(place: Place, agent: AgentAndJudge) -> None:
    """Fill a project: three runs, the last one worse, a judged case, and 30 traces, the newest with 50 tool calls."""
    model = {"provider": "openai", "model": "judge-1", "base_url": agent.url, "api_key": "${JUDGE_KEY}"}
    settings = {"targets": {"shop": {"type": "http", "url": agent.url}}, "models": {"main": model}, "judge": {"model": "main"}}
    place.ask("PATCH", f"/api/projects/{place.project}", {"settings": settings})
    place.ask("PUT", f"/api/projects/{place.project}/secrets/JUDGE_KEY", {"value": "a secret of the benchmark"})
    cases: list[dict[str, Any]] = [{"id": case, "input": case, "expect": [{"response_contains": "done"}]} for case in CASES]
    for case in cases:
        case["expect"] += [{"tool_called": "track_parcel"}] if "parcel" in case["id"] else []
    for agent.prompt in (1, 2, 3):
        suite = {"proctor": 1, "name": "shop", "cases": cases}
        wanted = {"project_id": place.project, "suite": suite, "target": "shop", "name": "nightly", "note": f"prompt {agent.prompt}"}
        place.wait_for(place.ask("POST", "/api/runs", {**wanted, "concurrency": 8})["id"])
    place.ask("POST", "/api/cases", {"project_id": place.project, "document": _CASE})
    traces = [
        make_trace(
            n,
            "shop",
            calls=50 if n == 0 else 3,
            answer=f"Order {n}: I do not know.",
            failing=(33,) if n == 0 else (),
            customer=f"c-{n % 5}",
        )
        for n in range(29, -1, -1)
    ]
    send_traces(place, traces)


class Person:
    """Uses the pages, and counts the actions."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.clicks = self.typed = 0

    def click(self, selector: str) -> None:
        """Click, and wait for the next page if there is one."""
        self.clicks += 1
        self.page.locator(selector).first.click()
        self.page.wait_for_load_state()

    def press(self, key: str) -> None:
        """Press a key, which counts as a click."""
        self.clicks += 1
        self.page.keyboard.press(key)

    def type(self, selector: str, text: str) -> None:
        """Fill in a field."""
        self.typed += 1
        self.page.locator(selector).first.fill(text)

    def see(self, text: str) -> None:
        """Wait until something is shown."""
        self.page.locator(f"text={text}").first.wait_for(timeout=60_000)


def find_cause(person: Person) -> None:
    """Which cases broke in the last run, and since when."""
    person.see("since")
    person.click("main h3 a:has-text('nightly')")
    person.see("I cannot track it")
    assert person.page.locator(".groups .note:has-text('new')").count() and "prompt 2" in person.page.inner_text(".summary")


def find_failing_span(person: Person) -> None:
    """The failing span of a trace with 50 tool calls."""
    person.click("nav >> text=Traces")
    person.click(".feed tbody a")
    person.see("timeout after 30 s")


def make_case(person: Person) -> None:
    """A case from a bad trace."""
    person.click("nav >> text=Traces")
    person.click(".feed tbody a")
    person.click("text=Make a case of it")
    person.click("button:has-text('Save')")
    person.see("History over traces")


def contest_judge(person: Person) -> None:
    """Contest a verdict of the judge."""
    person.click("nav >> text=Traces")
    person.click(".feed tbody a")
    person.click(".contest button[value=pass]")
    person.page.locator(".contest [aria-pressed=true]").first.wait_for()


def label_twenty(person: Person) -> None:
    """Label twenty answers."""
    person.click("nav >> text=Labels")
    before = person.page.inner_text("#main p")
    for number in range(20):
        person.press("2" if number % 2 else "1")
        person.page.wait_for_function("(before) => document.querySelector('#main p').innerText !== before", arg=before)
        person.page.wait_for_load_state()
        before = person.page.inner_text("#main p")


def compare_three(person: Person) -> None:
    """Compare three runs and name the cause."""
    person.click("nav >> text=Runs")
    for number in range(3):
        person.click(f"tbody tr:nth-child({number + 1}) input[name=runs]")
    person.click("button:has-text('Compare')")
    person.see("12 cases")
    assert "I cannot track it" in person.page.inner_text("main")


def find_customer(person: Person) -> None:
    """All traces of one customer that called `refund`."""
    person.click("nav >> text=Traces")
    person.click("text=Time, tool, metadata")
    person.type("input[name=tool]", "refund")
    person.type("input[name=metadata]", "user.id=c-2")
    person.click("button:has-text('Filter')")
    assert person.page.locator(".feed tbody tr").count() == 6


def start_and_stop(person: Person) -> None:
    """Start a run and stop it."""
    person.click("nav >> text=Runs")
    person.click(".runs tbody a")
    person.click("text=Run again")
    person.click("button[value=start]")
    person.click("text=Cancel run")
    person.clicks += 1  # the question
    person.see("cancelled")


def make_alert(person: Person) -> None:
    """An alert for a falling pass rate."""
    person.click("nav >> text=Alerts")
    person.click("text=Low pass rate")
    person.type("input[name=name]", "few pass")
    person.type("input[name=webhook_url]", "https://example.com/hook")
    person.click("button:has-text('Save')")
    person.see("few pass")


def begin_empty(person: Person) -> None:
    """From an empty service to the first verdict."""
    person.click(".brand")
    person.click("text=New project")
    person.type("input[name=name]", "first")
    person.click("main form button")
    # It shows the list of traces, which is live: verdicts appear without a reload.
    person.click("text=Load example data")
    person.page.locator(".feed .outcome").first.wait_for(timeout=60_000)


TASKS: dict[str, tuple[Callable[[Person], None], str, str]] = {
    "what broke in the last run, and since when": (find_cause, "no (experiments have scores, no causes or earlier run)", "no (one log)"),
    "the failing span of a 50-call trace": (find_failing_span, "yes", "yes (events of a sample)"),
    "a case from a bad trace": (make_case, "yes (add to dataset)", "no"),
    "contest a judge": (contest_judge, "yes (annotation)", "no (read-only)"),
    "label twenty answers": (label_twenty, "yes (annotations, without a queue)", "no (read-only)"),
    "compare three runs and name the cause": (compare_three, "partly (side by side, no cause)", "no"),
    "all traces of one customer that called `refund`": (find_customer, "partly (filters of traces by user and of spans by name)", "no"),
    "start and stop a run": (start_and_stop, "partly (prompts in the playground)", "no (command line)"),
    "an alert for a falling pass rate": (make_alert, "no", "no"),
    "from an empty service to the first verdict": (begin_empty, "partly (evaluators need a model)", "no (command line)"),
}
"""How each is done here, and whether it can be done on the pages of Arize Phoenix and of Inspect view."""


def figures() -> Iterator[Figure]:
    """Do every task."""
    chromium = find_chromium()
    if chromium is None or importlib.util.find_spec("playwright") is None:
        print("  left out: no Chromium, or no package playwright")
        return
    from playwright.sync_api import sync_playwright  # only here: without it everything else is measured

    agent = AgentAndJudge()
    flags = ("--quiet-period-s", "0.5")
    with tempfile.TemporaryDirectory() as home, opened_place(Path(home), None, *flags) as place, sync_playwright() as started:
        seed(place, agent)
        agent.delay_s = _SLOW_S
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        with Visitor(browser, place) as visitor:
            visitor.log_in()
            # A separate page: that of a visitor dismisses every dialog.
            page = visitor.context.new_page()
            page.set_default_timeout(60_000)
            page.on("dialog", lambda dialog: dialog.accept())
            for name, (do, phoenix, inspect) in TASKS.items():
                page.goto(f"/ui/p/{place.project}")
                person, begun = Person(page), time.perf_counter()
                do(person)
                seconds = time.perf_counter() - begun
                note = f"{count_noun(person.typed, 'field')}; {seconds:.1f} s; Phoenix: {phoenix}; Inspect: {inspect}"
                yield Figure(f"ten tasks: {name}, clicks", person.clicks, note=note)
        browser.close()
    agent.server.shutdown()


if __name__ == "__main__":
    for one in figures():
        print(one.line(), flush=True)
