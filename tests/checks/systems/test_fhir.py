"""`fhir_resource` by table."""

from __future__ import annotations

from tests.checks.state_tables import verify
from tests.tables import rows


@rows("checks/cases/fhir.yaml")
def test_fhir_resource_decides(row):
    verify("fhir_resource", row)
