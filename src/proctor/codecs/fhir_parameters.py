"""The search parameters of FHIR R4, as a table: resource type, kind, parameter and where its values are.

Taken from the SearchParameter resources of FHIR 4.0.1 (HL7, CC0) for the types that clinical and administrative agents work
with. A row reads `name=path,path`; a bare `name` is found under its own name. `path>Type` keeps references to that type only,
`telecom[system=phone]` the elements with that member. A path names a choice element (`effective[x]`) by its stem.
Left out: composite parameters, `near`, `phonetic`, and those defined by extensions.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from datetime import date
from typing import Literal, cast

import msgspec

from proctor.model.evidence import Json

Kind = Literal["token", "reference", "date", "string", "uri", "quantity", "number"]


class Place(msgspec.Struct, frozen=True):
    """The location of a parameter's values: member names from the resource down, and filters."""

    steps: tuple[str, ...]
    target: str | None = None
    """Only references to this type."""
    member: tuple[str, str] | None = None
    """Only elements whose member (first) is the text (second)."""


class Parameter(msgspec.Struct, frozen=True):
    """One search parameter of one resource type."""

    name: str
    kind: Kind
    places: tuple[Place, ...]


def list_parameters(resource_type: str) -> dict[str, Parameter]:
    """Return all parameters of a type by name; a type outside the table only has the common ones."""
    return _list_known(resource_type) if resource_type in _split_blocks() else _list_common()


# Parsed on first use: a search needs one type of the whole table. Types outside it are not cached, since callers choose them.
@functools.cache
def _list_known(resource_type: str) -> dict[str, Parameter]:
    return {**_list_common(), **_parse_rows(_split_blocks()[resource_type])}


def list_resource_types() -> tuple[str, ...]:
    """Return the types in the table."""
    return tuple(_split_blocks())


@functools.cache
def _list_common() -> dict[str, Parameter]:
    return _parse_rows(
        [
            "token: _id=id _tag=meta.tag _security=meta.security",
            "date: _lastUpdated=meta.lastUpdated",
            "uri: _profile=meta.profile _source=meta.source",
            "token: identifier",
        ]
    )


@functools.cache
def _split_blocks() -> dict[str, list[str]]:
    """Return the table split at its headings, wrapped lines joined."""
    by_type: dict[str, list[str]] = {}
    rows: list[str] = []
    for line in _TABLE.splitlines():
        if not line.startswith(" "):
            rows = by_type.setdefault(line, []) if line else []
        elif line.startswith("    "):
            rows[-1] += " " + line.strip()
        else:
            rows.append(line.strip())
    return by_type


def _parse_rows(rows: list[str]) -> dict[str, Parameter]:
    parameters: dict[str, Parameter] = {}
    for row in rows:
        kind, _, entries = row.partition(": ")
        for entry in entries.split():
            name, _, paths = entry.partition("=") if "=" in entry else (entry, "", entry)
            parameters[name] = Parameter(name, cast(Kind, kind), tuple(_parse_place(path) for path in paths.split(",")))
    return parameters


def _parse_place(path: str) -> Place:
    path, _, target = path.partition(">")
    path, _, condition = path.partition("[")
    member = None
    if condition:
        key, _, wanted = condition.rstrip("]").partition("=")
        member = (key, wanted)
    return Place(tuple(path.split(".")), target or None, member)


