"""Agreement of judges with human labels, and the labels as a file for calibration."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Annotated, Literal, TypedDict, cast

import msgspec

from proctor.model.evidence import Json
from proctor.model.judgement import JudgedAnswer, LabelledAnswer, Opinion
from proctor.model.typed import make_json_decoder
from proctor.scoring.agreement import Figure, count_table, with_intervals
from proctor.scoring.calibration import Calibration, summarize_calibration
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import query_visible
from proctor.service.access.projects import get_project
from proctor.service.hub import Hub
from proctor.service.labels.claims import JudgedClaim
from proctor.service.resource import about, operation, show_row
from proctor.store.sql.compressed_json import expand_bytes
from proctor.store.sql.pages import Row, fetch_all
from proctor.store.sql.tables import annotation_rows

MOST_LABELS = 2_000
"""The newest labels of a project that are used and exported."""
_CLAIM = make_json_decoder(JudgedClaim)


class Reviewers(msgspec.Struct, frozen=True, kw_only=True):
    """How far people agree with each other, over questions that several of them passed or failed."""

    count: int
    """Authors of labels."""
    questions: int
    agreed: int
    figures: dict[str, Figure]
    """Of pairs of labels; empty without questions."""
    disputed: list[str]
    """For each question without agreement, the id of its newest label."""


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """The labels of a project with the judge's opinions."""

    judged: list[JudgedAnswer]
    """Oldest first, each question once, with the label of most reviewers."""
    lines: list[dict[str, Json]]
    """The same as lines of a label file, each in the form of its claim."""
    repeated: int
    """Labels replaced by a later label of the same question and author."""
    tied: int
    """Questions that are not counted: as many reviewers passed as failed the answer."""
    reviewers: Reviewers
    skipped: int
    more: bool
    """Whether there are older labels that were not used."""
    threshold: float | None
    """The most common minimum passing score; none if the judge answers yes or no."""
    calibration: Calibration | None
    """None without labels."""


class FigureShown(TypedDict):
    """A figure with its interval."""

    value: float | None
    low: float | None
    high: float | None


class ReviewersShown(TypedDict):
    """Agreement of people with each other."""

    count: Annotated[int, about("authors of labels")]
    questions: Annotated[int, about("questions that several of them passed or failed")]
    agreed: int
    figures: Annotated[dict[str, FigureShown], about("accuracy and kappa of pairs of labels, each with its interval of 95 % confidence")]


class AgreementShown(TypedDict):
    """Agreement of the judge with human labels."""

    labels: int
    repeated: Annotated[int, about("labels replaced by a later label of the same question and author")]
    tied: Annotated[int, about("questions that are not counted: as many reviewers passed as failed the answer")]
    skipped: int
    more: Annotated[bool, about("whether there are older labels that were not used")]
    threshold: Annotated[float | None, about("minimum passing score; none: the judge answers yes or no")]
    best_threshold: Annotated[float | None, about("the threshold with the best agreement, if there are enough labels")]
    undecided: int
    strength: str | None
    reviewers: ReviewersShown
    figures: Annotated[dict[str, FigureShown], about("accuracy, kappa and others, each with its interval of 95 % confidence")]


@operation("annotations", "GET /api/annotations/agreement")
async def get_agreement(hub: Hub, caller: Caller, project_id: str) -> AgreementShown:
    """Compute the agreement of the judge with the labels of a project."""
    agreement = await read_agreement(hub, caller, project_id)
    known, reviewers = agreement.calibration, agreement.reviewers
    return show_row(
        AgreementShown,
        msgspec.structs.asdict(agreement),
        labels=len(agreement.judged),
        reviewers=show_row(ReviewersShown, msgspec.structs.asdict(reviewers), figures=_show_figures(reviewers.figures)),
        best_threshold=None if known is None or known.cut is None else known.cut.threshold,
        undecided=0 if known is None else sum(known.undecided.values()),
        strength=None if known is None else known.strength,
        figures={} if known is None else _show_figures(known.figures),
    )


async def read_agreement(hub: Hub, caller: Caller, project_id: str, *, figures: bool = True) -> Agreement:
    """Return the agreement of the judge with the labels of a project; without `figures` only the labels."""
    await get_project(hub, caller, project_id)
    query = query_visible(annotation_rows, caller, project_id=project_id).where(annotation_rows.c.body.is_not(None))
    newest = query.order_by(annotation_rows.c.created_at.desc(), annotation_rows.c.id.desc()).limit(MOST_LABELS + 1)
    async with hub.database.reading() as connection:
        rows: list[Row] = await fetch_all(connection, newest.where(annotation_rows.c.label.is_not(None)))
    return await asyncio.to_thread(_compute_agreement, rows, figures)


def write_labels(agreement: Agreement) -> bytes:
    """Return the labels as lines of JSON, as `proctor judge calibrate` reads them."""
    return b"".join(msgspec.json.encode(line) + b"\n" for line in agreement.lines)


