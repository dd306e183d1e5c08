"""The service as a fixture, on SQLite and, marked `live`, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rest.services import Service


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> Iterator[Service]:
    with Service(database_url, tmp_path) as running:
        yield running