_TABLE = """
Account
  date: period=servicePeriod
  reference: owner patient=subject>Patient subject
  string: name
  token: identifier status type
AllergyIntolerance
  date: date=recordedDate last-date=lastOccurrence onset=reaction.onset
  reference: asserter patient recorder
  token: category clinical-status=clinicalStatus code=code,reaction.substance criticality identifier
    manifestation=reaction.manifestation route=reaction.exposureRoute severity=reaction.severity type
    verification-status=verificationStatus
Appointment
  date: date=start
  reference: actor=participant.actor based-on=basedOn location=participant.actor>Location patient=participant.actor>Patient
    practitioner=participant.actor>Practitioner reason-reference=reasonReference slot supporting-info=supportingInformation
  token: appointment-type=appointmentType identifier part-status=participant.status reason-code=reasonCode
    service-category=serviceCategory service-type=serviceType specialty status
AppointmentResponse
  reference: actor appointment location=actor>Location patient=actor>Patient practitioner=actor>Practitioner
  token: identifier part-status=participantStatus
CarePlan
  date: activity-date=activity.detail.scheduled date=period
  reference: activity-reference=activity.reference based-on=basedOn care-team=careTeam condition=addresses encounter goal
    instantiates-canonical=instantiatesCanonical part-of=partOf patient=subject>Patient performer=activity.detail.performer replaces
    subject
  token: activity-code=activity.detail.code category identifier intent status
  uri: instantiates-uri=instantiatesUri
CareTeam
  date: date=period
  reference: encounter participant=participant.member patient=subject>Patient subject
  token: category identifier status
Claim
  date: created
  reference: care-team=careTeam.provider detail-udi=item.detail.udi encounter=item.encounter enterer facility insurer
    item-udi=item.udi patient payee=payee.party procedure-udi=procedure.udi provider subdetail-udi=item.detail.subDetail.udi
  token: identifier priority status use
ClaimResponse
  date: created payment-date=payment.date
  reference: insurer patient request requestor
  string: disposition
  token: identifier outcome status use
Communication
  date: received sent
  reference: based-on=basedOn encounter instantiates-canonical=instantiatesCanonical part-of=partOf patient=subject>Patient
    recipient sender subject
  token: category identifier medium status
  uri: instantiates-uri=instantiatesUri
CommunicationRequest
  date: authored=authoredOn occurrence=occurrenceDateTime
  reference: based-on=basedOn encounter patient=subject>Patient recipient replaces requester sender subject
  token: category group-identifier=groupIdentifier identifier medium priority status
Composition
  date: date period=event.period
  reference: attester=attester.party author encounter entry=section.entry patient=subject>Patient
    related-ref=relatesTo.targetReference subject
  string: title
  token: category confidentiality context=event.code identifier related-id=relatesTo.targetIdentifier section=section.code status
    type
Condition
  date: abatement-date=abatementDateTime,abatementPeriod onset-date=onsetDateTime,onsetPeriod recorded-date=recordedDate
  quantity: abatement-age=abatementAge,abatementRange onset-age=onsetAge,onsetRange
  reference: asserter encounter evidence-detail=evidence.detail patient=subject>Patient subject
  string: abatement-string=abatementString onset-info=onsetString
  token: body-site=bodySite category clinical-status=clinicalStatus code evidence=evidence.code identifier severity
    stage=stage.summary verification-status=verificationStatus
Consent
  date: date=dateTime period=provision.period
  reference: actor=provision.actor.reference consentor=performer data=provision.data.reference organization patient
    source-reference=source
  token: action=provision.action category identifier purpose=provision.purpose scope security-label=provision.securityLabel status
Coverage
  reference: beneficiary patient=beneficiary payor policy-holder=policyHolder subscriber
  string: class-value=class.value dependent
  token: class-type=class.type identifier status type
CoverageEligibilityRequest
  date: created
  reference: enterer facility patient provider
  token: identifier status
CoverageEligibilityResponse
  date: created
  reference: insurer patient request requestor
  string: disposition
  token: identifier outcome status
Device
  reference: location organization=owner patient
  string: device-name=deviceName.name,type.coding.display,type.text manufacturer model=modelNumber udi-carrier=udiCarrier.carrierHRF
    udi-di=udiCarrier.deviceIdentifier
  token: identifier status type
  uri: url
DeviceRequest
  date: authored-on=authoredOn event-date=occurrenceDateTime,occurrencePeriod
  reference: based-on=basedOn device=codeReference encounter instantiates-canonical=instantiatesCanonical insurance
    patient=subject>Patient performer prior-request=priorRequest requester subject
  token: code=codeCodeableConcept group-identifier=groupIdentifier identifier intent status
  uri: instantiates-uri=instantiatesUri
DiagnosticReport
  date: date=effective issued
  reference: based-on=basedOn encounter media=media.link patient=subject>Patient performer result
    results-interpreter=resultsInterpreter specimen subject
  token: category code conclusion=conclusionCode identifier status
DocumentReference
  date: date period=context.period
  reference: authenticator author custodian encounter=context.encounter patient=subject>Patient related=context.related
    relatesto=relatesTo.target subject
  string: description
  token: category contenttype=content.attachment.contentType event=context.event facility=context.facilityType format=content.format
    identifier=masterIdentifier,identifier language=content.attachment.language relation=relatesTo.code security-label=securityLabel
    setting=context.practiceSetting status type
  uri: location=content.attachment.url
Encounter
  date: date=period location-period=location.period
  quantity: length
  reference: account appointment based-on=basedOn diagnosis=diagnosis.condition episode-of-care=episodeOfCare
    location=location.location part-of=partOf participant=participant.individual patient=subject>Patient
    practitioner=participant.individual>Practitioner reason-reference=reasonReference service-provider=serviceProvider subject
  token: class identifier participant-type=participant.type reason-code=reasonCode
    special-arrangement=hospitalization.specialArrangement status type
EpisodeOfCare
  date: date=period
  reference: care-manager=careManager>Practitioner condition=diagnosis.condition incoming-referral=referralRequest
    organization=managingOrganization patient
  token: identifier status type
ExplanationOfBenefit
  date: created
  reference: care-team=careTeam.provider claim coverage=insurance.coverage detail-udi=item.detail.udi encounter=item.encounter
    enterer facility item-udi=item.udi patient payee=payee.party procedure-udi=procedure.udi provider
    subdetail-udi=item.detail.subDetail.udi
  string: disposition
  token: identifier status
Flag
  date: date=period
  reference: author encounter patient=subject>Patient subject
  token: identifier
Goal
  date: start-date=startDate target-date=target.dueDate
  reference: patient=subject>Patient subject
  token: achievement-status=achievementStatus category identifier lifecycle-status=lifecycleStatus
HealthcareService
  reference: coverage-area=coverageArea endpoint location organization=providedBy
  string: name
  token: active characteristic identifier program service-category=category service-type=type specialty
ImagingStudy
  date: started
  reference: basedon=basedOn encounter endpoint=endpoint,series.endpoint interpreter patient=subject>Patient
    performer=series.performer.actor referrer subject
  token: bodysite=series.bodySite dicom-class=series.instance.sopClass identifier instance=series.instance.uid
    modality=series.modality reason=reasonCode series=series.uid status
Immunization
  date: date=occurrence reaction-date=reaction.date
  reference: location manufacturer patient performer=performer.actor reaction=reaction.detail reason-reference=reasonReference
  string: lot-number=lotNumber series=protocolApplied.series
  token: identifier reason-code=reasonCode status status-reason=statusReason target-disease=protocolApplied.targetDisease
    vaccine-code=vaccineCode
List
  date: date
  reference: encounter item=entry.item patient=subject>Patient source subject
  string: notes=note.text title
  token: code empty-reason=emptyReason identifier status
Location
  reference: endpoint organization=managingOrganization partof=partOf
  string: address address-city=address.city address-country=address.country address-postalcode=address.postalCode
    address-state=address.state name=name,alias
  token: address-use=address.use identifier operational-status=operationalStatus status type
Medication
  date: expiration-date=batch.expirationDate
  reference: ingredient=ingredient.itemReference manufacturer
  token: code form identifier ingredient-code=ingredient.itemCodeableConcept lot-number=batch.lotNumber status
MedicationAdministration
  date: effective-time=effective
  reference: context device medication=medicationReference patient=subject>Patient performer=performer.actor request subject
  token: code=medicationCodeableConcept identifier reason-given=reasonCode reason-not-given=statusReason status
MedicationDispense
  date: whenhandedover=whenHandedOver whenprepared=whenPrepared
  reference: context destination medication=medicationReference patient=subject>Patient performer=performer.actor
    prescription=authorizingPrescription receiver responsibleparty=substitution.responsibleParty subject
  token: code=medicationCodeableConcept identifier status type
MedicationRequest
  date: authoredon=authoredOn date=dosageInstruction.timing.event
  reference: encounter intended-dispenser=dispenseRequest.performer intended-performer=performer medication=medicationReference
    patient=subject>Patient requester subject
  token: category code=medicationCodeableConcept identifier intended-performertype=performerType intent priority status
MedicationStatement
  date: effective
  reference: context medication=medicationReference part-of=partOf patient=subject>Patient source=informationSource subject
  token: category code=medicationCodeableConcept identifier status
NutritionOrder
  date: datetime=dateTime
  reference: encounter instantiates-canonical=instantiatesCanonical patient provider=orderer
  token: additive=enteralFormula.additiveType formula=enteralFormula.baseFormulaType identifier oraldiet=oralDiet.type status
    supplement=supplement.type
  uri: instantiates-uri=instantiatesUri
Observation
  date: date=effective value-date=valueDateTime,valuePeriod
  quantity: combo-value-quantity=valueQuantity,valueSampledData,component.valueQuantity,component.valueSampledData
    component-value-quantity=component.valueQuantity,component.valueSampledData value-quantity=valueQuantity,valueSampledData
  reference: based-on=basedOn derived-from=derivedFrom device encounter focus has-member=hasMember part-of=partOf
    patient=subject>Patient performer specimen subject
  string: value-string=valueString,valueCodeableConcept.text
  token: category code combo-code=code,component.code combo-data-absent-reason=dataAbsentReason,component.dataAbsentReason
    combo-value-concept=valueCodeableConcept,component.valueCodeableConcept component-code=component.code
    component-data-absent-reason=component.dataAbsentReason component-value-concept=component.valueCodeableConcept
    data-absent-reason=dataAbsentReason identifier method status value-concept=valueCodeableConcept
Organization
  reference: endpoint partof=partOf
  string: address address-city=address.city address-country=address.country address-postalcode=address.postalCode
    address-state=address.state name=name,alias
  token: active address-use=address.use identifier type
Patient
  date: birthdate=birthDate death-date=deceasedDateTime
  reference: general-practitioner=generalPractitioner link=link.other organization=managingOrganization
  string: address address-city=address.city address-country=address.country address-postalcode=address.postalCode
    address-state=address.state family=name.family given=name.given name
  token: active address-use=address.use email=telecom[system=email] gender identifier language=communication.language
    phone=telecom[system=phone] telecom
PaymentNotice
  date: created
  reference: provider request response
  token: identifier payment-status=paymentStatus status
Practitioner
  string: address address-city=address.city address-country=address.country address-postalcode=address.postalCode
    address-state=address.state family=name.family given=name.given name
  token: active address-use=address.use communication email=telecom[system=email] gender identifier phone=telecom[system=phone]
    telecom
PractitionerRole
  date: date=period
  reference: endpoint location organization practitioner service=healthcareService
  token: active email=telecom[system=email] identifier phone=telecom[system=phone] role=code specialty telecom
Procedure
  date: date=performed
  reference: based-on=basedOn encounter instantiates-canonical=instantiatesCanonical location part-of=partOf patient=subject>Patient
    performer=performer.actor reason-reference=reasonReference subject
  token: category code identifier reason-code=reasonCode status
  uri: instantiates-uri=instantiatesUri
Provenance
  date: recorded when=occurredDateTime
  reference: agent=agent.who entity=entity.what location patient=target>Patient target
  token: agent-role=agent.role agent-type=agent.type signature-type=signature.type
QuestionnaireResponse
  date: authored
  reference: author based-on=basedOn encounter part-of=partOf patient=subject>Patient questionnaire source subject
  token: identifier status
RelatedPerson
  date: birthdate=birthDate
  reference: patient
  string: address address-city=address.city address-country=address.country address-postalcode=address.postalCode
    address-state=address.state name
  token: active address-use=address.use email=telecom[system=email] gender identifier phone=telecom[system=phone] relationship
    telecom
RequestGroup
  date: authored=authoredOn
  reference: author encounter instantiates-canonical=instantiatesCanonical participant=action.participant patient=subject>Patient
    subject
  token: code group-identifier=groupIdentifier identifier intent priority status
  uri: instantiates-uri=instantiatesUri
Schedule
  date: date=planningHorizon
  reference: actor
  token: active identifier service-category=serviceCategory service-type=serviceType specialty
ServiceRequest
  date: authored=authoredOn occurrence
  reference: based-on=basedOn encounter instantiates-canonical=instantiatesCanonical patient=subject>Patient performer replaces
    requester specimen subject
  token: body-site=bodySite category code identifier intent performer-type=performerType priority requisition status
  uri: instantiates-uri=instantiatesUri
Slot
  date: start
  reference: schedule
  token: appointment-type=appointmentType identifier service-category=serviceCategory service-type=serviceType specialty status
Specimen
  date: collected=collection.collected
  reference: collector=collection.collector parent patient=subject>Patient subject
  token: accession=accessionIdentifier bodysite=collection.bodySite container=container.type container-id=container.identifier
    identifier status type
Task
  date: authored-on=authoredOn modified=lastModified period=executionPeriod
  reference: based-on=basedOn encounter focus owner part-of=partOf patient=for>Patient requester subject=for
  token: business-status=businessStatus code group-identifier=groupIdentifier identifier intent performer=performerType priority
    status
"""


