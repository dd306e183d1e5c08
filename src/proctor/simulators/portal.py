"""A payer portal: the wizards of a request for prior authorization, its HTML pages, and how requests are determined.

The first rule that fits a request determines it, at once or after a delay:

    determinations:
      - {procedure_code: '70551', status: approved}
      - {patient_member_id: W9, status: denied, reason: not a member, delay_seconds: 60}
    default_determination: {status: pending}

Without a default a request stays `submitted`. A determination with a delay is made by the first request to the portal after it is over,
since a simulated system does nothing by itself; the state shows it as determined.

The pages are plain HTML without scripts, with a label for everything, for people, browsers and screen readers. All input is escaped.
"""

from __future__ import annotations

import base64
import datetime
import functools
import hashlib
import html
import re
from collections.abc import Iterable
from typing import Annotated

import msgspec

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.show import show
from proctor.simulators.exchange import Response, refuse
from proctor.simulators.seeds import NotRead, ReadBy, read_as, read_word

MOST_TEXT = 4_000
"""Characters of one field."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a form."""

    name: str
    label: str
    hint: str = ""
    required: bool = True
    pattern: str = ""
    """The pattern of the whole text."""
    choices: tuple[tuple[str, str], ...] = ()
    is_long: bool = False


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a wizard."""

    title: str
    fields: tuple[Field, ...]


class Wizard(msgspec.Struct, frozen=True, kw_only=True):
    """The steps to a request."""

    title: str
    subject: str
    """The field with the requested service."""
    steps: tuple[Step, ...]

    def list_fields(self) -> tuple[Field, ...]:
        """Return all fields in order."""
        return tuple(field for step in self.steps for field in step.fields)


_PATIENT = Step(
    title="Patient",
    fields=(Field(name="patient_member_id", label="Member ID", hint="As on the insurance card.", pattern=r"[A-Za-z0-9-]{1,40}"),),
)
_PROVIDER = Field(name="provider_npi", label="NPI of the ordering provider", hint="Ten digits.", pattern=r"[0-9]{10}")
_DIAGNOSIS = Field(
    name="diagnosis_code", label="Diagnosis code (ICD-10)", hint="Such as M54.5.", pattern=r"[A-Za-z][0-9][0-9A-Za-z](\.[0-9A-Za-z]{1,4})?"
)
_URGENCY = Field(name="urgency", label="Urgency", choices=(("standard", "Standard"), ("urgent", "Urgent")))
_NOTES = Field(name="clinical_notes", label="Clinical information", hint="Why it is needed.", required=False, is_long=True)

WIZARDS = {
    "radmd": Wizard(
        title="Radiology prior authorization",
        subject="procedure_code",
        steps=(
            _PATIENT,
            Step(title="Ordering provider", fields=(_PROVIDER,)),
            Step(
                title="Procedure",
                fields=(
                    Field(name="procedure_code", label="Procedure code (CPT)", hint="Such as 70551.", pattern=r"[0-9A-Za-z]{5}"),
                    _DIAGNOSIS,
                ),
            ),
            Step(title="Clinical information", fields=(_URGENCY, _NOTES)),
        ),
    ),
    "covermymeds": Wizard(
        title="Medication prior authorization",
        subject="medication",
        steps=(
            _PATIENT,
            Step(
                title="Medication",
                fields=(
                    Field(name="medication", label="Medication", hint="Name and strength."),
                    Field(name="quantity", label="Quantity", pattern=r"[0-9]{1,6}"),
                    Field(name="days_supply", label="Days of supply", pattern=r"[0-9]{1,4}"),
                ),
            ),
            Step(title="Prescriber", fields=(_PROVIDER,)),
            Step(title="Clinical questions", fields=(_DIAGNOSIS, _URGENCY, _NOTES)),
        ),
    ),
}


def find_problems(fields: tuple[Field, ...], answers: dict[str, str]) -> dict[str, str]:
    """Return the errors in answers, by field."""
    problems: dict[str, str] = {}
    for field in fields:
        value = answers.get(field.name, "").strip()
        if not value:
            if field.required:
                problems[field.name] = f"{field.label}: enter a value"
        elif len(value) > MOST_TEXT:
            problems[field.name] = f"{field.label}: at most {MOST_TEXT} characters"
        elif field.choices and value not in dict(field.choices):
            problems[field.name] = f"{field.label}: choose one of {', '.join(word for word, _ in field.choices)}"
        elif field.pattern and not re.fullmatch(field.pattern, value):
            problems[field.name] = f"{field.label}: {field.hint or 'not of the right form'}"
    return problems


def require_answers(wizard: Wizard, answers: dict[str, str]) -> dict[str, str]:
    """Return the answers to all fields. Raises `Refused` for invalid ones."""
    problems = find_problems(wizard.list_fields(), answers)
    if problems:
        raise refuse(422, "wrong_value", "; ".join(problems.values()), fields=list(problems))
    return {field.name: answers.get(field.name, "").strip() for field in wizard.list_fields()}


STATUSES = ("approved", "denied", "pending", "need_more_info")
KEYS = ("procedure_code", "patient_member_id", "medication")
"""The fields that a rule can match."""
SUBMITTED = "submitted"
REQUEST_KEYS = tuple(
    dict.fromkeys(
        (
            *("request_id", "auth_number", "portal", "status", "reason", "submitted_at", "determined_at"),
            *(field.name for wizard in WIZARDS.values() for field in wizard.list_fields()),
        )
    )
)
"""Fields that the portal sets in a request."""


def _read_delay(value: Json, at: str) -> float:
    if not is_number(value) or not 0 <= value <= 1e7:
        raise SpecError(f"expected seconds, found {show(value)}", field=at)
    return float(value)


class Determination(msgspec.Struct, frozen=True, kw_only=True):
    """How requests are determined: those that match, or all that no rule fits."""

    status: Annotated[str, ReadBy(functools.partial(read_word, among=STATUSES))]
    reason: str = ""
    delay_seconds: Annotated[float, ReadBy(_read_delay)] = 0.0
    match: Annotated[tuple[tuple[str, str], ...], NotRead] = ()


class _Rule(Determination, frozen=True, kw_only=True):
    """A determination as a suite has it, with at least one of the fields that it matches."""

    procedure_code: str | None = None
    patient_member_id: str | None = None
    medication: str | None = None

    def make_determination(self) -> Determination:
        match = tuple((name, value) for name in KEYS if (value := getattr(self, name)) is not None)
        return Determination(status=self.status, reason=self.reason, delay_seconds=self.delay_seconds, match=match)

    def __post_init__(self) -> None:
        if all(getattr(self, name) is None for name in KEYS):
            raise SpecError(f"expected one of {', '.join(KEYS)}")


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """An author's settings of a portal."""

    portal: str = "radmd"
    username: str = "agent"
    password: str = ""
    """Empty: the token of the sandbox."""
    payer: str = "Payer"
    determinations: tuple[Determination, ...] = ()
    default: Determination | None = None

    def determine(self, row: dict[str, Json]) -> Determination | None:
        """Return the first determination that fits a request, else the default."""
        for determination in self.determinations:
            if all(str(row.get(name, "")).casefold() == value.casefold() for name, value in determination.match):
                return determination
        return self.default


