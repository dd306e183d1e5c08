"""A Verial client for tests: authors over REST, and the objects they usually create."""

from __future__ import annotations

from typing import Any

from tests.rest.services import Service

APPOINTMENT: dict[str, Any] = {
    "assert": "fhir-resource-state",
    "resource_type": "Appointment",
    "search": {"patient": "Patient/john-smith", "status": "booked"},
    "fields": [{"path": "participant.0.actor.display", "expected": "Dr. Rivera"}],
}
PORTAL: dict[str, Any] = {
    "assert": "portal-state-match",
    "correlate_by": {"resource": "prior_auth_requests", "key": "request_id"},
    "assertions": [{"path": "status", "expected": "submitted"}],
}
VOICE: dict[str, Any] = {"assert": "voice-transcript", "speaker": "agent", "contains": ["member ID", "date of birth"]}


def appointment(doctor: str = "Dr. Rivera") -> dict[str, Any]:
    return {
        "resourceType": "Appointment",
        "status": "booked",
        "participant": [{"actor": {"display": doctor}}, {"actor": {"reference": "Patient/john-smith"}}],
    }


def booked(doctor: str = "Dr. Rivera", status: str = "submitted") -> dict[str, Any]:
    """The state of a task whose criteria are `APPOINTMENT` and `PORTAL`."""
    return {
        "fhir": {"resources": [appointment(doctor)]},
        "portal": {"prior_auth_requests": [{"request_id": "R-1", "status": status}]},
    }


class Author:
    """An organization's key (none: the local user) and the objects made with it. Calls must succeed unless a status is given."""

    def __init__(self, service: Service, key: str | None = None) -> None:
        self.service = service
        self.key = key

    def ask(self, method: str, path: str, body: Any = None, *, status: int | None = None, key: str | None = None) -> Any:
        more = {} if body is None else {"json": body}
        answer = self.service.ask(method, path, key=key or self.key, **more)
        assert answer.status_code == status if status is not None else answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def get(self, path: str, **more: Any) -> Any:
        return self.ask("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> Any:
        return self.ask("POST", path, body, **more)

    def benchmark(self, name: str = "Booking", **more: Any) -> dict[str, Any]:
        return self.post("/benchmarks", {"name": name, **more})

    def task(self, benchmark: dict[str, Any], name: str = "book", **more: Any) -> dict[str, Any]:
        return self.post("/tasks", {"benchmark_id": benchmark["id"], "name": name, **more})

    def criterion(self, task: dict[str, Any], assertion: Any = APPOINTMENT, **more: Any) -> dict[str, Any]:
        return self.post("/criteria", {"task_id": task["id"], "label": "booked", "assertion": assertion, **more})

    def published(self, *, tasks: int = 1, **more: Any) -> dict[str, Any]:
        """A published benchmark whose tasks have two criteria each, of weights 2 and 1 on two axes."""
        benchmark = self.benchmark(**more)
        for number in range(tasks):
            task = self.task(benchmark, f"book {number}", task_item={"instruction": f"Book {number}."})
            self.criterion(task, weight=2, axis="correctness")
            self.criterion(task, PORTAL, axis="safety")
        return self.post(f"/benchmarks/{benchmark['id']}/publish")

    def solver_key(self, alias: str = "agent-1") -> str:
        solver = self.post("/solvers", {"alias": alias})
        return self.post(f"/solvers/{solver['id']}/api-keys")["key"]

    def upload(self, task_run_id: str, state: Any, **more: Any) -> Any:
        return self.ask("PUT", f"/task-runs/{task_run_id}/state", state, **more)
