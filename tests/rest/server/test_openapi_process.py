"""The OpenAPI document that a process of its own makes is the one of the service."""

from __future__ import annotations

import json
import sys

import pytest

from proctor.errors import StoreError
from proctor.rest.process import write_document
from tests.rest.openapi_document import DOCUMENT


@pytest.mark.on_request
@pytest.mark.timeout(60)
async def test_the_document_of_the_process_is_that_of_the_service() -> None:
    assert json.loads(await write_document()) == json.loads(json.dumps(DOCUMENT))


@pytest.mark.timeout(60)
async def test_a_process_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(StoreError, match="the OpenAPI document could not be built"):
        await write_document()