SEED_KEYS = ("portal", "username", "password", "payer", "determinations", "default_determination", "patients", "providers", "requests")


def read_setup(members: dict[str, Json], before: Setup) -> Setup:
    """Return the settings of a suite, merged with earlier ones. Raises `SpecError` for invalid ones."""
    default = members.get("default_determination")
    rules = read_as(tuple[_Rule, ...], members.get("determinations"), "determinations")
    return Setup(
        portal=read_word(members.get("portal"), "portal", default=before.portal, among=WIZARDS),
        username=read_word(members.get("username"), "username", default=before.username),
        password=read_word(members.get("password"), "password", default=before.password),
        payer=read_word(members.get("payer"), "payer", default=before.payer),
        determinations=before.determinations + tuple(rule.make_determination() for rule in rules),
        default=before.default if default is None else read_as(Determination, default, "default_determination"),
    )


def apply_determination(row: dict[str, Json], setup: Setup, now: str) -> dict[str, Json]:
    """Return a request in its current state: determined, if a rule fits and the delay is over."""
    if row["status"] != SUBMITTED:
        return row
    determination = setup.determine(row)
    if determination is None or not _is_over(row["submitted_at"], determination.delay_seconds, now):
        return row
    return {**row, "status": determination.status, "reason": determination.reason, "determined_at": now}


def _is_over(since: str, delay_s: float, now: str) -> bool:
    if delay_s <= 0:
        return True
    began, ends = (datetime.datetime.fromisoformat(moment) for moment in (since, now))
    return (ends - began).total_seconds() >= delay_s


def read_moment(value: Json, at: str) -> str:
    """Return a time in the portal's format; one without a zone is in UTC."""
    try:
        moment = datetime.datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise SpecError(f"expected a moment such as 2026-11-16T09:30:00Z, found {show(value)}", field=at) from None
    return value if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC).isoformat()


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:0;color:#1b1b1b;background:#fff}"
    "header{background:#123a5e;color:#fff;padding:.75rem 1.5rem}header a{color:#fff;margin-right:1rem}"
    "main{max-width:46rem;margin:0 auto;padding:1.5rem}label{display:block;font-weight:600;margin-top:1rem}"
    "input,select,textarea{font:inherit;padding:.4rem;width:100%;box-sizing:border-box;border:1px solid #5c5c5c}"
    "button{font:inherit;margin-top:1.25rem;padding:.5rem 1.25rem;background:#123a5e;color:#fff;border:0}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.4rem;border-bottom:1px solid #bbb;overflow-wrap:anywhere}"
    ".problem{color:#8c1010}.hint{color:#444;display:block}dt{font-weight:600}header form{display:inline}"
)

