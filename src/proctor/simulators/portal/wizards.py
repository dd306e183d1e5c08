"""The wizards of the portals: the steps and fields of a request for prior authorization."""

from __future__ import annotations

import re

import msgspec

from proctor.simulators.exchange import refuse

MOST_TEXT = 4_000
"""Characters of one field."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a form."""

    name: str
    label: str
    hint: str = ""
    required: bool = True
    pattern: str = ""
    """What the whole text must look like."""
    choices: tuple[tuple[str, str], ...] = ()
    is_long: bool = False


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a wizard."""

    title: str
    fields: tuple[Field, ...]


class Wizard(msgspec.Struct, frozen=True, kw_only=True):
    """The way to a request."""

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


def find_problems(fields: tuple[Field, ...], given: dict[str, str]) -> dict[str, str]:
    """Return what is wrong with answers, by field."""
    problems: dict[str, str] = {}
    for field in fields:
        value = given.get(field.name, "").strip()
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


def require_answers(wizard: Wizard, given: dict[str, str]) -> dict[str, str]:
    """Return the answers to all fields. Raises `Refused` for invalid ones."""
    problems = find_problems(wizard.list_fields(), given)
    if problems:
        raise refuse(422, "wrong_value", "; ".join(problems.values()), fields=list(problems))
    return {field.name: given.get(field.name, "").strip() for field in wizard.list_fields()}
