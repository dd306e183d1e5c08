"""Finds the settings of a model in the workspace and completes them from the environment.

`models` in `proctor.yaml` or the suite, else `PROCTOR_MODEL`, `PROCTOR_MODEL_BASE_URL` and `PROCTOR_MODEL_API_KEY`. Keys and addresses that
are not written come from the variables the providers' own tools read. For a provider that pydantic-ai calls, only the key is read here, so
that it is known to be secret; pydantic-ai reads other variables (a region, a project) itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from proctor.errors import InputError, SpecError
from proctor.formats.text.references import References
from proctor.formats.workspace_file import Workspace
from proctor.llm.providers import is_provider, normalise_provider
from proctor.llm.settings import ModelSettings

if TYPE_CHECKING:
    from proctor.llm.connections import MakeTransport
    from proctor.llm.ports import ChatModel

PROVIDER_VARIABLES: dict[str, tuple[str, str]] = {
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "openai_responses": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    "azure": ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT"),
}

_KEYS = {
    "alibaba": ("ALIBABA_API_KEY", "DASHSCOPE_API_KEY"),
    "bedrock": ("AWS_BEARER_TOKEN_BEDROCK",),
    "bedrock-mantle": ("AWS_BEARER_TOKEN_BEDROCK",),
    "cohere": ("CO_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "heroku": ("HEROKU_INFERENCE_KEY",),
    "huggingface": ("HF_TOKEN",),
    "snowflake": ("SNOWFLAKE_TOKEN",),
    "vercel": ("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
}
"""The key variables of other providers, if they are not `<PROVIDER>_API_KEY`."""


def model_settings(name: str | None, workspace: Workspace, references: References, environment: Mapping[str, str]) -> ModelSettings:
    """Return the settings of the model called `name`, else of the only one there is, else of the one in the environment."""
    if name is None and len(workspace.models) == 1:
        name = next(iter(workspace.models))
    if name is not None:
        settings = workspace.find_model(name).build(ModelSettings, references, f"model {name!r}")
        return fill_from_environment(settings, environment)
    settings = find_environment_model(environment, "PROCTOR_MODEL", "PROCTOR_MODEL")
    if settings is None:
        raise InputError("no model is described: `models` in proctor.yaml or in the suite, or the variable PROCTOR_MODEL")
    return fill_from_environment(settings, environment)


def find_environment_model(environment: Mapping[str, str], variable: str, prefix: str) -> ModelSettings | None:
    """Return the model that a variable names, with `PREFIX_BASE_URL` and `PREFIX_API_KEY`; None if it is not set."""
    name = environment.get(variable)
    if not name:
        return None
    address = environment.get(f"{prefix}_BASE_URL") or None
    settings = named_model(name, at_address=address is not None) or ModelSettings(provider="openai", model=name)
    return msgspec.structs.replace(settings, base_url=address, api_key=environment.get(f"{prefix}_API_KEY") or None)


def named_model(name: str, *, at_address: bool = False) -> ModelSettings | None:
    """Return the model named by `provider/name`; None if the first part is not a provider.

    Gateways with OpenAI's protocol also have models called `google/...`: with a custom address, that is part of the name.
    """
    provider, slash, rest = name.partition("/")
    if slash and rest and (provider in PROVIDER_VARIABLES or (not at_address and is_provider(provider))):
        return ModelSettings(provider=provider, model=rest)
    return None


def fill_from_environment(settings: ModelSettings, environment: Mapping[str, str]) -> ModelSettings:
    """Return the settings, with missing key and address filled from the provider's own variables."""
    if is_provider(settings.provider):
        names = _list_key_names(normalise_provider(settings.provider))
        set_address = next((environment[name] for name in names if environment.get(name)), None)
        is_open = settings.api_key is None and settings.base_url is None
        return msgspec.structs.replace(settings, api_key=set_address) if is_open and set_address is not None else settings
    key, address = PROVIDER_VARIABLES.get(settings.provider, ("", ""))
    changes: dict[str, str] = {}
    # The provider's key is not sent to an address from a file, unless the file also has the key.
    if settings.base_url is None and environment.get(address):
        changes["base_url"] = environment[address]
    if settings.api_key is None and settings.base_url is None and environment.get(key):
        changes["api_key"] = environment[key]
    return msgspec.structs.replace(settings, **changes) if changes else settings


def list_variables(provider: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the variables for the key of a provider, and those for its address and protocol options."""
    if is_provider(provider):
        return _list_key_names(normalise_provider(provider)), ()
    if provider in ("azure", "azure_openai"):
        key, address = PROVIDER_VARIABLES["azure"]
        return (key,), (address, "AZURE_OPENAI_API_VERSION", "AZURE_OPENAI_DEPLOYMENT")
    known = PROVIDER_VARIABLES.get(provider)
    return ((known[0],), (known[1],)) if known is not None else ((), ())


def _list_key_names(provider: str) -> tuple[str, ...]:
    return _KEYS.get(provider, (f"{provider.replace('-', '_').upper()}_API_KEY",))


def built_model(settings: ModelSettings, *, offline: bool = False, transport: MakeTransport | None = None) -> ChatModel:
    """Return the model that settings describe; if its key is missing, the error names the variable."""
    from proctor.llm.build import ALIASES, build_model  # only needed with a model

    try:
        return build_model(keyless(settings) if offline else settings, transport=transport)
    except SpecError as error:
        variable = PROVIDER_VARIABLES.get(ALIASES.get(settings.provider, settings.provider), ("", ""))[0]
        # A custom transport runs models of others, which must not get the keys of this environment.
        if error.field != "api_key" or not variable or transport is not None:
            raise
        raise InputError(
            f"{error.message}, for {settings.model!r}\n  set {variable}, or write `api_key` where the model is described"
        ) from None


def keyless(settings: ModelSettings) -> ModelSettings:
    """Return the settings for a replay: no key is used, so none is required."""
    return settings if settings.api_key else msgspec.structs.replace(settings, api_key="replayed")
