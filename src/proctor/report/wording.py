"""The words all reports share: what an outcome, a place, a score and a finding are called.

Everything returned here still holds the text of strangers; each report makes it harmless in its own way. Sentences are of the catalogue
that is given; formats for programs give none, and get English.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proctor.model.account import PART_NAMES, PARTS
from proctor.model.case import Assertion
from proctor.model.cost import TotalCost
from proctor.model.evidence import Cost, Json, Source
from proctor.model.origin import Origin
from proctor.model.result import CaseResult, CaseSummary, Incomplete, MissingAttempts, Unmet
from proctor.model.show import number_words, shorten, show
from proctor.model.verdict import OUTCOMES, Verdict
from proctor.report.catalogue import Catalogue, speak
from proctor.scoring.statistics import count_outcomes, summarize_suite

MARKS = {"pass": "✓", "fail": "✗", "error": "!", "skip": "–"}
GROUPING_TAGS = ("test_dimension", "optimization_target")
"""Tags whose values reports group by."""

_NOT_RECORDED = " not recorded in this evidence"
_BROKE_OFF = "the run did not finish: "
_MOST_LACKING = 4
"""Parts of the evidence that are named as unknown."""


class ReasonParts(msgspec.Struct, frozen=True):
    """A reason of the form `about: expected ..., found ...`, taken apart."""

    about: str
    expected: str
    found: str


def split_reason(reason: str) -> ReasonParts | None:
    """Take a reason apart where that can be done without doubt: one `expected`, one `found`, on one line."""
    if "\n" in reason or reason.count("expected ") != 1:
        return None
    about, expected = reason.split("expected ")
    for separator in (", found ", "; found "):
        if expected.count("found ") == 1 and separator in expected:
            wanted, found = expected.split(separator)
            if wanted and found and (not about or about.endswith(": ")):
                return ReasonParts(about.removesuffix(": "), wanted, found)
    return None


def count_noun(number: int, noun: str) -> str:
    """Return a number with its noun: `1 case`, `2,000 cases`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def count_words(counts: Mapping[str, int], words: Catalogue | None = None) -> str:
    """Return how many came out how: `2 failed, 1 error, 14 passed, 1 skipped`, with what did not happen left out."""
    words = speak(words)
    told = [_count_outcome(name, counts[name], words) for name in ("fail", "error", "pass", "skip") if counts.get(name)]
    return ", ".join(told) or words.say("report.nothing_checked")


def _count_outcome(outcome: str, number: int, words: Catalogue) -> str:
    return f"{words.write_number(number)} {words.say(f'count.{outcome}', count=number)}"


def outcome_word(outcome: str, words: Catalogue) -> str:
    """Return the word of an outcome at the beginning of a line: `PASS`."""
    return words.say(f"word.{outcome}")


def pad_outcome_word(outcome: str, words: Catalogue) -> str:
    """Return the same, as wide as the widest of these words."""
    return f"{outcome_word(outcome, words):<{max(len(outcome_word(each, words)) for each in OUTCOMES)}}"


def grade_word(verdict: str, words: Catalogue) -> str:
    """Return the word for how a case that is scored came out: `partial`."""
    return words.say(f"grade.{verdict}")


def unmet_words(unmet: Unmet, words: Catalogue | None = None) -> str:
    """Return what did not meet: `2 cases without evidence, 1 record without a case`; empty where everything met."""
    parts = [
        ("told.without_evidence", unmet.cases_without_evidence),
        ("told.without_case", unmet.records_without_case),
        ("told.not_selected", unmet.records_not_selected),
    ]
    return ", ".join(speak(words).say(name, count=number) for name, number in parts if number)


def incomplete_words(incomplete: Incomplete | None, words: Catalogue | None = None) -> str:
    """Return what a run lacks: `incomplete: 3 of 5 attempts, 2 of 4 cases; the run was interrupted`; empty if nothing."""
    if incomplete is None:
        return ""
    words = speak(words)
    why = words.say(f"ended.{incomplete.ended}")
    if incomplete.attempts_planned is None or incomplete.cases_planned is None:
        return words.say("told.incomplete_of_unknown", count=incomplete.attempts_finished, why=why)
    return words.say(
        "told.incomplete",
        attempts_finished=incomplete.attempts_finished,
        attempts=words.say("told.of_attempts", count=incomplete.attempts_planned),
        cases_finished=incomplete.cases_finished,
        cases=words.say("told.of_cases", count=incomplete.cases_planned),
        why=why,
    )


