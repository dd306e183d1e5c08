"""`cds_card` by table."""

from __future__ import annotations

from tests.checks.state_tables import verify
from tests.tables import rows


@rows("checks/cases/cds.yaml")
def test_cds_card_decides(row):
    verify("cds_card", row)
