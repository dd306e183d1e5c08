"""Where things stand in a FHIR store: its resources one by one, and the elements that a search parameter looks at."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import msgspec

from proctor.codecs.fhir_matching import find_reference_text, find_reference_type
from proctor.codecs.fhir_parameters import Parameter, Place
from proctor.errors import CheckFault
from proctor.model.evidence import Json

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
"""Values of one search parameter in one resource; lists inside lists multiply."""
_MOST_BUNDLES = 100
"""Bundles inside each other that are opened."""
# The types a choice element (`effective[x]`) ends in.
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


class Found(msgspec.Struct, frozen=True):
    """One resource and its position in the store: `resources[3]`, `resources[0].entry[1].resource`."""

    place: str
    resource: dict[str, Json]

    @property
    def name(self) -> str:
        """`Appointment/17`, or the type alone."""
        kind, key = self.resource.get("resourceType"), self.resource.get("id")
        return f"{kind}/{key}" if isinstance(key, str) else str(kind)


def open_store(resources: Iterable[Json]) -> Iterator[Found]:
    """Yield every resource in order, Bundles replaced by their entries (also a Bundle inside a Bundle, to a depth)."""
    # A stack in place of recursion, as bundles may hold bundles; reversed, so that resources come out in the order of the store.
    waiting = [(f"resources[{index}]", resource, 0) for index, resource in enumerate(resources)]
    waiting.reverse()
    while waiting:
        place, resource, depth = waiting.pop()
        if not isinstance(resource, dict):
            continue
        entries = resource.get("entry")
        if resource.get("resourceType") != "Bundle" or not isinstance(entries, list) or depth >= _MOST_BUNDLES:
            yield Found(place, resource)
            continue
        inner = [
            (f"{place}.entry[{index}].resource", entry.get("resource"), depth + 1)
            for index, entry in enumerate(entries)
            if isinstance(entry, dict)
        ]
        waiting.extend(reversed(inner))


def iterate_values(resource: dict[str, Json], parameter: Parameter) -> Iterator[Json]:
    """Yield the elements a parameter looks at, lists opened, null left out."""
    for place in parameter.places:
        for element in _find_elements(resource, place):
            if place.target is not None and not _may_point_at(element, place.target, resource):
                continue
            if place.member is not None and not (isinstance(element, dict) and element.get(place.member[0]) == place.member[1]):
                continue
            yield element


def _may_point_at(element: Json, target: str, resource: dict[str, Json]) -> bool:
    """Return whether a reference points at a type, or may: one that names none can, unless it is nothing but a text to display."""
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
    inside = (each for each in contained if isinstance(each, dict) and each.get("id") == text[1:])
    return any(each.get("resourceType") == target for each in inside)


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


# The names are those of our own table of parameters, so there are few.
@functools.cache
def _list_choices(stem: str) -> tuple[str, ...]:
    return tuple(stem + choice for choice in _CHOICES)


def iterate_reference_names(resource: dict[str, Json], parameter: Parameter) -> Iterator[str]:
    """Yield what the references at a parameter point at, as `Patient/17`; addresses are read by their last two parts."""
    for element in iterate_values(resource, parameter):
        text = find_reference_text(element)
        kind = find_reference_type(element)
        if text and kind is not None:
            yield f"{kind}/{text.rsplit('/', 1)[-1]}"
