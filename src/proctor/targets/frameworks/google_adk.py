"""Google ADK: the events of a runner, or a session.

Events of a runner are those of one message, without that message; a session holds the whole conversation.

Tried with google-adk 2.13: `tests/frameworks/returns.yaml`.
"""

from __future__ import annotations

from proctor.model.evidence import Json
from proctor.model.json_values import drop_nulls
from proctor.targets.frameworks.base import Framework, RunData, are_instances, is_instance_of, list_members
from proctor.targets.frameworks.simplify import Budget, simplify


def read(value: object, budget: Budget) -> RunData | None:
    """Read a session, or one event."""
    if is_instance_of(value, "google.adk", "Session"):
        run = RunData(document=_write_events(list_members(value, "events"), budget), format="adk")
        _check_end(run)
        return run
    if is_instance_of(value, "google.adk", "Event"):
        run = RunData(document=_write_events([value], budget), format="adk")
        run.mark_calls("one event was returned, which shows the last step only: return all events")
        return run
    return None


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read the events of a runner."""
    if not are_instances(items, "google.adk", "Event"):
        return None
    run = RunData(document=_write_events(items, budget), format="adk")
    _check_end(run)
    if not any(event.get("author") == "user" or _has_call(event) for event in run.document):
        # The last event of a run with tools looks like the only event of a run without tools.
        run.mark_calls("these events show no call and not the message, so they may be the last ones only: return the session")
    return run


def _check_end(run: RunData) -> None:
    """Check whether the last event is an error: an error without content means that the run failed."""
    last: dict[str, Json] = run.document[-1] if run.document else {}
    code, parts = last.get("error_code"), (last.get("content") or {}).get("parts")
    if code not in (None, "STOP") and not parts:
        run.failed = f"{code}: {last.get('error_message') or 'it does not say more'}"
    elif code not in (None, "STOP") or last.get("interrupted") is True:
        run.mark_all(f"the last event was cut off ({code or 'interrupted'})")


def _has_call(event: Json) -> bool:
    parts = (event.get("content") or {}).get("parts") or ()
    return any("function_call" in part or "function_response" in part for part in parts)


def _write_events(events: list[object], budget: Budget) -> list[Json]:
    # Without unset fields: a part has a field for every kind of part.
    return [drop_nulls(simplify(event, budget, f"$[{at}]")) for at, event in enumerate(events)]


FRAMEWORK = Framework(name="Google ADK", page="google-adk", packages=("google.adk",), read=read, read_stream=read_stream)
