"""Claims about widgets that tools rendered.

A claim is about all observations, or those of one tool. Without any observation in scope every claim fails, because nothing was rendered.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.errors import SpecError
from proctor.model.evidence import Evidence, Render
from proctor.model.json_values import is_finite
from proctor.model.show import show
from proctor.model.verdict import Verdict, failed, missing, passed

_MISSING_RENDERS = missing("widget renders")
_MISSING_TIME = missing("render time of a widget")
_Observed = list[tuple[int, Render]]
"""The renders in scope, with their positions."""


class WidgetRendered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """At least one widget (of a tool) was rendered."""

    tool: str | None = None
    """Only this tool's widgets."""


class WidgetRenderedWithin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The slowest rendered widget (of a tool) took less than a time."""

    ms: float
    """The limit in milliseconds; the bound itself fails."""
    tool: str | None = None
    """Only this tool's widgets."""


class WidgetNoConsoleErrors(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """No widget (of a tool) logged an error to the console."""

    tool: str | None = None
    """Only this tool's widgets."""


def _describe_owner(tool: str | None) -> str:
    return "a widget" if tool is None else f"a widget of {show(tool)}"


def _decide_renders(tool: str | None, decide: Callable[[_Observed], Verdict]) -> Decide:
    """Decide a claim on the renders of a tool; it fails if there are none."""

    def decide_evidence(evidence: Evidence) -> Verdict:
        if evidence.renders is None:
            return _MISSING_RENDERS
        observed = [(index, render) for index, render in enumerate(evidence.renders) if tool is None or render.tool == tool]
        if observed:
            return decide(observed)
        others = sorted({render.tool for render in evidence.renders})
        seen = f"only of {', '.join(show(name) for name in others[:10])}" if others else "none at all"
        reason = f"expected {_describe_owner(tool)}; there is no such render in this run, {seen}"
        return failed(reason, code="no_match", details={"tools": others[:100]})

    return decide_evidence


def _fail_not_rendered(tool: str | None, observed: _Observed) -> Verdict:
    statuses = ", ".join(f"{render.tool}: {render.status}" for _, render in observed[:5])
    pointers = tuple(f"$.renders[{index}]" for index, _ in observed[:100])
    return failed(f"expected {_describe_owner(tool)} to be rendered; found {statuses}", pointers=pointers)


@check("widget_rendered", shorthand="tool", example="widget_rendered: show_map", reads=Reads((), "presence"))
def widget_rendered(spec: WidgetRendered) -> Decide:
    """At least one widget (of a tool) was rendered."""
    ok = passed(f"{_describe_owner(spec.tool)} was rendered")

    def decide(observed: _Observed) -> Verdict:
        return ok if any(render.status == "rendered" for _, render in observed) else _fail_not_rendered(spec.tool, observed)

    return _decide_renders(spec.tool, decide)


@check("widget_rendered_within", shorthand="ms", example="widget_rendered_within: {ms: 500, tool: show_map}", reads=Reads((), "presence"))
def widget_rendered_within(spec: WidgetRenderedWithin) -> Decide:
    """The slowest rendered widget (of a tool) took less than a time."""
    if not (is_finite(spec.ms) and spec.ms > 0):
        raise SpecError(f"ms: expected a number above 0, found {spec.ms}", field="ms")
    ok = passed(f"{_describe_owner(spec.tool)} was rendered in less than {spec.ms:g} ms")

    def decide(observed: _Observed) -> Verdict:
        times = [(render.elapsed_ms, index) for index, render in observed if render.status == "rendered"]
        if not times:
            return _fail_not_rendered(spec.tool, observed)
        known = [(took, index) for took, index in times if took is not None]
        if len(known) < len(times):
            return _MISSING_TIME
        took, slowest = max(known, key=lambda each: each[0])
        if took < spec.ms:
            return ok
        return failed(
            f"expected {_describe_owner(spec.tool)} in less than {spec.ms:g} ms; the slowest took {took:g} ms",
            details={"slowest_ms": took, "limit_ms": spec.ms},
            pointers=(f"$.renders[{slowest}].elapsed_ms",),
        )

    return _decide_renders(spec.tool, decide)


@check("widget_no_console_errors", shorthand="tool", example="widget_no_console_errors: show_map", reads=Reads((), "absence"))
def widget_no_console_errors(spec: WidgetNoConsoleErrors) -> Decide:
    """No widget (of a tool) logged an error to the console."""
    ok = passed(f"{_describe_owner(spec.tool)} logged no error")

    def decide(observed: _Observed) -> Verdict:
        noisy = [(index, render) for index, render in observed if render.console_errors]
        if not noisy:
            return ok
        listed = "; ".join(f"{render.tool}: {show(render.console_errors[0])}" for _, render in noisy[:3])
        return failed(
            f"expected no console errors of {_describe_owner(spec.tool)}; found {listed}",
            details={"errors": [{"tool": render.tool, "errors": list(render.console_errors[:20])} for _, render in noisy[:20]]},
            pointers=tuple(f"$.renders[{index}].console_errors" for index, _ in noisy[:100]),
        )

    return _decide_renders(spec.tool, decide)
