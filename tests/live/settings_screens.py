"""One of everything that pages about alerts, keys and benchmarks show, made over REST, and the addresses of those pages."""

from __future__ import annotations

from typing import Any, Protocol


class Place(Protocol):
    """A service with a key and a project."""

    project: str

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the service and return its answer."""
        ...


def list_settings_screens(place: Place) -> list[str]:
    """Fill the place, and return every kind of page about it."""
    project = f"/ui/p/{place.project}"
    alert = place.ask(
        "POST",
        "/api/alerts",
        {"project_id": place.project, "name": "few pass", "kind": "pass_rate", "webhook_url": "https://example.com/h"},
    )["id"]
    place.ask("PUT", f"/api/projects/{place.project}/secrets/TOKEN", {"value": "secret"})
    benchmark = place.ask("POST", "/benchmarks", {"name": "Calls", "description": "By telephone."})["id"]
    task = place.ask(
        "POST", "/tasks", {"benchmark_id": benchmark, "name": "Book", "task_item": {"instruction": "book"}, "tags": ["voice"]}
    )["id"]
    claim = {"assert": "voice-transcript", "speaker": "agent", "contains": ["hello"]}
    criterion = {"task_id": task, "label": "greets", "assertion": claim, "weight": 2, "axis": "manner"}
    place.ask("POST", "/criteria", criterion)
    place.ask("POST", f"/benchmarks/{benchmark}/publish")
    run = place.ask("POST", "/benchmark-runs", {"benchmark_id": benchmark, "agent": "agent 1"})["id"]
    place.ask("PUT", f"/benchmark-runs/{run}/state", {"voice": {"turns": [{"speaker": "agent", "text": "good morning"}]}})
    done = place.ask("POST", f"/benchmark-runs/{run}/complete")
    place.ask("POST", f"/benchmark-runs/{run}/publish")
    solver = place.ask("POST", "/solvers", {"alias": f"solver-{benchmark[-8:]}"})["id"]
    seed = {"orders": {"rows": [{"id": 1, "status": "open"}]}}
    simulator = place.ask("POST", "/simulators", {"name": "orders", "type": "Records", "config": {"seed": seed}})["id"]
    sandbox = place.ask("POST", "/sandboxes", {"simulator_id": simulator})["id"]
    place.ask("PATCH", f"/sandboxes/{sandbox}/records/orders/1", {"status": "paid"})
    return [
        f"{project}/alerts", f"{project}/alerts/new?kind=failing_case", f"{project}/alerts/{alert}", f"{project}/alerts/{alert}/change",
        f"{project}/alerts/{alert}/delete", f"{project}/settings", f"{project}/settings/change", f"{project}/secrets",
        f"{project}/retention",
        "/ui/projects/new",
        "/ui/keys", "/ui/keys/new", "/ui/audit", "/ui/health", "/ui/search?q=shop", "/ui/benchmarks", f"/ui/benchmarks/{benchmark}",
        f"/ui/benchmarks/{benchmark}/change", f"/ui/tasks/{task}", "/ui/criteria/new", f"/ui/benchmark-runs/{run}",
        f"/ui/task-runs/{done['task_runs'][0]['id']}", f"/ui/solvers/{solver}", "/ui/benchmark-runs/new",
        f"/ui/sandboxes/{sandbox}",
    ]  # fmt: skip