_POLICY = (
    f"default-src 'none'; style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""The pages may share a host with others: they run no scripts, and only use their own styles."""


def escape(value: Json) -> str:
    """Return escaped text for tags and attributes."""
    return html.escape("" if value is None else str(value), quote=True)


def answer_page(title: str, body: str, base: str, *, payer: str, is_inside: bool = True, status: int = 200) -> Response:
    """Return a complete page."""
    links = (
        f'<nav aria-label="Portal"><a href="{escape(base)}/">Home</a><a href="{escape(base)}/requests">Requests</a>'
        f'<a href="{escape(base)}/patients">Patients</a><form method="post" action="{escape(base)}/logout">'
        "<button>Sign out</button></form></nav>"
    )
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)} - {escape(payer)}</title><style>{_STYLE}</style></head>"
        f"<body><header><strong>{escape(payer)} provider portal</strong>{links if is_inside else ''}</header>"
        f"<main><h1>{escape(title)}</h1>{body}</main></body></html>"
    )
    headers = {"content-type": "text/html; charset=utf-8", "cache-control": "no-store", "content-security-policy": _POLICY}
    # With no referrer, browsers send these forms with `Origin: null`, which the service rejects.
    headers["referrer-policy"] = "same-origin"
    return Response(status=status, body=text.encode("utf-8", "replace"), headers=headers)


def redirect(address: str, **headers: str) -> Response:
    """Return a redirect to another page."""
    return Response(status=303, headers={"location": address, **{name.replace("_", "-"): value for name, value in headers.items()}})


def write_problems(problems: Iterable[str]) -> str:
    """Return the problems as an alert for screen readers."""
    items = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
    return f'<div role="alert" class="problem"><p>Please correct the following:</p><ul>{items}</ul></div>' if items else ""


def write_field(field: Field, value: str, problem: str) -> str:
    """Return a field with its label, its hint, and its error."""
    name = escape(field.name)
    described = [f"{name}-hint"] * bool(field.hint) + [f"{name}-problem"] * bool(problem)
    attributes = f' aria-describedby="{" ".join(described)}"' if described else ""
    attributes += ' aria-invalid="true"' if problem else ""
    attributes += " required" if field.required else ""
    if field.choices:
        options = "".join(
            f'<option value="{escape(word)}"{" selected" if word == value else ""}>{escape(text)}</option>' for word, text in field.choices
        )
        control = f'<select id="{name}" name="{name}"{attributes}>{options}</select>'
    elif field.is_long:
        control = f'<textarea id="{name}" name="{name}" rows="5"{attributes}>{escape(value)}</textarea>'
    else:
        control = f'<input id="{name}" name="{name}" value="{escape(value)}"{attributes}>'
    hint = f'<span class="hint" id="{name}-hint">{escape(field.hint)}</span>' if field.hint else ""
    problem_line = f'<span class="problem" id="{name}-problem">{escape(problem)}</span>' if problem else ""
    optional = "" if field.required else " (optional)"
    return f'<label for="{name}">{escape(field.label)}{optional}</label>{hint}{control}{problem_line}'


def write_login(base: str, problem: str) -> str:
    """Return the sign-in form."""
    return (
        f'{write_problems([problem] if problem else [])}<form method="post" action="{escape(base)}/login">'
        '<label for="username">User name</label><input id="username" name="username" autocomplete="username" required>'
        '<label for="password">Password</label>'
        '<input id="password" name="password" type="password" autocomplete="current-password" required><button>Sign in</button></form>'
    )


def write_step(wizard: Wizard, index: int, address: str, answers: dict[str, str], problems: dict[str, str]) -> str:
    """Return one step of a wizard."""
    step = wizard.steps[index]
    fields = "".join(write_field(field, answers.get(field.name, ""), problems.get(field.name, "")) for field in step.fields)
    back = f'<p><a href="{escape(address)}/{index}">Back</a></p>' if index else ""
    return (
        f"<p>Step {index + 1} of {len(wizard.steps) + 1}: {escape(step.title)}</p>{write_problems(problems.values())}"
        f'<form method="post" action="{escape(address)}/{index + 1}" novalidate>{fields}<button>Continue</button></form>{back}'
    )


def write_review(wizard: Wizard, address: str, answers: dict[str, str]) -> str:
    """Return the last step: a review, and the submit button."""
    count = len(wizard.steps)
    listed = write_list((field.label, answers.get(field.name) or "(none)") for field in wizard.list_fields())
    return (
        f"<p>Step {count + 1} of {count + 1}: Review</p>{listed}"
        f'<form method="post" action="{escape(address)}/submit"><button>Submit request</button></form>'
        f'<p><a href="{escape(address)}/{count}">Back</a></p>'
    )


def write_list(pairs: Iterable[tuple[str, Json]]) -> str:
    """Return names and values."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs) + "</dl>"


def write_search(address: str, label: str, value: str) -> str:
    """Return a search form."""
    return (
        f'<form method="get" action="{escape(address)}" role="search"><label for="q">{escape(label)}</label>'
        f'<input id="q" name="q" value="{escape(value)}"><button>Search</button></form>'
    )


def write_table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]], empty: str) -> str:
    """Return a table of HTML cells, or a sentence if there are none."""
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if body else f"<p>{escape(empty)}</p>"
