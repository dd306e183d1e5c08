"""Reaches every provider without its own client here, through pydantic-ai (extra `providers`): Bedrock, Google, Groq, Mistral, ...

The provider is named as in pydantic-ai (`_` and `-` are the same), the model as at the provider. The stored raw request and response are
those of pydantic-ai: the provider's SDK hides the bytes on the wire. The runner makes retries, the SDK none. A key belongs to the
provider's own address: another `base_url` needs its own key, because pydantic-ai would send the one of the environment.

    429                                  rate_limited, with what the provider asks to wait; an exhausted quota is `bad_request`
    no connection                        transport
    408, or no answer in time            timeout
    5xx, unavailable, overloaded         overloaded
    401, 403                             unauthorized
    other 4xx, or settings it refuses    bad_request
    anything that cannot be read         bad_answer
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proctor.errors import MissingExtra, SpecError, install_command
from proctor.llm.ports import ChatReply, ChatRequest, FaultCode, ModelFault, classify_status
from proctor.llm.settings import REQUEST_SETTINGS, ModelSettings, strip_url
from proctor.model.evidence import Json
from proctor.model.show import shorten

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.providers import Provider
    from pydantic_ai.settings import ModelSettings as PydanticSettings

KNOWN: Final = (
    "alibaba", "bedrock", "bedrock-mantle", "cerebras", "cohere", "crusoe", "deepseek", "fireworks", "github", "github-copilot", "google",
    "google-cloud", "groq", "heroku", "huggingface", "litellm", "meta", "mistral", "moonshotai", "nebius", "ollama", "openrouter",
    "ovhcloud", "sambanova", "snowflake", "together", "vercel", "vllm", "xai", "zai",
)  # fmt: skip
"""The chat providers of pydantic-ai that have no client here."""

_NOT_PASSED_ON: Final = ("deployment", "api_version", "proxy")


def normalise_provider(word: str) -> str:
    """Return a provider's name as pydantic-ai spells it."""
    return word.strip().lower().replace("_", "-")


def is_provider(word: str) -> bool:
    """Return whether this provider is reached through pydantic-ai."""
    return normalise_provider(word) in KNOWN


def build_provider_model(settings: ModelSettings) -> ProviderModel:
    """Build the model that settings describe. Raises `MissingExtra` or `SpecError`; nothing is sent yet."""
    provider = normalise_provider(settings.provider)
    if not settings.model:
        raise SpecError(f"a model of {provider} needs its name", field="model")
    for field in _NOT_PASSED_ON:
        if getattr(settings, field) is not None:
            raise SpecError(f"{field} is unknown to models of {provider}", field=field)
    if settings.base_url is not None and not settings.api_key:
        message = f"a model of {provider} with a custom base_url needs `api_key` (any text if the server needs none)"
        raise SpecError(message, field="api_key")
    return ProviderModel(provider, _make_model(provider, settings), settings)


