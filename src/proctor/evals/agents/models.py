"""Makes a model from `provider/model`.

The provider is the part before the first `/`. A missing key is read from the variable that the provider's own tools read
(`OPENAI_API_KEY`, ...), as are the addresses of OpenAI, Anthropic and Azure; that key is not sent to a custom address, which needs its own
key. Providers without a client here are called at their OpenAI-compatible address, and all others that pydantic-ai knows through it (extra
`providers`). A built-in name wins over a custom provider of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from proctor.errors import SpecError
from proctor.evals.agents.camel_case import to_camel
from proctor.llm.build import build_model
from proctor.llm.ports import ChatModel
from proctor.llm.providers import is_provider
from proctor.llm.settings import ModelSettings
from proctor.model.show import nearest, show
from proctor.model.typed import convert_to

_COMPATIBLE: Final = {
    "deepseek": "https://api.deepseek.com/v1",
    "google": "https://generativelanguage.googleapis.com/v1beta/openai",
    "mistral": "https://api.mistral.ai/v1",
    "ollama": "http://127.0.0.1:11434/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "xai": "https://api.x.ai/v1",
}
_KEYS: Final = {"google": ("GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY"), "azure": ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY")}
_ADDRESSES: Final = {
    "openai": ("OPENAI_BASE_URL",),
    "anthropic": ("ANTHROPIC_BASE_URL",),
    "azure": ("AZURE_BASE_URL", "AZURE_OPENAI_ENDPOINT"),
    "ollama": ("OLLAMA_BASE_URL",),
}
PROVIDERS: Final = ("openai", "openai_responses", "anthropic", "azure", *_COMPATIBLE)
_PROTOCOLS: Final = {"openai-compatible": "openai", "anthropic-compatible": "anthropic"}


class _CustomProvider(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str = ""
    protocol: str = "openai-compatible"
    base_url: str
    model_ids: tuple[str, ...] = ()
    api_key: str | None = None
    api_key_env_var: str | None = None


CustomProviders = Mapping[str, Mapping[str, object]]
"""Providers with a known protocol by name, with the fields of `CustomProvider` in MCPJam."""


def split_model(model: str) -> tuple[str, str]:
    """Return provider and name of `provider/model`. Raises `SpecError` for anything else."""
    provider, slash, name = model.partition("/")
    if not (provider and slash and name):
        raise SpecError(f"expected a model as provider/model, such as openai/some-model, found {show(model)}", field="model")
    return provider, name


def make_model(
    model: str,
    *,
    api_key: str | None,
    base_url: str | None,
    custom: CustomProviders,
    environment: Mapping[str, str],
) -> ChatModel:
    """Return the model of that name. Raises `SpecError`; nothing is sent yet."""
    provider, name = split_model(model)
    # A key of the environment is sent only to the provider's own address.
    known_keys = environment if base_url is None else {}
    if provider in PROVIDERS:
        key = api_key or _find_first(known_keys, _KEYS.get(provider, (f"{provider.partition('_')[0].upper()}_API_KEY",)))
        address = base_url or _find_first(environment, _ADDRESSES.get(provider, ())) or _COMPATIBLE.get(provider)
        # Ollama's own tools use the bare host or `/api`; its OpenAI protocol is under `/v1`.
        if provider == "ollama" and address is not None and not address.rstrip("/").endswith("/v1"):
            address = f"{address.rstrip('/').removesuffix('/api')}/v1"
        protocol = "openai" if provider in _COMPATIBLE else provider
        return build_model(ModelSettings(provider=protocol, model=name, base_url=address, api_key=key))
    known = {provider_name: _read_custom(provider_name, settings) for provider_name, settings in custom.items()}
    if provider not in known and is_provider(provider):
        # Through pydantic-ai, which reads its other settings from the environment.
        key = api_key or _find_first(known_keys, (f"{provider.replace('-', '_').upper()}_API_KEY",))
        return build_model(ModelSettings(provider=provider, model=name, base_url=base_url, api_key=key))
    if provider not in known:
        provider_names = (*PROVIDERS, *known)
        close = nearest(provider, provider_names)
        hint = f"; nearest: {close[0]!r}" if close else ""
        raise SpecError(f"unknown provider {show(provider)}, known are {', '.join(provider_names)}{hint}", field="model", nearest=close)
    chosen = known[provider]
    if chosen.model_ids and name not in chosen.model_ids:
        raise SpecError(f"provider {provider!r} has no model {show(name)}", field="model", nearest=nearest(name, chosen.model_ids))
    key = api_key or chosen.api_key or known_keys.get(chosen.api_key_env_var or "")
    protocol = _PROTOCOLS[chosen.protocol]
    return build_model(ModelSettings(provider=protocol, model=name, base_url=base_url or chosen.base_url, api_key=key or None))


def _read_custom(name: str, settings: Mapping[str, object]) -> _CustomProvider:
    try:
        provider = convert_to({to_camel(key): value for key, value in settings.items()}, _CustomProvider)
    except msgspec.ValidationError as error:
        raise SpecError(f"custom provider {name!r}: {error}", field="custom_providers") from None
    if provider.protocol not in _PROTOCOLS:
        close = nearest(provider.protocol, _PROTOCOLS)
        raise SpecError(f"custom provider {name!r}: unknown protocol {show(provider.protocol)}", nearest=close)
    return provider


def _find_first(environment: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)
