"""`/ui/...`: the web pages, in front of the same service."""

from __future__ import annotations

from proctor.pages.routes import make_router
from proctor.pages.service_source import ServiceSource

router = make_router(ServiceSource.of_request)