class ProviderModel:
    """A chat model accessed through pydantic-ai."""

    def __init__(self, provider: str, model: Model[Any], settings: ModelSettings) -> None:
        """Raises `SpecError` for headers that would not be sent to the provider."""
        from proctor.llm.provider_messages import EarlierResponses  # loads pydantic-ai

        if settings.headers and "extra_headers" in model.unsupported_settings:
            raise SpecError(f"models of {provider} take no custom headers", field="headers")
        self.provider, self.name = provider, settings.model
        self.address = None if settings.base_url is None else strip_url(settings.base_url)
        """The address of the model, without secrets, if configured: it distinguishes models of the same name."""
        self._model = model
        self._settings = settings
        self._earlier = EarlierResponses()
        self._entered = False
        self._entering = asyncio.Lock()

    def fill_defaults(self, request: ChatRequest) -> ChatRequest:
        """Return the request with the defaults of the settings filled in."""
        return self._settings.fill_defaults(request)

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Send one request. Raises `ModelFault`."""
        from pydantic_ai.direct import model_request  # slow to load, and only this model needs it

        from proctor.llm.provider_messages import read_reply, write_json, write_messages, write_parameters

        request = self.fill_defaults(request)
        native = bool(self._model.profile.get("supports_json_schema_output", False))
        messages = write_messages(request, self._earlier)
        parameters = write_parameters(request, native=native)
        sent, notes = self._write_settings(request)
        settings = {key: value for key, value in sent.items() if key in REQUEST_SETTINGS}
        raw: dict[str, Json] = {"model": self.name, "messages": write_json(messages), "settings": settings}
        if request.tools:
            raw["tools"] = [msgspec.to_builtins(tool) for tool in request.tools]
        if request.answer_schema is not None:
            raw["answer"] = {"name": request.answer_name, "schema": request.answer_schema, "mode": parameters.output_mode}
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                # Concurrent first requests would each enter the model, and `close` exits it once.
                async with self._entering:
                    if not self._entered:
                        await self._model.__aenter__()
                        self._entered = True
                response = await model_request(self._model, messages, model_settings=sent, model_request_parameters=parameters)
        except Exception as error:
            raise self._explain_error(error) from None
        duration_ms = (time.perf_counter() - started) * 1000
        reply = read_reply(response, request, native=native)
        self._earlier.keep(reply, response)
        return msgspec.structs.replace(
            reply,
            raw_request=raw,
            raw_response=write_json([response])[0],
            duration_ms=round(duration_ms, 3),
            notes=(*reply.notes, *notes),
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._entered:
            self._entered = False
            async with asyncio.timeout(10):
                await self._model.__aexit__(None, None, None)

    def _write_settings(self, request: ChatRequest) -> tuple[PydanticSettings, tuple[str, ...]]:
        options: dict[str, Any] = {key: getattr(request, key) for key in REQUEST_SETTINGS if getattr(request, key) is not None}
        unknown = self._model.unsupported_settings
        notes = tuple(f"{key} is unknown to this API and was left out" for key in options if key in unknown)
        if self._settings.headers:
            options["extra_headers"] = dict(self._settings.headers)
        # An SDK with its own retries would multiply the runner's, and wait unnoticed.
        options |= {"timeout": self._settings.timeout_s, "max_retries": 0}
        sent: Any = {key: value for key, value in options.items() if key not in unknown}
        return sent, notes

    def _explain_error(self, error: Exception) -> ModelFault:
        if isinstance(error, ModelFault):
            return error
        code, status, wait = classify_error(error)
        if isinstance(error, TimeoutError):
            message = f"no answer within {self._settings.timeout_s:g} s"
        elif code == "bad_answer":
            # Any error inside an SDK; its text rarely mentions that the answer was the cause.
            message = f"the model's answer cannot be used: {type(error).__name__}: {error}"
        else:
            message = str(getattr(error, "message", "") or error) or type(error).__name__
        message = shorten(self._settings.hide_secrets(message), 400)
        return ModelFault(code, f"{self.provider}, {self.name}: {message}", status=status, retry_after_s=wait)


def classify_error(error: Exception) -> tuple[FaultCode, int | None, float | None]:
    """Return the code for an error, the provider's status, and the requested wait."""
    import httpx2  # both are loaded if one of their errors was raised
    from pydantic_ai import exceptions as known

    status: int | None = error.status_code if isinstance(error, known.ModelHTTPError) else None
    wait: float | None = error.retry_after if isinstance(error, known.ModelAPIError) else None
    kinds: Mapping[FaultCode, tuple[type[Exception], ...]] = {
        "timeout": (TimeoutError, known.ModelTimeoutError, known.ModelRequestTimeout, httpx2.TimeoutException),
        "bad_request": (known.ModelQuotaExceededError,),
        "rate_limited": (known.ModelRateLimitError,),
        "unauthorized": (known.ModelAuthenticationError,),
        "overloaded": (known.ModelUnavailableError, known.ModelServerError),
        "transport": (known.ModelConnectionError, httpx2.TransportError, ConnectionError),
    }
    for code, types in kinds.items():
        if isinstance(error, types):
            return code, status, wait
    if isinstance(error, (known.ModelRequestRejectedError, known.UserError)) and status is None:
        return "bad_request", None, None
    return (classify_status(status) if status is not None else "bad_answer"), status, wait


def _make_model(provider: str, settings: ModelSettings) -> Model[Any]:
    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
    except ImportError:
        raise MissingExtra(f"A model of {provider}", "providers") from None
    try:
        return infer_model(f"{provider}:{settings.model}", provider_factory=lambda name: _make_provider(name, settings))
    except ImportError as error:
        # The SDK of this provider: pydantic-ai names the extra that installs it.
        raise SpecError(f"a model of {provider} needs more than {install_command('providers')}: {error}", field="provider") from None
    except UserError as error:
        raise SpecError(f"a model of {provider}: {shorten(str(error), 400)}", field="api_key") from None


def _make_provider(name: str, settings: ModelSettings) -> Provider[Any]:
    import inspect  # slow to load; the caller has checked that it is installed

    from pydantic_ai.providers import infer_provider_class

    provider_class = infer_provider_class(name)
    options = {key: getattr(settings, key) for key in ("api_key", "base_url") if getattr(settings, key) is not None}
    parameters = inspect.signature(provider_class).parameters
    for key in options:
        if key not in parameters:
            raise SpecError(f"{key} is unknown to models of {name}", field=key)
    return provider_class(**options)
