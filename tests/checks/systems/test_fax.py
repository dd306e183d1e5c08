"""`fax_document` by table."""

from __future__ import annotations

from tests.checks.state_tables import verify
from tests.tables import rows


@rows("checks/cases/fax.yaml")
def test_fax_document_decides(row):
    verify("fax_document", row)
