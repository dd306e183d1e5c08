"""`/ui/...`: the web pages."""

from __future__ import annotations

from proctor.pages.routes import make_router
from proctor.pages.service_source import ServiceSource

router = make_router(ServiceSource.of_request)
