"""The service as a fixture, on SQLite and, marked `live`, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.rest.services import Clock, Service


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> Iterator[Service]:
    with Service(database_url, tmp_path) as running:
        yield running


@pytest.fixture
def clock(service: Service) -> Clock:
    """The clock of the service, which a test may set."""
    found = Clock(service.hub.clock())
    service.app.state.hub = msgspec.structs.replace(service.hub, clock=found)
    return found


@pytest.fixture(scope="module")
def shared_service(shared_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests of a file that only read, or are refused."""
    with Service(shared_database_url, tmp_path_factory.mktemp("home")) as running:
        yield running
