"""A calibration as JSON, `proctor.calibration/1`. The names and their order are a contract."""

from __future__ import annotations

import msgspec

from proctor.model.evidence import Json
from proctor.model.json_values import write_document
from proctor.model.judgement import JudgedAnswer
from proctor.scoring.agreement import Figure, Table
from proctor.scoring.calibration import Calibration
from proctor.scoring.intervals import Interval

SCHEMA = "proctor.calibration/1"


def render_calibration_json(calibration: Calibration) -> bytes:
    """Return the whole calibration as an indented document."""
    return write_document(write_calibration(calibration))


def write_calibration(calibration: Calibration) -> dict[str, Json]:
    """Return the whole calibration as plain JSON."""
    spent, cut = calibration.spent, calibration.cut
    return {
        "schema": SCHEMA,
        "judge": {"names": spent.judges, "models": spent.models, "prompt_versions": spent.prompts},
        "usage": {"total_tokens": spent.tokens, "cost": spent.cost, "remembered": spent.remembered},
        "threshold": calibration.threshold,
        "items": len(calibration.items),
        "labels": {
            "right": sum(item.item.label for item in calibration.items),
            "wrong": sum(not item.item.label for item in calibration.items),
        },
        "decided": calibration.decided,
        "undecided": calibration.undecided,
        "left_out": calibration.left_out,
        "table": _write_table(calibration.table),
        "figures": {name: _write_figure(figure) for name, figure in calibration.figures.items()},
        "strength": calibration.strength,
        "intervals": {
            "method": "bayesian bootstrap, stratified by label",
            "confidence": calibration.confidence,
            "draws": calibration.draws,
            "seed": calibration.seed,
        },
        "sweep": [
            {"threshold": row.threshold, **row.table.compute_figures(), "table": _write_table(row.table)} for row in calibration.sweep
        ],
        "cut": msgspec.to_builtins(cut) if cut is not None else None,
        "tags": [{**msgspec.structs.asdict(row), "interval": _write_interval(row.interval)} for row in calibration.tags],
        "results": [_write_item(item, scored=calibration.threshold is not None) for item in calibration.items],
    }


def _write_item(answer: JudgedAnswer, *, scored: bool) -> dict[str, Json]:
    item, opinion = answer.item, answer.opinion
    return {
        "id": item.name,
        "file": item.origin.file,
        "line": item.origin.line,
        "answer": item.answer,
        "criterion": item.criterion,
        "context": item.context,
        "label": item.label,
        "tags": item.tags,
        "why": item.why or None,
        "outcome": opinion.outcome,
        "agrees": answer.agrees if answer.decided else None,
        "score": opinion.score if scored and answer.decided else None,
        "reason": opinion.reason,
        "code": opinion.code,
        "details": opinion.details,
    }


def _write_table(table: Table) -> dict[str, int]:
    return {name: getattr(table, name) for name in ("true_pass", "false_fail", "false_pass", "true_fail")}


def _write_figure(figure: Figure) -> dict[str, Json]:
    return {"value": figure.value, "interval": _write_interval(figure.interval)}


def _write_interval(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]
