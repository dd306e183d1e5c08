"""OpenAI models on Azure: chat completions, addressed by deployment.

    https://NAME.openai.azure.com                 /openai/deployments/DEPLOYMENT/chat/completions?api-version=...
    https://NAME.openai.azure.com/openai/v1       /chat/completions, the deployment as the model (the versionless API)

The deployment is the model's name when settings do not say otherwise. The key goes into the header `api-key`.
"""

from __future__ import annotations

from proctor.llm import openai
from proctor.llm.client import ConcededParts, Dialect
from proctor.llm.ports import ChatRequest
from proctor.llm.settings import ModelSettings, join_url, quote_path_part
from proctor.model.evidence import Json

DEFAULT_API_VERSION = "2024-10-21"


def _is_versionless(base: str) -> bool:
    return base.partition("?")[0].rstrip("/").endswith("/openai/v1")


def _make_url(settings: ModelSettings) -> str:
    base = settings.base_url or ""
    if _is_versionless(base):
        url = join_url(base, "chat/completions")
        version = settings.api_version
    else:
        # The portal shows both `https://NAME.openai.azure.com` and `.../openai`.
        base = base.rstrip("/").removesuffix("/openai")
        url = join_url(base, f"openai/deployments/{quote_path_part(settings.deployment or settings.model)}/chat/completions")
        version = settings.api_version or DEFAULT_API_VERSION
    if version is None:
        return url
    return f"{url}{'&' if '?' in url else '?'}api-version={quote_path_part(version)}"


def _write_body(request: ChatRequest, settings: ModelSettings, conceded: ConcededParts) -> dict[str, Json]:
    out = openai.write_body(request, settings, conceded)
    if _is_versionless(settings.base_url or ""):
        out["model"] = settings.deployment or settings.model
    else:
        del out["model"]
    return out


DIALECT = Dialect(
    provider="azure",
    url=_make_url,
    headers=lambda settings: {"api-key": settings.api_key} if settings.api_key else {},
    body=_write_body,
    reply=openai.read_reply,
    instead=openai.DIALECT.instead,
)
