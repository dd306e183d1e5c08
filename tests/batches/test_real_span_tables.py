"""Tables of spans that the real Arize Phoenix and the real MLflow wrote (`make_span_tables.py`): the same evidence as over OTLP."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.batches.span_table_checks import check_mlflow, check_phoenix

TABLES = Path(__file__).parent / "span_tables"
pytestmark = pytest.mark.timeout(60)


def test_the_data_frame_of_phoenix_is_the_evidence_that_was_sent(tmp_path: Path) -> None:
    check_phoenix(TABLES, tmp_path)


def test_the_traces_of_mlflow_are_the_evidence_that_it_sent(tmp_path: Path) -> None:
    check_mlflow(TABLES, tmp_path)