# FHIR dates as ranges of time, and the comparisons of a search.
# A partial date means the whole range it leaves open: `2026-11` is all of November. Both sides of a comparison are such ranges, the end
# excluded; a Period without an end is unlimited. A time without an offset is read as UTC. Instants are whole microseconds counted from
# the day before year 1, so that the last day of year 9999 has an end too. FHIR leaves `ap` (about) to the implementer: here the ranges
# must overlap after the stated one is widened by a day on both sides.

PREFIXES = ("eq", "ne", "gt", "lt", "ge", "le", "sa", "eb", "ap")

_SECOND = 1_000_000
"""Microseconds, the finest resolution of FHIR instants."""
_DAY = 86_400 * _SECOND
_DATE = re.compile(
    r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2})(?:T([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?)?)?"
)


class Range(msgspec.Struct, frozen=True):
    """A stretch of time, the end excluded."""

    start: float
    end: float


_EVER = Range(float("-inf"), float("inf"))


def read_date(text: str) -> Range | None:
    """Return the range of a FHIR date, dateTime or instant, or None for other text."""
    if (match := _DATE.fullmatch(text)) is None:
        return None
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    try:
        start = date(int(year), int(month or 1), int(day or 1)).toordinal() * _DAY
    except ValueError:
        return None
    if month is None:
        return Range(start, _find_first_day(int(year) + 1, 1))
    if day is None:
        return Range(start, _find_first_day(int(year) + (month == "12"), int(month) % 12 + 1))
    if hour is None:
        return Range(start, start + _DAY)
    if int(hour) > 23 or int(minute) > 59 or int(second or 0) > 60:
        return None
    start += (int(hour) * 3600 + int(minute) * 60 - _read_offset(offset)) * _SECOND
    if second is None:
        return Range(start, start + 60 * _SECOND)
    # A leap second is the last second of its minute.
    start += min(int(second), 59) * _SECOND
    if fraction is None:
        return Range(start, start + _SECOND)
    # A fraction of three digits means a millisecond, which is a range too.
    start += int(fraction[:6].ljust(6, "0"))
    return Range(start, start + 10 ** max(0, 6 - len(fraction)))


