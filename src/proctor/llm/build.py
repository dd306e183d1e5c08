"""Builds a model from settings.

A provider of ours has its own client. Any other that pydantic-ai knows is reached through it, with the extra `providers`.
"""

from __future__ import annotations

import importlib

from proctor.errors import SpecError, install_command
from proctor.llm.client import Dialect, HttpModel
from proctor.llm.connections import MakeTransport
from proctor.llm.ports import ChatModel
from proctor.llm.providers import KNOWN, build_provider_model, is_provider
from proctor.llm.settings import ModelSettings, check_settings, is_loopback
from proctor.model.show import nearest, show

__all__ = ["ALIASES", "PROVIDERS", "ModelSettings", "build_model"]


_MODULES = {"openai": "openai", "openai_responses": "responses", "anthropic": "anthropic", "azure": "azure"}
"""The module of each provider, which has its `DIALECT`; it is loaded only if it is used."""

PROVIDERS = (*_MODULES, "scripted")
"""Our own values of `provider`; `proctor.llm.providers.KNOWN` has the others."""

ALIASES = {"responses": "openai_responses", "azure_openai": "azure", "azure-openai": "azure", "openai-responses": "openai_responses"}
"""Other spellings of them; MCPLab writes `azure_openai`."""


def build_model(settings: ModelSettings, *, transport: MakeTransport | None = None) -> ChatModel:
    """Build the model that settings describe. Raises `SpecError` for invalid settings; nothing is sent yet.

    With a `transport` connections are made by it alone: a proxy, and providers whose own SDK connects, are refused.
    """
    provider = ALIASES.get(settings.provider, settings.provider)
    if provider not in PROVIDERS and not is_provider(provider):
        near = nearest(provider, (*PROVIDERS, *ALIASES, *KNOWN))
        hint = f"; nearest: {', '.join(repr(word) for word in near)}" if near else ""
        known = f"known are {', '.join(PROVIDERS)}, and with {install_command('providers')} {', '.join(KNOWN)}"
        raise SpecError(f"unknown provider {show(settings.provider)}, {known}{hint}", field="provider", nearest=near)
    check_settings(settings)
    if transport is not None and settings.proxy is not None:
        raise SpecError("a proxy cannot be used here: it would reach what may not be reached", field="proxy")
    if provider not in PROVIDERS:
        if transport is not None:
            known = ", ".join(PROVIDERS)
            raise SpecError(
                f"models of {provider} cannot be used here, since they connect by themselves; use one of {known}", field="provider"
            )
        return build_provider_model(settings)
    if provider == "scripted":
        from proctor.llm.scripted import ScriptedModel, read_script  # only tests and offline runs use it

        # By turn: parallel cases share the model, and each starts at the beginning of the script.
        return ScriptedModel(read_script(settings.replies), name=settings.model or "scripted", by_turn=True)
    if not settings.model and not (provider == "azure" and settings.deployment):
        raise SpecError(f"a model of {provider} needs its name", field="model")
    if provider == "azure" and settings.base_url is None:
        raise SpecError("a model on Azure needs the address of its resource, such as https://NAME.openai.azure.com", field="base_url")
    # A self-hosted server may need no key; the providers' own addresses always do.
    open_server = settings.base_url is not None and (provider != "azure" or is_loopback(settings.base_url))
    signed = any(name.lower() in ("authorization", "x-api-key", "api-key") for name in settings.headers)
    if not settings.api_key and not signed and not open_server:
        raise SpecError(f"a model of {provider} needs an API key", field="api_key")
    dialect: Dialect = importlib.import_module(f"proctor.llm.{_MODULES[provider]}").DIALECT
    return HttpModel(dialect, settings, transport=transport)