def missing_words(missing: MissingAttempts, incomplete: Incomplete, words: Catalogue | None = None) -> str:
    """Return why a case has no result, or not all of them: `2 of 5 attempts are missing: the run was interrupted`."""
    words = speak(words)
    why = words.say(f"ended.{incomplete.ended}")
    if missing.planned == 1:
        return words.say("told.only_missing", why=why)
    return words.say("told.missing", lacking=missing.planned - missing.finished, planned=missing.planned, why=why)


def share_words(counts: Mapping[str, int], words: Catalogue | None = None) -> str:
    """Return how many passed: `3 of 5 passed`; what was skipped stands beside it and is not counted."""
    words = speak(words)
    passed, skipped = counts.get("pass", 0), counts.get("skip", 0)
    decided = passed + counts.get("fail", 0) + counts.get("error", 0)
    beside = _count_outcome("skip", skipped, words) if skipped or not decided else ""
    return ", ".join(part for part in (words.say("told.share", passed=passed, decided=decided) if decided else "", beside) if part)


def pass_hat_words(repeated: Sequence[CaseSummary]) -> str:
    """Return how likely k attempts all pass, as a mean over these cases: `pass^2 80.0 %, pass^5 60.0 %`; empty where all of them pass."""
    found = summarize_suite({summary.id: count_outcomes(summary.counts) for summary in repeated}).pass_hat
    shown = [k for k in (2, 3, 5, 10, max(found, default=0)) if k > 1 and k in found]
    return ", ".join(f"pass^{k} {100 * found[k]:.1f} %" for k in dict.fromkeys(shown)) if any(found[k] < 1 for k in shown) else ""


def score_words(score: float, counts: Mapping[str, int], *, undecided: bool = False, words: Catalogue | None = None) -> str:
    """Return `score 0.75`; an error has no score, so beside one, of a case or of a claim in it, the words say what the score is of.

    A full score is left out there: it would say that all is well, of a run in which something was not examined.
    """
    words = speak(words)
    written = words.write_figure(number_words(score))
    if not (undecided or counts.get("error", 0)):
        return words.say("told.score", score=written)
    return words.say("told.score_of_decided", score=written) if score < 1 else ""


def has_undecided_claims(results: Iterable[CaseResult]) -> bool:
    """Return whether a claim of a case that did not pass ended in an error."""
    return any(verdict.outcome == "error" for result in results if result.outcome in ("fail", "error") for verdict in result.verdicts)


def cost_words(cost: Cost | TotalCost | None, words: Catalogue | None = None) -> str:
    """Return `cost 0.0042 USD`, the judge's and the user's apart; `cost unknown: why` where it is not; empty without prices."""
    return "" if cost is None else speak(words).say("told.cost", told=price_words(cost, words))


def price_words(cost: Cost | TotalCost, words: Catalogue | None = None) -> str:
    """Return the same without saying that it is a cost."""
    words = speak(words)
    parts = [("agent", cost.agent), ("judge", cost.judge), ("user", cost.user)]
    if all(value is not None for _, value in parts):
        more = [words.say(f"cost.for_{who}", amount=_write_amount(value, words)) for who, value in parts[1:] if value]
        return words.say("told.and").join([f"{_write_amount(cost.agent, words)} {cost.currency}", *more])
    known = [words.say(f"cost.of_{who}", amount=f"{_write_amount(value, words)} {cost.currency}") for who, value in parts if value]
    if isinstance(cost, TotalCost) and cost.known:
        return words.say("cost.at_least", why=cost.why, amount=f"{_write_amount(cost.known, words)} {cost.currency}")
    return words.say("cost.not_known", why="; ".join(part for part in (", ".join(known), cost.why) if part))


def _write_amount(value: float | None, words: Catalogue) -> str:
    return words.write_figure(f"{value or 0:.4g}")


def weight_words(value: float) -> str:
    """Return a weight as short as it can be written: 2, 0.5."""
    return f"{value:g}"


def evidence_place(source: Source | None) -> str | None:
    """Return where evidence was read from: `file:line`, with its own id where the file alone does not say which."""
    if source is None:
        return None
    place = source.file or ""
    if source.line is not None:
        place = f"{place or '<input>'}:{source.line}"
    if source.id and source.line is None:
        place = f"{place} ({source.id})" if place else source.id
    return place or None


def origin_place(origin: Origin) -> str | None:
    """Return where something was written, if it was read from anywhere: `suite.yaml:12:7`."""
    if origin.file is None and origin.line is None:
        return None
    return str(origin)


