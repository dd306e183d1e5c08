"""Span tables written by the real Arize Phoenix, MLflow, and SDKs of Langfuse and LangSmith give the same evidence as OTLP."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.batches import make_sdk_tables, make_span_tables
from tests.batches.span_table_checks import check_langfuse, check_langsmith, check_mlflow, check_phoenix
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
SDKS = (
    "langfuse==5.0.4",
    "langsmith==0.14.17",
    "openai==3.49.0",
    "opentelemetry-exporter-otlp-proto-http==1.45.1",
    "pandas==3.1.1",
    "pyarrow==25.0.1",
)
CHECKS = {"phoenix": check_phoenix, "mlflow": check_mlflow}
SDK_CHECKS = {"langfuse": check_langfuse, "langsmith": check_langsmith}


@pytest.mark.parametrize("name", CHECKS)
def test_tables_of_the_installed_client_give_the_evidence_of_otlp(name: str, tmp_path: Path) -> None:
    python = install_from_index(platforms_folder() / "span-tables", *PACKAGES) / "python"
    CHECKS[name](_make_tables(python, make_span_tables.__file__, name, tmp_path), tmp_path)


@pytest.mark.parametrize("name", SDK_CHECKS)
def test_traces_of_the_installed_sdk_give_the_evidence_of_otlp(name: str, tmp_path: Path) -> None:
    python = install_from_index(platforms_folder() / "span-sdks", *SDKS) / "python"
    SDK_CHECKS[name](_make_tables(python, make_sdk_tables.__file__, name, tmp_path), tmp_path)


def _make_tables(python: Path, script: str, name: str, folder: Path) -> Path:
    tables = folder / "tables"
    tables.mkdir()
    done = subprocess.run([python, script, name, tables], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    return tables
