"""Compares one value of a FHIR search parameter with one element, kind by kind (FHIR R4, section 3.1.1.4).

- token: `code`, `system|code`, `|code` (no system), `system|`; compared as written, also its case, except in e-mail addresses
- reference: `Type/id`, a bare `id` (any type), or an address; versions (`/_history/2`) are dropped on both sides
- string: begins with, ignoring case and accents; `:exact` as written; `:contains` anywhere. Names and addresses: any part
- date: ranges, see `fhir_dates`; number, quantity: the stated precision is the tolerance (`100` is 99.5 up to 100.5)
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal, InvalidOperation

import msgspec

from proctor.codecs.fhir_parameters import COMPARISONS, PREFIXES, Kind, Parameter, Place, iterate_ranges, read_date
from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.show import show

Test = Callable[[Json], bool]
"""Whether one element fits."""

_ESCAPE = re.compile(r"\\([\\,|$])")
_NAME_PARTS = ("text", "family", "given", "prefix", "suffix", "line", "city", "district", "state", "postalCode", "country")


def compile_value(kind: Kind, modifier: str | None, value: str, *, field: str) -> Test:
    """Return the test for one value (one of those between commas). A value of the wrong form raises `SpecError`."""
    match kind:
        case "token":
            return _make_description_test(value) if modifier == "text" else _make_token_test(value)
        case "reference":
            return _make_identifier_test(value) if modifier == "identifier" else _make_reference_test(unescape(value), modifier)
        case "date":
            return _make_date_test(value, field)
        case "string":
            return _make_string_test(unescape(value), modifier)
        case "uri":
            address = unescape(value)
            return lambda element: element == address
        case "number":
            return _make_number_test(value, field)
        case "quantity":
            return _make_quantity_test(value, field)


MODIFIERS: dict[Kind, tuple[str, ...]] = {
    "token": ("not", "text"),
    "reference": ("identifier",),
    "date": (),
    "string": ("exact", "contains"),
    "uri": (),
    "number": (),
    "quantity": (),
}
"""Modifiers other than `:missing`; a reference also accepts a resource type (`subject:Patient`)."""


EMAIL = "email"
"""The system of a ContactPoint whose values ignore case."""


def iterate_tokens(element: Json) -> Iterator[tuple[str | None, str]]:
    """Yield system and code of an element: a code, a Coding, a CodeableConcept, an Identifier, a ContactPoint."""
    if isinstance(element, bool):
        yield None, "true" if element else "false"
    elif isinstance(element, str):
        yield None, element
    elif isinstance(element, (int, float)):
        yield None, str(element)
    elif isinstance(element, dict):
        codings = element.get("coding")
        for coding in codings if isinstance(codings, list) else ():
            if isinstance(coding, dict):
                yield from _iterate_system_and_code(coding, "code")
        yield from _iterate_system_and_code(element, "code")
        yield from _iterate_system_and_code(element, "value")


def _iterate_system_and_code(element: dict[str, Json], key: str) -> Iterator[tuple[str | None, str]]:
    code = element.get(key)
    if isinstance(code, str):
        system = element.get("system")
        yield system if isinstance(system, str) and system else None, code
        # Mail servers ignore case in practice; R4 leaves the case of tokens to the server.
        if system == EMAIL and code != code.lower():
            yield EMAIL, code.lower()


def _make_token_test(value: str) -> Test:
    stated, *rest = split_unescaped(value, "|")
    if not rest:
        code = unescape(stated)
        return lambda element: any(_is_code(code, where, found) for where, found in iterate_tokens(element))
    system, code = unescape(stated), unescape("|".join(rest))
    if not code:
        return lambda element: any(where == system for where, _ in iterate_tokens(element))
    wanted = system or None
    # A bare code element has no system of its own: only its definition does, so any stated system may be right.
    return lambda element: any(
        _is_code(code, where, found) and (where == wanted or (wanted is not None and isinstance(element, str)))
        for where, found in iterate_tokens(element)
    )


def _is_code(wanted: str, system: str | None, actual: str) -> bool:
    return actual == wanted or (system == EMAIL and actual == wanted.lower())


def _make_description_test(value: str) -> Test:
    wanted = fold(value)

    def fits(element: Json) -> bool:
        if not isinstance(element, dict):
            return False
        codings = element.get("coding")
        named = [element, *(codings if isinstance(codings, list) else ())]
        words = (entry.get(key) for entry in named if isinstance(entry, dict) for key in ("text", "display"))
        return any(isinstance(word, str) and fold(word).startswith(wanted) for word in words)

    return fits


def find_reference_text(element: Json) -> str | None:
    """Return the target of a Reference (or canonical), without its version."""
    text = element.get("reference") if isinstance(element, dict) else element
    return strip_version(text) if isinstance(text, str) else None


def find_reference_type(element: Json) -> str | None:
    """Return the resource type that a Reference names, if any."""
    text = find_reference_text(element)
    parts = text.split("/") if text else []
    if len(parts) >= 2:
        return parts[-2]
    stated = element.get("type") if isinstance(element, dict) else None
    return stated if isinstance(stated, str) else None


def strip_version(text: str) -> str:
    """Return a reference without its version."""
    # A canonical has its version after a bar, a reference after `_history`.
    return text.partition("/_history/")[0].partition("|")[0]


def _make_reference_test(value: str, of_type: str | None) -> Test:
    wanted = strip_version(value)
    bare = "/" not in wanted and ":" not in wanted
    if bare and of_type is not None:
        wanted, bare = f"{of_type}/{wanted}", False

    def fits(element: Json) -> bool:
        if (reference := find_reference_text(element)) is None:
            return False
        if bare:
            # An id may end a relative reference, an address, or a `urn:uuid:`.
            return reference == wanted or reference.endswith((f"/{wanted}", f":{wanted}"))
        # One side may be an address and the other relative to it.
        is_relative = "://" in wanted and "/" in reference
        return reference == wanted or reference.endswith(f"/{wanted}") or (is_relative and wanted.endswith(f"/{reference}"))

    return fits


def _make_identifier_test(value: str) -> Test:
    fits_token = _make_token_test(value)
    return lambda element: isinstance(element, dict) and isinstance(element.get("identifier"), dict) and fits_token(element["identifier"])


def fold(text: str) -> str:
    """Return text without case and accents."""
    if text.isascii():
        return text.lower()
    return "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char)).casefold()


def iterate_strings(element: Json) -> Iterator[str]:
    """Yield the texts of an element: itself, or every part of a name or address."""
    if isinstance(element, str):
        yield element
    elif isinstance(element, dict):
        for key in _NAME_PARTS:
            part = element.get(key)
            for text in part if isinstance(part, list) else (part,):
                if isinstance(text, str):
                    yield text


def _make_string_test(value: str, modifier: str | None) -> Test:
    if modifier == "exact":
        return lambda element: value in iterate_strings(element)
    wanted = fold(value)
    if modifier == "contains":
        return lambda element: any(wanted in fold(text) for text in iterate_strings(element))
    return lambda element: any(fold(text).startswith(wanted) for text in iterate_strings(element))


def _split_prefix(value: str) -> tuple[str, str]:
    return (value[:2], value[2:]) if value[:2] in PREFIXES else ("eq", value)


def _make_date_test(value: str, field: str) -> Test:
    prefix, text = _split_prefix(value)
    if (stated := read_date(text)) is None:
        raise SpecError(
            f"not a FHIR date: {show(text)}",
            field=field,
            hint="write 2026, 2026-11, 2026-11-15 or 2026-11-15T09:00:00Z",
        )
    compare = COMPARISONS[prefix]
    return lambda element: any(compare(stated, found) for found in iterate_ranges(element))


def _parse_decimal(value: Json) -> Decimal | None:
    if not isinstance(value, str) and not is_number(value):
        return None
    try:
        # Via its text: the binary value of 0.1 has further digits.
        number = Decimal(str(value))
    except (InvalidOperation, ValueError):
        return None
    # Exponents beyond any measurement would make the comparison below huge.
    return number if number.is_finite() and -400 < number.adjusted() < 400 else None


def _make_number_test(value: str, field: str) -> Test:
    prefix, text = _split_prefix(value)
    if (stated := _parse_decimal(text)) is None:
        raise SpecError(f"not a number: {show(text)}", field=field)
    # Half of the last written digit: `100` is 99.5 up to 100.5, `100.0` is 99.95 up to 100.05.
    half = Decimal((0, (5,), int(stated.as_tuple().exponent) - 1))
    low, high = stated - half, stated + half
    # FHIR recommends a tenth of the stated value for `ap`.
    tolerance = abs(stated) / 10
    compare: dict[str, Callable[[Decimal], bool]] = {
        "eq": lambda actual: low <= actual < high,
        "ne": lambda actual: not low <= actual < high,
        "gt": lambda actual: actual > stated,
        "lt": lambda actual: actual < stated,
        "ge": lambda actual: actual >= stated,
        "le": lambda actual: actual <= stated,
        "sa": lambda actual: actual >= high,
        "eb": lambda actual: actual < low,
        "ap": lambda actual: abs(actual - stated) <= tolerance,
    }
    holds = compare[prefix]

    def fits(element: Json) -> bool:
        actual = _parse_decimal(element)
        return actual is not None and holds(actual)

    return fits


def _make_quantity_test(value: str, field: str) -> Test:
    amount, _, unit = value.partition("|")
    system, _, code = unit.partition("|")
    fits_amount = _make_number_test(amount, field)

    def fits(element: Json) -> bool:
        if not isinstance(element, dict) or not fits_amount(element.get("value")):
            return False
        if system and element.get("system") != system:
            return False
        return not code or code in (element.get("code"), element.get("unit"))

    return fits


def split_unescaped(text: str, separator: str) -> list[str]:
    """Return the pieces between unescaped separators; escapes are not changed."""
    pieces: list[str] = []
    start = position = 0
    while position < len(text):
        if text[position] == "\\":
            position += 2
            continue
        if text[position] == separator:
            pieces.append(text[start:position])
            start = position + 1
        position += 1
    pieces.append(text[start:])
    return pieces


def unescape(text: str) -> str:
    r"""Return text without its search escapes: `\,`, `\|`, `\$` and `\\`."""
    return _ESCAPE.sub(r"\1", text) if "\\" in text else text


# --- the resource types of FHIR R4 (4.0.1)

_NAMES = """
Account ActivityDefinition AdverseEvent AllergyIntolerance Appointment AppointmentResponse AuditEvent Basic Binary
BiologicallyDerivedProduct BodyStructure Bundle CapabilityStatement CarePlan CareTeam CatalogEntry ChargeItem ChargeItemDefinition
Claim ClaimResponse ClinicalImpression CodeSystem Communication CommunicationRequest CompartmentDefinition Composition ConceptMap
Condition Consent Contract Coverage CoverageEligibilityRequest CoverageEligibilityResponse DetectedIssue Device DeviceDefinition
DeviceMetric DeviceRequest DeviceUseStatement DiagnosticReport DocumentManifest DocumentReference EffectEvidenceSynthesis Encounter
Endpoint EnrollmentRequest EnrollmentResponse EpisodeOfCare EventDefinition Evidence EvidenceVariable ExampleScenario
ExplanationOfBenefit FamilyMemberHistory Flag Goal GraphDefinition Group GuidanceResponse HealthcareService ImagingStudy Immunization
ImmunizationEvaluation ImmunizationRecommendation ImplementationGuide InsurancePlan Invoice Library Linkage List Location Measure
MeasureReport Media Medication MedicationAdministration MedicationDispense MedicationKnowledge MedicationRequest MedicationStatement
MedicinalProduct MedicinalProductAuthorization MedicinalProductContraindication MedicinalProductIndication
MedicinalProductIngredient MedicinalProductInteraction MedicinalProductManufactured MedicinalProductPackaged
MedicinalProductPharmaceutical MedicinalProductUndesirableEffect MessageDefinition MessageHeader MolecularSequence NamingSystem
NutritionOrder Observation ObservationDefinition OperationDefinition OperationOutcome Organization OrganizationAffiliation
Parameters Patient PaymentNotice PaymentReconciliation Person PlanDefinition Practitioner PractitionerRole Procedure Provenance
Questionnaire QuestionnaireResponse RelatedPerson RequestGroup ResearchDefinition ResearchElementDefinition ResearchStudy
ResearchSubject RiskAssessment RiskEvidenceSynthesis Schedule SearchParameter ServiceRequest Slot Specimen SpecimenDefinition
StructureDefinition StructureMap Subscription Substance SubstanceNucleicAcid SubstancePolymer SubstanceProtein
SubstanceReferenceInformation SubstanceSourceMaterial SubstanceSpecification SupplyDelivery SupplyRequest Task TerminologyCapabilities
TestReport TestScript ValueSet VerificationResult VisionPrescription
"""
RESOURCE_TYPES = frozenset(_NAMES.split())


_MOST_VALUES = 10_000
"""The maximum number of values of one search parameter in one resource; nested lists multiply."""
_MOST_BUNDLES = 100
"""The maximum nesting of Bundles."""
# The type suffixes of a choice element (`effective[x]`).
_CHOICES = (
    "DateTime",
    "Period",
    "Timing",
    "Instant",
    "Date",
    "CodeableConcept",
    "Reference",
    "Quantity",
    "String",
    "Boolean",
    "Integer",
    "Decimal",
    "Age",
    "Range",
    "Uri",
)


class PlacedResource(msgspec.Struct, frozen=True):
    """One resource and its position in the store, such as `resources[3]` or `resources[0].entry[1].resource`."""

    place: str
    resource: dict[str, Json]

    @property
    def name(self) -> str:
        """`Appointment/17`, or the type alone."""
        kind, key = self.resource.get("resourceType"), self.resource.get("id")
        return f"{kind}/{key}" if isinstance(key, str) else str(kind)


def open_store(resources: Iterable[Json]) -> Iterator[PlacedResource]:
    """Yield every resource in order, Bundles replaced by their entries (also a Bundle inside a Bundle, to a depth)."""
    # A stack instead of recursion, as bundles may contain bundles; reversed, so that resources come in store order.
    waiting = [(f"resources[{index}]", resource, 0) for index, resource in enumerate(resources)]
    waiting.reverse()
    while waiting:
        place, resource, depth = waiting.pop()
        if not isinstance(resource, dict):
            continue
        entries = resource.get("entry")
        if resource.get("resourceType") != "Bundle" or not isinstance(entries, list) or depth >= _MOST_BUNDLES:
            yield PlacedResource(place, resource)
            continue
        inner = [
            (f"{place}.entry[{index}].resource", entry.get("resource"), depth + 1)
            for index, entry in enumerate(entries)
            if isinstance(entry, dict)
        ]
        waiting.extend(reversed(inner))


def iterate_values(resource: dict[str, Json], parameter: Parameter) -> Iterator[Json]:
    """Yield the elements that a parameter examines, lists flattened, without null."""
    for place in parameter.places:
        for element in _find_elements(resource, place):
            if place.target is not None and not _may_point_at(element, place.target, resource):
                continue
            if place.member is not None and not (isinstance(element, dict) and element.get(place.member[0]) == place.member[1]):
                continue
            yield element


def _may_point_at(element: Json, target: str, resource: dict[str, Json]) -> bool:
    """Return whether a reference points at a type, or may: one that names no type can, unless it only has a display text."""
    kind = find_reference_type(element)
    if kind is not None:
        return kind == target
    if not isinstance(element, dict):
        return True
    text = element.get("reference")
    if not isinstance(text, str):
        return "identifier" in element
    contained = resource.get("contained")
    if not text.startswith("#") or not isinstance(contained, list):
        return True
    targets = (entry for entry in contained if isinstance(entry, dict) and entry.get("id") == text[1:])
    return any(entry.get("resourceType") == target for entry in targets)


def _find_elements(resource: dict[str, Json], place: Place) -> list[Json]:
    current: list[Json] = [resource]
    for step in place.steps:
        following: list[Json] = []
        for element in current:
            if isinstance(element, dict):
                value = _find_member(element, step)
                following.extend(entry for entry in (value if isinstance(value, list) else (value,)) if entry is not None)
        if len(following) > _MOST_VALUES:
            raise CheckFault("search_limit", f"more than {_MOST_VALUES} values of {'.'.join(place.steps)} in one resource")
        current = following
    return current


def _find_member(element: dict[str, Json], name: str) -> Json:
    if name in element:
        return element[name]
    for choice in _list_choices(name):
        if choice in element:
            return element[choice]
    return None


# The names come from our own table of parameters, so there are few.
@functools.cache
def _list_choices(stem: str) -> tuple[str, ...]:
    return tuple(stem + choice for choice in _CHOICES)


def iterate_reference_names(resource: dict[str, Json], parameter: Parameter) -> Iterator[str]:
    """Yield the targets of the references at a parameter, as `Patient/17`; addresses are read by their last two parts."""
    for element in iterate_values(resource, parameter):
        text = find_reference_text(element)
        kind = find_reference_type(element)
        if text and kind is not None:
            yield f"{kind}/{text.rsplit('/', 1)[-1]}"
