"""The real Arize Phoenix and MLflow, installed beside us, write tables of spans: the same evidence as over OTLP."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.batches import make_span_tables
from tests.batches.span_table_checks import check_mlflow, check_phoenix
from tests.foreign import install_from_index
from tests.platforms.install import platforms_folder

pytestmark = [pytest.mark.platform, pytest.mark.timeout(1200)]
PACKAGES = (
    "arize-phoenix==20.26.1",
    "mlflow==3.17.2",
    "opentelemetry-exporter-otlp-proto-http==1.45.1",
    "pandas==3.1.1",
    "pyarrow==25.0.1",
)
CHECKS = {"phoenix": check_phoenix, "mlflow": check_mlflow}


@pytest.mark.parametrize("name", CHECKS)
def test_what_the_installed_client_writes_is_the_evidence_of_otlp(name: str, tmp_path: Path) -> None:
    python = install_from_index(platforms_folder() / "span-tables", *PACKAGES) / "python"
    tables = tmp_path / "tables"
    tables.mkdir()
    done = subprocess.run([python, make_span_tables.__file__, name, tables], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    CHECKS[name](tables, tmp_path)