def _compute_agreement(rows: list[Row], figures: bool) -> Agreement:
    has_more = len(rows) > MOST_LABELS
    votes: dict[bytes, dict[str, tuple[Row, JudgedClaim]]] = {}
    repeated = skipped = 0
    # Newest first: the latest label of each author counts.
    for row in rows[:MOST_LABELS]:
        if row["label"] == "skip":
            skipped += 1
            continue
        claim = _CLAIM.decode(expand_bytes(row["body"]))
        question = msgspec.json.encode([claim.answer, claim.criterion, claim.context])
        repeated += row["author"] in votes.setdefault(question, {})
        votes[question].setdefault(row["author"], (row, claim))
    decided = [answer for by_author in reversed(votes.values()) if (answer := _find_majority(list(by_author.values())))]
    judged = [_make_judged(row, claim) for row, claim in decided]
    # The claims of one attempt were judged together.
    claim_counts = Counter(row["subject_id"] for row, _ in decided)
    lines = [
        _write_line(answer.item, claim) | ({"batch": row["subject_id"]} if claim_counts[row["subject_id"]] > 1 else {})
        for answer, (row, claim) in zip(judged, decided, strict=True)
    ]
    thresholds = Counter(claim.threshold for _, claim in decided if claim.threshold is not None)
    threshold = thresholds.most_common(1)[0][0] if thresholds else None
    calibration = summarize_calibration(judged, threshold=threshold) if judged and figures else None
    return Agreement(
        judged=judged,
        lines=lines,
        repeated=repeated,
        tied=len(votes) - len(decided),
        reviewers=_compare_reviewers([{author: row for author, (row, _) in by_author.items()} for by_author in votes.values()]),
        skipped=skipped,
        more=has_more,
        threshold=threshold,
        calibration=calibration,
    )


def _find_majority(labels: Sequence[tuple[Row, JudgedClaim]]) -> tuple[Row, JudgedClaim] | None:
    """Return the newest label of most reviewers; None if as many passed as failed the answer."""
    passed = [label for label in labels if label[0]["label"] == "pass"]
    failed = [label for label in labels if label[0]["label"] == "fail"]
    return None if len(passed) == len(failed) else max(passed, failed, key=len)[0]


def _compare_reviewers(votes: Sequence[Mapping[str, Row]]) -> Reviewers:
    several = [list(by_author.values()) for by_author in votes if len(by_author) > 1]
    disputed = [rows[0]["id"] for rows in several if len({row["label"] for row in rows}) > 1]
    labels = [[by_author[author]["label"] == "pass" for author in sorted(by_author)] for by_author in votes if len(by_author) > 1]
    pairs = [pair for each in labels for pair in combinations(each, 2)]
    figures = with_intervals(count_table(pairs)) if pairs else {}
    return Reviewers(
        count=len({author for by_author in votes for author in by_author}),
        questions=len(several),
        agreed=len(several) - len(disputed),
        figures={name: figures[name] for name in ("accuracy", "kappa") if name in figures},
        disputed=disputed,
    )


def _write_line(item: LabelledAnswer, claim: JudgedClaim) -> dict[str, Json]:
    line: dict[str, Json] = {"answer": item.answer, "criterion": item.criterion, "label": item.label}
    line |= {} if item.context is None else {"context": item.context}
    if claim.line is not None:
        # A claim with a forbidden criterion passes if the criterion is not met.
        line = {**claim.line, "label": item.label != claim.forbidden}
    return {**line, "id": item.id, **({"why": item.why} if item.why else {})}


def _make_judged(row: Row, claim: JudgedClaim) -> JudgedAnswer:
    # A label of a forbidden criterion is inverted: a pass means that the criterion is not met.
    item = LabelledAnswer(
        id=row["id"],
        answer=claim.answer,
        criterion=claim.criterion,
        context=claim.context,
        label=(row["label"] == "pass") != claim.forbidden,
        why=row["note"],
    )
    outcome = cast(Literal["pass", "fail", "error"], claim.outcome)
    if claim.forbidden and outcome != "error":
        outcome = "fail" if outcome == "pass" else "pass"
    details: dict[str, Json] = {"judge": claim.judge} if claim.judge else {}
    score = 1 - claim.score if claim.forbidden else claim.score
    return JudgedAnswer(item=item, opinion=Opinion(outcome=outcome, score=score, reason=claim.reason, code=claim.code, details=details))


def count_labels(agreement: Agreement) -> dict[str, int]:
    """Return the number of passed and failed answers."""
    passes = sum(answer.item.label for answer in agreement.judged)
    return {"pass": passes, "fail": len(agreement.judged) - passes}


def _show_figures(figures: Mapping[str, Figure]) -> dict[str, FigureShown]:
    shown: dict[str, FigureShown] = {}
    for name, figure in figures.items():
        low, high = (None, None) if figure.interval is None else (figure.interval.low, figure.interval.high)
        shown[name] = {"value": figure.value, "low": low, "high": high}
    return shown
