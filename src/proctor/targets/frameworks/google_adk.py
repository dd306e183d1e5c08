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
        return _check_end(RunData(document=_write_events(list_members(value, "events"), budget), format="adk"))
    if is_instance_of(value, "google.adk", "Event"):
        why = "one event was returned, which shows the last step only: return all events"
        return RunData(document=_write_events([value], budget), format="adk").mark_calls(why)
    return None


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read the events of a runner."""
    if not are_instances(items, "google.adk", "Event"):
        return None
    run = _check_end(RunData(document=_write_events(items, budget), format="adk"))
    parts = [part for event in run.document for part in (event.get("content") or {}).get("parts") or ()]
    has_call = any("function_call" in part or "function_response" in part for part in parts)
    if not has_call and not any(event.get("author") == "user" for event in run.document):
        # The last event of a run with tools looks like the only event of a run without tools.
        run.mark_calls("these events show no call and not the message, so they may be the last ones only: return the session")
    return run


def _check_end(run: RunData) -> RunData:
    """Check whether the last event is an error: an error without content means that the run failed."""
    last: dict[str, Json] = run.document[-1] if run.document else {}
    code, parts = last.get("error_code"), (last.get("content") or {}).get("parts")
    if code not in (None, "STOP") and not parts:
        run.failed = f"{code}: {last.get('error_message') or 'it does not say more'}"
    elif code not in (None, "STOP") or last.get("interrupted") is True:
        run.mark_all(f"the last event was cut off ({code or 'interrupted'})")
    return run


def _write_events(events: list[object], budget: Budget) -> list[Json]:
    # Without unset fields: a part has a field for every kind of part.
    return [drop_nulls(simplify(event, budget, f"$[{at}]")) for at, event in enumerate(events)]


FRAMEWORK = Framework(name="Google ADK", page="google-adk", packages=("google.adk",), read=read, read_stream=read_stream)
