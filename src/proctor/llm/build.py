"""From settings to a model that can be talked to."""

from __future__ import annotations

from collections.abc import Callable

from proctor.errors import SpecError
from proctor.llm.client import Dialect, HttpModel
from proctor.llm.ports import ChatModel
from proctor.llm.settings import ModelSettings, check_settings, is_loopback
from proctor.model.show import nearest, show

__all__ = ["ALIASES", "PROVIDERS", "ModelSettings", "build_model"]


def _openai() -> Dialect:
    from proctor.llm.openai import DIALECT  # each provider is loaded when it is the one

    return DIALECT


def _responses() -> Dialect:
    from proctor.llm.responses import DIALECT

    return DIALECT


def _anthropic() -> Dialect:
    from proctor.llm.anthropic import DIALECT

    return DIALECT


def _azure() -> Dialect:
    from proctor.llm.azure import DIALECT

    return DIALECT


_DIALECTS: dict[str, Callable[[], Dialect]] = {
    "openai": _openai,
    "openai_responses": _responses,
    "anthropic": _anthropic,
    "azure": _azure,
}

PROVIDERS = (*_DIALECTS, "scripted")
"""The words `provider` may be."""

ALIASES = {"responses": "openai_responses", "azure_openai": "azure", "azure-openai": "azure", "openai-responses": "openai_responses"}
"""Other spellings of them; MCPLab writes `azure_openai`."""


def build_model(settings: ModelSettings) -> ChatModel:
    """The model that settings describe. Raises `SpecError` for settings that cannot work; nothing is sent yet."""
    provider = ALIASES.get(settings.provider, settings.provider)
    if provider not in PROVIDERS:
        near = nearest(provider, (*PROVIDERS, *ALIASES))
        hint = f"; nearest: {', '.join(repr(word) for word in near)}" if near else ""
        raise SpecError(
            f"unknown provider {show(settings.provider)}, known are {', '.join(PROVIDERS)}{hint}", field="provider", nearest=near
        )
    check_settings(settings)
    if provider == "scripted":
        from proctor.llm.scripted import ScriptedModel, read_script  # only tests and offline runs have one

        return ScriptedModel(read_script(settings.replies), name=settings.model or "scripted", by_turn=True)
    _check_complete(provider, settings)
    return HttpModel(_DIALECTS[provider](), settings)


def _check_complete(provider: str, settings: ModelSettings) -> None:
    if not settings.model and not (provider == "azure" and settings.deployment):
        raise SpecError(f"a model of {provider} needs its name", field="model")
    if provider == "azure" and settings.base_url is None:
        raise SpecError("a model on Azure needs the address of its resource, such as https://NAME.openai.azure.com", field="base_url")
    # A server of one's own may do without a key; the providers' own addresses never do.
    open_server = settings.base_url is not None and (provider != "azure" or is_loopback(settings.base_url))
    signed = any(name.lower() in ("authorization", "x-api-key", "api-key") for name in settings.headers)
    if not settings.api_key and not signed and not open_server:
        raise SpecError(f"a model of {provider} needs an API key", field="api_key")
