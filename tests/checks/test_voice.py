"""`voice_said` by table."""

from __future__ import annotations

from tests.checks.state_tables import verify
from tests.tables import rows


@rows("checks/cases/voice.yaml")
def test_voice_said_decides(row):
    verify("voice_said", row)
