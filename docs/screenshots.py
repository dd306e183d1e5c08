"""Makes the pictures of `docs/how-to/look-at-the-service.md`: seeds a service, opens its pages in Chromium, and writes PNG files.

    python -m docs.screenshots [FOLDER]

Everything shown is made up here, so that the pictures are those of the pages as they are now. They need the extra `serve`, the package
playwright and a Chromium.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.live.browser.chromium import launch_chromium
from tests.live.serving import serving
from tests.pages.trace_seeds import seed_traces
from tests.pages.world import BAD, GOOD, add_run, decide_all
from tests.pages.world_cases import seed_cases
from tests.rest.services import fill_place

from proctor.rest.app import open_hub
from proctor.rest.settings import ServeSettings
from proctor.service.access.callers import LOCAL
from proctor.service.access.keys import KeySpec, create_key
from proctor.service.access.projects import update_project
from proctor.service.access.secrets import set_secret
from proctor.service.hub import Hub, stamp
from proctor.service.notify.alerts import NewAlert, create_alert
from proctor.service.settings import ServiceSettings
from proctor.service.verification.authoring import benchmarks, criteria, tasks
from proctor.service.verification.runs import benchmark_runs
from proctor.store.sql.compressed_json import compress_bytes
from proctor.store.sql.tables import alert_rules, results

FOLDER = Path(__file__).parent / "pictures"
LARGEST = 150_000
"""Bytes of a picture."""
LIGHT, DARK, PHONE = ("light", 1280), ("dark", 1280), ("light", 390)
_PROJECT = "/ui/p/proj_home"
_HEIGHT = 860
_SAID = {
    "pass": compress_bytes(b'{"assertions": []}'),
    "fail": compress_bytes(
        b'{"assertions": [{"check": "response_contains", "label": "response_contains \xc2\xb7 refund", "outcome": "fail", '
        b'"reason": "expected the answer to contain \\"refund\\", found \\"I do not know.\\""}]}'
    ),
}


class Seeded:
    """What the pictures are of."""

    def __init__(self) -> None:
        self.key = ""
        self.alert = ""
        self.benchmark = ""
        self.task_run = ""


async def seed(hub: Hub) -> Seeded:
    """Fill a service: a project with runs, results, alerts and a benchmark."""
    found = Seeded()
    await fill_place(hub, LOCAL, "home")
    about = {"name": "Corner shop", "description": "Answers what customers ask about orders, refunds and opening hours."}
    await update_project(
        hub, LOCAL, "proj_home", {**about, "settings": {"targets": {"shop": {"type": "http", "url": "https://shop.example"}}}}
    )
    await set_secret(hub, LOCAL, "proj_home", "SHOP_TOKEN", "x" * 20)
    mixed = {**GOOD, "opening-hours": BAD["opening-hours"]}
    for day, observed in enumerate((mixed, BAD, mixed, GOOD, GOOD, GOOD, BAD)):
        # Up to now, so that the overview has something to say about since yesterday.
        begun = hub.clock() - (6 - day) * 86_400 - 10_800
        at, note = stamp(begun), {3: "with the new tool", 6: "a shorter prompt"}.get(day, "")
        entries = decide_all(observed, repeat=4, at=at)
        await add_run(hub, f"run_{day}", entries, repeat=4, at=at, note=note, completed_at=stamp(begun + 42 - day))
    await seed_cases(hub)
    await seed_traces(hub)
    await _add_results(hub)
    found.alert = await _add_alerts(hub)
    found.benchmark, found.task_run = await _add_benchmark(hub)
    for name in ("continuous integration", "Maria"):
        await create_key(hub, LOCAL, KeySpec(kind="project", name=name, project_id="proj_home"))
    found.key = (await create_key(hub, LOCAL, KeySpec(kind="organization", name="me")))[1]
    return found


async def _add_results(hub: Hub) -> None:
    """Results of a week of which two evenings went badly."""
    dice = random.Random(7)
    now = hub.clock()
    async with hub.database.writing() as connection:
        for number in range(900):
            ago = (900 - number) / 900 * 7 * 86_400
            bad = 2.0 < ago / 86_400 < 2.3 or 4.6 < ago / 86_400 < 4.8
            outcome = "fail" if dice.random() < (0.5 if bad else 0.03) else "pass"
            ours = {"organization_id": LOCAL.organization_id, "project_id": "proj_home", "agent_id": "agent_home_1"}
            more = {"trace_id": f"trc_{number}", "case_id": "case_x", "case_version": 1, "case_key": "a", "trace_revision": 1}
            made = {
                "id": f"res_{number}",
                "outcome": outcome,
                "body": _SAID[outcome],
                "created_at": stamp(now - ago),
                "updated_at": stamp(now - ago),
            }
            await connection.execute(results.insert().values(**ours, **more, **made))


async def _add_alerts(hub: Hub) -> str:
    hook = "https://chat.example.com/hooks/1"
    first = ""
    for name, kind, settings, state in (
        ("Too few answers are right", "pass_rate", {"below": 0.8, "window_s": 7200, "minimum": 5}, "quiet"),
        ("Refunds fail", "failing_case", {"times": 3, "window_s": 86_400}, "firing"),
        ("Traces without tool calls", "missing_evidence", {"above": 0.2, "window_s": 86_400, "minimum": 20}, None),
    ):
        made = await create_alert(hub, LOCAL, NewAlert(project_id="proj_home", name=name, kind=kind, settings=settings, webhook_url=hook))
        async with hub.database.writing() as connection:
            await connection.execute(alert_rules.update().where(alert_rules.c.id == made["id"]).values(state=state))
        first = first or str(made["id"])
    return first


async def _add_benchmark(hub: Hub) -> tuple[str, str]:
    """A benchmark with two tasks, published, and two runs of it on the leaderboard."""
    made = await benchmarks.create_benchmark(hub, LOCAL, {"name": "Calls of the clinic", "description": "Appointments made by telephone."})
    for name, claims in (
        (
            "Book an appointment",
            (("greets", "hello", 1, "manner"), ("names the day", "tuesday", 2, "correctness"), ("says goodbye", "goodbye", 1, "manner")),
        ),
        ("Cancel an appointment", (("asks for the name", "your name", 1, "safety"), ("confirms", "cancelled", 3, "correctness"))),
    ):
        task = await tasks.create_task(
            hub, LOCAL, {"benchmark_id": made["id"], "name": name, "task_item": {"instruction": name}, "tags": ["voice"]}
        )
        for label, phrase, weight, axis in claims:
            assertion = {"assert": "voice-transcript", "speaker": "agent", "contains": [phrase]}
            await criteria.create_criterion(
                hub, LOCAL, {"task_id": task["id"], "label": label, "assertion": assertion, "weight": weight, "axis": axis}
            )
    await benchmarks.publish_benchmark(hub, LOCAL, str(made["id"]))
    task_run = ""
    for agent, said in (
        ("clinic-agent 1.4", "Hello, your name please. It is cancelled. See you on Tuesday. Goodbye."),
        ("clinic-agent 1.3", "Hello. See you on Tuesday."),
    ):
        run = await benchmark_runs.create_benchmark_run(hub, LOCAL, {"benchmark_id": made["id"], "version": 1, "agent": agent})
        state = {"voice": {"turns": [{"speaker": "agent", "text": said}]}}
        await benchmark_runs.put_benchmark_run_state(hub, LOCAL, str(run["id"]), state)
        done = await benchmark_runs.complete_benchmark_run(hub, LOCAL, str(run["id"]))
        await benchmark_runs.publish_benchmark_run(hub, LOCAL, str(run["id"]))
        task_run = str(done["task_runs"][0]["id"])
    return str(made["id"]), task_run


def list_pictures(seeded: Seeded) -> list[tuple[str, str, list[tuple[str, int]]]]:
    """Return name, address and looks of each picture."""
    return [
        ("projects", "/ui/", [LIGHT]),
        ("overview", _PROJECT, [LIGHT]),
        ("case", f"{_PROJECT}/cases/case_manners", [LIGHT]),
        ("editor", f"{_PROJECT}/cases/case_manners/edit", [LIGHT]),
        ("traces", f"{_PROJECT}/traces", [LIGHT]),
        ("trace", f"{_PROJECT}/traces/trc_rude", [LIGHT, PHONE]),
        ("labels", f"{_PROJECT}/labels", [DARK]),
        ("run", f"{_PROJECT}/runs/run_6", [LIGHT, DARK, PHONE]),
        ("result", f"{_PROJECT}/runs/run_6/r/att_6_0", [LIGHT]),
        ("compare", f"{_PROJECT}/compare?runs=run_5,run_6", [LIGHT]),
        ("alert", f"{_PROJECT}/alerts/{seeded.alert}", [LIGHT, DARK, PHONE]),
        ("settings", f"{_PROJECT}/settings", [LIGHT]),
        ("benchmark", f"/ui/benchmarks/{seeded.benchmark}", [LIGHT]),
        ("task-run", f"/ui/task-runs/{seeded.task_run}", [LIGHT]),
        ("keys", "/ui/keys", [LIGHT]),
        ("health", "/ui/health", [LIGHT]),
    ]


def name_picture(name: str, scheme: str, width: int) -> str:
    """Return the name of the file of a picture."""
    return f"{name}{'-dark' if scheme == 'dark' else ''}{'-phone' if width < 600 else ''}.png"


def take_pictures(address: str, seeded: Seeded, folder: Path) -> None:
    """Open each page as a person does, and keep what is seen."""
    from playwright.sync_api import sync_playwright  # only here: a tool for this script and for live tests

    with sync_playwright() as started:
        browser = launch_chromium(started)
        for scheme, width in (LIGHT, DARK, PHONE):
            looks: Any = {"color_scheme": scheme, "viewport": {"width": width, "height": _HEIGHT}}
            context = browser.new_context(base_url=address, locale="en-GB", timezone_id="Europe/Vienna", reduced_motion="reduce", **looks)
            page = context.new_page()
            page.goto("/ui/login")
            page.fill("#key", seeded.key)
            page.keyboard.press("Enter")
            page.wait_for_url("**/ui/")
            for name, path, wanted in list_pictures(seeded):
                if (scheme, width) not in wanted:
                    continue
                page.goto(path)
                file = folder / name_picture(name, scheme, width)
                page.screenshot(path=str(file))
                if file.stat().st_size > LARGEST:
                    raise SystemExit(f"{file} has more than {LARGEST} bytes")
                print(f"wrote {file}")
            context.close()
        browser.close()


async def _prepare(home: Path) -> Seeded:
    settings = ServeSettings(service=ServiceSettings(home=home), database=f"sqlite:///{home / 'proctor.db'}")
    async with open_hub(settings) as hub:
        return await seed(hub)


def main() -> None:
    """Write every picture."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        seeded = asyncio.run(_prepare(home))
        with serving(home, database=f"sqlite:///{home / 'proctor.db'}") as server:
            take_pictures(server.url, seeded, folder)


if __name__ == "__main__":
    main()
