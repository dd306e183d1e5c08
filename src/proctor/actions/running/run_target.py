"""Makes targets of Python functions that a program hands over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from proctor.actions.running.run_policy import TargetLike
from proctor.errors import InputError
from proctor.model.evidence import Json
from proctor.runner.ports import Target

if TYPE_CHECKING:
    from proctor.targets.capture.otel_capture import Capture


def wrap_function(function: Callable[..., object], *, capture: Capture | None = None) -> Target:
    """Return a Python function as a target. Raises `InputError` for one that cannot be driven."""
    from proctor.targets.local.callable import CallableTarget  # only functions come here

    return CallableTarget(getattr(function, "__name__", "function"), function, capture=capture)


def with_capture(target: TargetLike, capture: Capture | None) -> TargetLike:
    """Return a target that captures what is asked for. Raises `InputError` for one that is no Python function."""
    if capture is None:
        return target
    if isinstance(target, Mapping):
        return {**cast("Mapping[str, Json]", target), "capture": capture}
    if target is None or isinstance(target, str) or (hasattr(target, "run") and hasattr(target, "open")):
        raise InputError(
            "capture is for a Python function that is given as the target; of a target that has a name, "
            "write `capture: otel` beside its `function` in proctor.yaml"
        )
    return wrap_function(cast("Callable[..., object]", target), capture=capture)
