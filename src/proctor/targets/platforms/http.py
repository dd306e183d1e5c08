"""An agent with an HTTP API, as Mibo's HTTP API agent.

Every message is one request: the template with its placeholders filled as JSON, or the case's own body exactly as written. `GET` and
`HEAD` send the members of the template as query parameters instead. Each request carries `x-request-id`. Address and headers may
hold placeholders too.

`WireTarget` is the base of every HTTP target: one wire, opened once, and a conversation per attempt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from collections.abc import Mapping as Members
from typing import Any, Literal
from urllib.parse import quote, urlencode

import msgspec

from proctor.cassettes.ports import Tape
from proctor.errors import CheckFault, SpecError
from proctor.evidence.mapping.read import Mapping, compile_mapping
from proctor.evidence.recognise import FORMATS
from proctor.expressions.text_form import write_text_form
from proctor.model.attempt import Attempt
from proctor.model.case import Case
from proctor.model.evidence import Evidence, Json
from proctor.model.mapping import EvidenceSettings
from proctor.model.problem import Problem
from proctor.model.show import nearest
from proctor.targets.answers.http_answers import evidence_of
from proctor.targets.shared.conversation import Message, converse, ids_of
from proctor.targets.shared.faults import TargetFault
from proctor.targets.shared.masking import Ids, names_a_secret, show_settings
from proctor.targets.shared.templates import CONVERSATION_NAME, SESSION_NAME, Template, TextTemplate, unknown_placeholders, values_for
from proctor.targets.shared.wire import HttpRequest, MakeTransport, Wire, check_address


class WireTarget(ABC):
    """A target that sends every message of a case over one wire."""

    takes_speakers = True

    def __init__(self, name: str, wire: Wire, *, placeholders: frozenset[str] = frozenset()) -> None:
        """`placeholders` are the names that a case must have a value for."""
        self.name = name
        self._wire = wire
        self._placeholders = placeholders

    def problems_with(self, cases: Iterable[Case]) -> list[Problem]:
        """Return the cases that cannot be sent, detected before anything is sent."""
        return unknown_placeholders(self._placeholders, cases, self.name)

    def uses_variable(self, name: str) -> bool:
        """Return whether a variable of the case is sent."""
        return name in self._placeholders

    async def open(self) -> None:
        """Prepare to connect."""
        await self._wire.open()

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Send every message of the case and return the evidence."""
        ids = Ids(*ids_of(attempt))

        async def say(message: Message) -> Evidence:
            return await self.say(message, tape, ids)

        return await converse(attempt, say, target=self.name)

    @abstractmethod
    async def say(self, message: Message, tape: Tape, ids: Ids) -> Evidence:
        """Send one message and read the response; `ids` are those of the attempt, to be masked on the tape."""

    async def close(self) -> None:
        """Close every connection."""
        await self._wire.close()


DEFAULT_TEMPLATE: dict[str, Json] = {"input": "{user_message}"}
_BODILESS = ("GET", "HEAD")
_NOT_IN_NAME = frozenset(' :\r\n\0"(),/;<=>?@[\\]{}')
_NOT_IN_VALUE = frozenset("\r\n\0")


