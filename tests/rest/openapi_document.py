"""The OpenAPI document of the service, made once for all tests that read it: that takes a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proctor.rest.app import make_app
from proctor.rest.settings import ServeSettings
from proctor.service.settings import ServiceSettings

DOCUMENT: dict[str, Any] = make_app(ServeSettings(service=ServiceSettings(home=Path("unused")))).openapi()
