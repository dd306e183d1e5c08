"""OpenAI models on Azure: chat completions, addressed by deployment.

    https://NAME.openai.azure.com                 /openai/deployments/DEPLOYMENT/chat/completions?api-version=...
    https://NAME.openai.azure.com/openai/v1       /chat/completions, the deployment as the model (the versionless API)

The deployment is the model's name when settings do not say otherwise. The key goes into the header `api-key`.
"""

from __future__ import annotations

from proctor.llm import openai
from proctor.llm.client import Conceded, Dialect
from proctor.llm.ports import ChatRequest
from proctor.llm.settings import ModelSettings, joined, path_part
from proctor.model.evidence import Json

DEFAULT_API_VERSION = "2024-10-21"


def _versionless(base: str) -> bool:
    return base.partition("?")[0].rstrip("/").endswith("/openai/v1")


def _deployment(settings: ModelSettings) -> str:
    return settings.deployment or settings.model


def _url(settings: ModelSettings) -> str:
    base = settings.base_url or ""
    if _versionless(base):
        url = joined(base, "chat/completions")
        version = settings.api_version
    else:
        # The portal shows both `https://NAME.openai.azure.com` and `.../openai`.
        base = base.rstrip("/").removesuffix("/openai")
        url = joined(base, f"openai/deployments/{path_part(_deployment(settings))}/chat/completions")
        version = settings.api_version or DEFAULT_API_VERSION
    if version is None:
        return url
    return f"{url}{'&' if '?' in url else '?'}api-version={path_part(version)}"


def _headers(settings: ModelSettings) -> dict[str, str]:
    return {"api-key": settings.api_key} if settings.api_key else {}


def _body(request: ChatRequest, settings: ModelSettings, conceded: Conceded) -> dict[str, Json]:
    out = openai.body(request, settings, conceded)
    if _versionless(settings.base_url or ""):
        out["model"] = _deployment(settings)
    else:
        del out["model"]
    return out


DIALECT = Dialect(provider="azure", url=_url, headers=_headers, body=_body, reply=openai.reply, instead=openai.DIALECT.instead)