class Auth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The authentication of requests."""

    type: Literal["none", "bearer", "headers"] = "none"
    """`bearer`: a token; `headers`: headers of your own."""
    token: str | None = None
    """The token of `bearer`, as `${NAME}`."""
    headers: dict[str, str] = {}
    """The headers of `headers`, their values as `${NAME}`."""

    def __repr__(self) -> str:
        return show_settings(self)

    def make_headers(self) -> dict[str, str]:
        """Return the headers to send. Raises `SpecError` if a value is missing."""
        if self.type == "bearer":
            if not self.token:
                raise SpecError("auth: a bearer token is missing or empty", field="auth.token", hint='write token: "${NAME}"')
            return {"authorization": f"Bearer {self.token}"}
        if self.token is not None:
            raise SpecError(f"auth: a token needs type bearer, not {self.type}", field="auth.token")
        if self.type == "headers" and not self.headers:
            raise SpecError("auth: no headers are given", field="auth.headers")
        if self.type == "none" and self.headers:
            raise SpecError("auth: headers need type headers", field="auth.headers")
        return self.headers

    def list_secrets(self) -> frozenset[str]:
        """Return the values that must never be shown."""
        return frozenset(value for value in (self.token, *self.headers.values()) if value)


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent with an HTTP API."""

    type: Literal["http"] = "http"
    url: str
    """The address for messages; placeholders are percent-encoded."""
    method: str = "POST"
    auth: Auth = Auth()
    headers: dict[str, str] = {}
    """Additional headers; placeholders are allowed in their values."""
    template: Json = msgspec.field(default_factory=lambda: DEFAULT_TEMPLATE)
    """The body of a message, with placeholders."""
    response_path: str | None = None
    """The path of the text in the answer: `data.choices.0.message.content`."""
    answer_format: str | None = None
    """How the answer is written, if it is more than text: `openai`, `anthropic`, `n8n`, ... as for `--evidence-format`."""
    evidence: EvidenceSettings | None = None
    """The paths of the evidence in an answer with its own format, and its complete parts."""
    timeout_s: float = 60.0
    """Maximum seconds for one answer."""

    def __repr__(self) -> str:
        return show_settings(self)


class Requests:
    """Makes requests from templates."""

    def __init__(
        self, *, method: str, url: str, headers: Members[str, str], credentials: Members[str, str], template: Json, field: str = "url"
    ) -> None:
        """Raises `SpecError` for invalid requests; `field` is the name of the address field."""
        # A placeholder is not part of the address before it is filled; without its braces the rest can be checked now.
        check_address(url.replace("{", "").replace("}", ""), field)
        if not method.isascii() or not method.isalpha():
            raise SpecError(f"method: {method!r} is not an HTTP method", field="method")
        self._method = method.upper()
        # A slash in a value must not become a path separator.
        self._url = TextTemplate(url, field=field, written=lambda text: quote(text, safe=""))
        self._headers = {name: TextTemplate(value, field=f"headers.{name}") for name, value in headers.items()}
        self._credentials = dict(credentials)
        self._body = Template(template)
        for name, value in self._credentials.items():
            if not _can_be_sent(name, value):
                raise SpecError(f"auth: the header {name!r} cannot be sent", field="auth")

    @property
    def placeholders(self) -> frozenset[str]:
        """Every name the templates use."""
        return self._body.placeholders | self._url.placeholders | frozenset().union(*(h.placeholders for h in self._headers.values()))

    def make(self, message: Message, more: Members[str, str] | None = None) -> HttpRequest:
        """Return the request for one message. Raises `TargetFault` if it cannot be made."""
        attempt = message.attempt
        values = values_for(
            attempt.case.context,
            message=message.content,
            request_id=message.request_id,
            session_id=message.session_id,
            messages=message.list_messages(),
        )
        try:
            more = more or {}
            url = self._url.fill(values)
            headers = {name: template.fill(values) for name, template in self._headers.items()}
            # Later ones win: templates cannot replace the credentials, and neither can replace the id that identifies the execution.
            headers = {**headers, **self._credentials, "x-request-id": message.request_id, **more}
            for name, value in headers.items():
                if not _can_be_sent(name, value):
                    raise TargetFault("bad_request", f"the header {name!r} cannot be sent: it would hold a control character", safe=True)
            if message.body is not None:
                return HttpRequest(method=self._method, url=url, headers=headers, body=message.body, has_body=True)
            body: Any = self._body.fill(values)
            if self._method in _BODILESS:
                members = body if isinstance(body, dict) else {"input": body}
                query = urlencode({name: write_text_form(value) for name, value in members.items()})
                url = f"{url}{'&' if '?' in url else '?'}{query}" if query else url
                return HttpRequest(method=self._method, url=url, headers=headers)
            return HttpRequest(method=self._method, url=url, headers=headers, body=body, has_body=True)
        except KeyError as error:
            raise TargetFault(
                "bad_request", f"the template sends {{{error.args[0]}}}, which case {attempt.case.id!r} does not have"
            ) from None
        except CheckFault as fault:
            raise TargetFault("bad_request", f"the template cannot be filled: {fault.message}") from None