def _find_first_day(year: int, month: int) -> int:
    if year > 9999:
        return (date(9999, 12, 31).toordinal() + 1) * _DAY
    return date(year, month, 1).toordinal() * _DAY


def _read_offset(text: str | None) -> int:
    if text is None or text == "Z":
        return 0
    seconds = int(text[1:3]) * 3600 + int(text[4:6]) * 60
    return seconds if text[0] == "+" else -seconds


def iterate_ranges(value: Json) -> Iterator[Range]:
    """Yield the ranges of a date element: a date as text, a Period, or a Timing (its events, else its outer bounds)."""
    if isinstance(value, str):
        found = read_date(value)
        if found is not None:
            yield found
    elif isinstance(value, dict):
        if "start" in value or "end" in value:
            yield _read_period(value)
        for event in value.get("event") or () if isinstance(value.get("event"), list) else ():
            found = read_date(event) if isinstance(event, str) else None
            if found is not None:
                yield found
        repeat = value.get("repeat")
        bounds = repeat.get("boundsPeriod") if isinstance(repeat, dict) else None
        if isinstance(bounds, dict):
            yield _read_period(bounds)


def _read_period(value: dict[str, Json]) -> Range:
    start = read_date(value["start"]) if isinstance(value.get("start"), str) else None
    end = read_date(value["end"]) if isinstance(value.get("end"), str) else None
    return Range((start or _EVER).start, (end or _EVER).end)


def _equal(stated: Range, actual: Range) -> bool:
    return stated.start <= actual.start and actual.end <= stated.end


def _is_about(stated: Range, actual: Range) -> bool:
    return actual.start < stated.end + _DAY and stated.start - _DAY < actual.end


COMPARISONS: dict[str, Callable[[Range, Range], bool]] = {
    "eq": _equal,
    "ne": lambda stated, found: not _equal(stated, found),
    "gt": lambda stated, found: found.end > stated.end,
    "lt": lambda stated, found: found.start < stated.start,
    "ge": lambda stated, found: found.end > stated.end or _equal(stated, found),
    "le": lambda stated, found: found.start < stated.start or _equal(stated, found),
    "sa": lambda stated, found: found.start >= stated.end,
    "eb": lambda stated, found: found.end <= stated.start,
    "ap": _is_about,
}
"""The comparison of each prefix: (stated range, range found in the resource)."""