def case_title(result: CaseResult, words: Catalogue | None = None) -> tuple[str, str]:
    """Return the id of a case and its name beside it; the name is empty where it adds nothing.

    A record that could not be read belongs to no case: its place stands for the id.
    """
    if not result.case.id:
        return evidence_place(result.source) or speak(words).say("told.no_case"), result.case.name
    return summary_title(result.case.id, result.case.name, words)


def summary_title(case_id: str, name: str, words: Catalogue | None = None) -> tuple[str, str]:
    """Return the same as `case_title`, where only id and name are known."""
    return case_id or speak(words).say("told.no_case"), "" if name == case_id else name


def assertion_title(assertion: Assertion, words: Catalogue | None = None) -> str:
    """Return what an assertion is called: its label, else its id, else its check; the turn it is about goes first."""
    title = assertion.label.strip() or assertion.id or assertion.check
    return title if assertion.turn is None else f"{speak(words).say('told.turn', number=assertion.turn + 1)} · {title}"


def join_title_and_reason(assertion: Assertion, reason: str, words: Catalogue | None = None) -> str:
    """Return `title: reason`; a title that is a sentence loses its full stop."""
    return f"{assertion_title(assertion, words).removesuffix('.')}: {reason}"


def assertion_notes(assertion: Assertion, verdict: Verdict, words: Catalogue | None = None) -> str:
    """Return what Mibo calls the assertion, how it counts and why it was not decided; empty for a plain one."""
    words = speak(words)
    notes = [
        shorten(" ".join(assertion.rule.values()), 80) if "target" in assertion.rule else "",
        words.say("told.advisory") if assertion.advisory else "",
        words.say("told.required") if assertion.required else "",
        words.say("told.score", score=words.write_figure(number_words(verdict.score))) if 0 < verdict.score < 1 else "",
        verdict.code or "",
    ]
    return ", ".join(note for note in notes if note)


def case_remark(result: CaseResult, words: Catalogue | None = None) -> str | None:
    """Return why the case as a whole has its outcome, where its assertions do not say so."""
    if result.reason:
        return f"{result.reason} [{result.code}]" if result.code else result.reason
    if result.code:
        return result.code
    if not result.case.assertions:
        return speak(words).say("told.nothing_asserted")
    return None


def unknown_words(result: CaseResult, run_id: str = "", words: Catalogue | None = None) -> tuple[str, str] | None:
    """Say which parts of the evidence a case lacks, and the command that shows what was read, or None where it lacks none.

    `run_id` is the run that the result is of. What no evidence could have, such as prices, is not told here: the claim says it.
    """
    lacking: dict[str, None] = {}
    for verdict in result.verdicts:
        if verdict.code != "missing_evidence":
            continue
        told = verdict.details.get("unknown", verdict.details.get("not_known"))
        if isinstance(told, dict):
            lacking.update((PART_NAMES[part], None) for part in PARTS if part in told)
        elif verdict.reason.endswith(_NOT_RECORDED):
            lacking[verdict.reason.removesuffix(_NOT_RECORDED)] = None
    if not lacking:
        return None
    words = speak(words)
    names = [words.say_known("part", name) for name in lacking]
    more = f" {words.say('run.and_more', count=len(names) - _MOST_LACKING)}" if len(names) > _MOST_LACKING else ""
    how = f"proctor show {run_id or 'RUN'} --evidence" if result.source is None else "proctor check ... --explain"
    return words.say("told.not_known", parts=f"{', '.join(names[:_MOST_LACKING])}{more}"), how


def why_words(why: str, words: Catalogue) -> str:
    """Return why a part of the evidence is unknown: what holds for all evidence in a language, what its reader says as it was said."""
    if why.startswith(_BROKE_OFF):
        return words.say("told.broke_off", error=why.removeprefix(_BROKE_OFF))
    return words.say_known("why", why)


def skip_words(reason: str) -> str:
    """Return why something was skipped, without saying twice that it was."""
    return reason.removeprefix("skipped: ")


def unmatched_words(record: Json, words: Catalogue | None = None) -> str:
    """Return one line about evidence that no case of the suite answers to."""
    if not isinstance(record, dict):
        return show(record)
    line = record.get("line")
    source = Source(
        file=record["file"] if isinstance(record.get("file"), str) else None,
        line=line if isinstance(line, int) else None,
        id=record["id"] if isinstance(record.get("id"), str) else None,
    )
    place = evidence_place(source)
    case = record.get("case")
    named = speak(words).say("told.names_case", case=show(case, 80)) if case is not None else ""
    return ": ".join(part for part in (place, named) if part) or show(record)