class HttpTarget(WireTarget):
    """Sends messages to an agent with an HTTP API."""

    def __init__(
        self, name: str, settings: HttpSettings, *, secrets: frozenset[str] = frozenset(), transport: MakeTransport | None = None
    ) -> None:
        """Raises `SpecError` for settings that cannot be used."""
        self._settings = settings
        self._requests = Requests(
            method=settings.method,
            url=settings.url,
            headers=settings.headers,
            credentials=settings.auth.make_headers(),
            template=settings.template,
        )
        if settings.answer_format is not None and settings.answer_format not in FORMATS:
            message = f"answer_format: unknown format {settings.answer_format!r}; known: {', '.join(FORMATS)}"
            raise SpecError(message, field="answer_format", nearest=nearest(settings.answer_format, FORMATS))
        self._mapping = _compile_mapping(settings)
        check_positive(settings.timeout_s, "timeout_s")
        super().__init__(
            name,
            Wire(secrets=secrets | settings.auth.list_secrets() | secret_headers(settings.headers), transport=transport),
            placeholders=self._requests.placeholders,
        )

    def describe_forgetting(self) -> str | None:
        """Return why the agent cannot identify the conversation of a message; None if it receives that."""
        if {SESSION_NAME, CONVERSATION_NAME} & self._requests.placeholders:
            return None
        return f"it is sent neither {{{SESSION_NAME}}} nor {{{CONVERSATION_NAME}}} (docs/how-to/test-an-http-agent.md#placeholders)"

    async def say(self, message: Message, tape: Tape, ids: Ids) -> Evidence:
        """Send one message."""
        settings = self._settings
        answer = await self._wire.exchange(self._requests.make(message), tape=tape, ids=ids, timeout_s=settings.timeout_s)
        return evidence_of(
            answer,
            response_path=settings.response_path,
            format=settings.answer_format,
            mapping=self._mapping,
            status_claimed=message.claims_status(answer.status),
        )


def _compile_mapping(settings: HttpSettings) -> Mapping | None:
    """Return the mapping of the answers. Raises `SpecError` for an invalid one."""
    paths = settings.evidence.map if settings.evidence is not None else None
    if paths is None:
        return None
    if paths.group is not None:
        raise SpecError("evidence: `group` is for the lines of a log; an answer is one run", field="evidence.map.group")
    if settings.response_path is not None or settings.answer_format is not None:
        named = "response_path" if settings.response_path is not None else "answer_format"
        raise SpecError(f"{named}: `evidence.map` already defines how the answer is read; remove one of them", field=named)
    try:
        return compile_mapping(paths)
    except SpecError as error:
        raise error.move_to(f"evidence.{error.field}") from None


def check_positive(value: float, field: str) -> None:
    """Raise `SpecError` unless the value is a positive duration."""
    if not 0 < value < float("inf"):
        raise SpecError(f"{field}: expected a number above 0, found {value:g}", field=field)


def secret_headers(headers: Members[str, str]) -> frozenset[str]:
    """Return the values of headers with secret names."""
    return frozenset(value for name, value in headers.items() if names_a_secret(name))


def _can_be_sent(name: str, value: str) -> bool:
    """Return whether name and value form one header: a line break in either would make two."""
    return name.isascii() and _NOT_IN_NAME.isdisjoint(name) and bool(name) and _NOT_IN_VALUE.isdisjoint(value)
