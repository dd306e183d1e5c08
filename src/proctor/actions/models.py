"""Which model is meant: what a workspace says, completed by the environment.

`models` in `proctor.yaml` or the suite, else `PROCTOR_MODEL`, `PROCTOR_MODEL_BASE_URL` and `PROCTOR_MODEL_API_KEY`. Keys and addresses that
are not written come from the variables the providers' own tools read.
"""

from collections.abc import Mapping

import msgspec

from proctor.errors import InputError
from proctor.formats.workspace import References, Workspace
from proctor.llm.settings import ModelSettings

PROVIDER_VARIABLES: dict[str, tuple[str, str]] = {
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "openai_responses": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    "azure": ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT"),
}


def model_settings(name: str | None, workspace: Workspace, references: References, environment: Mapping[str, str]) -> ModelSettings:
    """The settings of the model called `name`, else of the only one there is, else of the one the environment names."""
    if name is None and len(workspace.models) == 1:
        name = next(iter(workspace.models))
    if name is not None:
        found = workspace.model(name).build(ModelSettings, references, f"model {name!r}")
        return completed(found, environment)
    model = environment.get("PROCTOR_MODEL")
    if not model:
        raise InputError("no model is described: `models` in proctor.yaml or in the suite, or the variable PROCTOR_MODEL")
    provider, slash, rest = model.partition("/")
    settings = ModelSettings(
        provider=provider if slash and provider in PROVIDER_VARIABLES else "openai",
        model=rest if slash and provider in PROVIDER_VARIABLES else model,
        base_url=environment.get("PROCTOR_MODEL_BASE_URL") or None,
        api_key=environment.get("PROCTOR_MODEL_API_KEY") or None,
    )
    return completed(settings, environment)


def completed(settings: ModelSettings, environment: Mapping[str, str]) -> ModelSettings:
    """The settings with the key and address that the provider's own variables hold, where none is written."""
    key, address = PROVIDER_VARIABLES.get(settings.provider, ("", ""))
    changes: dict[str, str] = {}
    # A key is the provider's: it does not go to an address somebody else wrote down, unless it was written beside it.
    if settings.base_url is None and environment.get(address):
        changes["base_url"] = environment[address]
    if settings.api_key is None and settings.base_url is None and environment.get(key):
        changes["api_key"] = environment[key]
    return msgspec.structs.replace(settings, **changes) if changes else settings
