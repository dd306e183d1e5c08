"""A chatflow or agentflow of Flowise, by its prediction API.

`POST {url}/api/v1/prediction/{flow}` with the message as `question`; the turns of an attempt share `overrideConfig.sessionId`. A body that
the case defines is sent exactly as written. The answer is read as a Flowise prediction.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import quote

import msgspec

from proctor.cassettes.ports import Tape
from proctor.errors import SpecError
from proctor.evidence.platforms import flowise
from proctor.model.evidence import Evidence, Json
from proctor.targets.answers.account import is_blank
from proctor.targets.answers.http_answers import evidence_of, with_account
from proctor.targets.answers.no_answer import make_fault, refuse_empty, refuse_failure, refuse_status
from proctor.targets.platforms.http import WireTarget, check_positive, secret_headers
from proctor.targets.shared.conversation import Message
from proctor.targets.shared.masking import Ids, show_settings
from proctor.targets.shared.wire import HttpRequest, MakeTransport, Wire, check_address


class FlowiseSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A flow of Flowise."""

    type: Literal["flowise"] = "flowise"
    url: str
    """The address of Flowise: `http://127.0.0.1:3000`."""
    flow: str
    """The id of the chatflow or agentflow."""
    api_key: str | None = None
    """The key of the flow, as `${NAME}`, if it has one."""
    override_config: dict[str, Json] = {}
    """Additional fields of `overrideConfig`; the session is added."""
    headers: dict[str, str] = {}
    """Additional headers."""
    timeout_s: float = 120.0
    """Maximum seconds for one answer."""

    def __repr__(self) -> str:
        return show_settings(self)


class FlowiseTarget(WireTarget):
    """Sends messages to a Flowise flow."""

    def __init__(
        self, name: str, settings: FlowiseSettings, *, secrets: frozenset[str] = frozenset(), transport: MakeTransport | None = None
    ) -> None:
        """Raises `SpecError` for settings that cannot be used."""
        check_address(settings.url, "url")
        check_positive(settings.timeout_s, "timeout_s")
        if not settings.flow:
            raise SpecError("flow: the id of the flow is empty", field="flow")
        self._settings = settings
        key = frozenset((settings.api_key,)) if settings.api_key else frozenset[str]()
        super().__init__(name, Wire(secrets=secrets | key | secret_headers(settings.headers), transport=transport))
        # The address may contain the path of the API.
        self._url = f"{settings.url.rstrip('/').removesuffix('/api/v1')}/api/v1/prediction/{quote(settings.flow, safe='')}"

    async def say(self, message: Message, tape: Tape, ids: Ids) -> Evidence:
        """Send one message to the flow."""
        settings = self._settings
        session = {**settings.override_config, "sessionId": message.session_id}
        content = {"question": message.text, "overrideConfig": session} if message.body is None else message.body
        headers = {**settings.headers, "x-request-id": message.request_id}
        if settings.api_key:
            headers["authorization"] = f"Bearer {settings.api_key}"
        request = HttpRequest(method="POST", url=self._url, headers=headers, body=content, has_body=True)
        answer = await self._wire.exchange(request, tape=tape, ids=ids, timeout_s=settings.timeout_s)
        status_claimed = message.claims_status(answer.status)
        body = answer.body
        refused = refuse_status(answer) is not None
        if refused or not isinstance(body, dict) or not ("text" in body or "json" in body or flowise.sniff(body)):
            return evidence_of(answer, status_claimed=status_claimed)
        read = msgspec.structs.replace(flowise.read(body)[0], http_status=answer.status, duration_ms=answer.duration_ms)
        failure = refuse_failure(answer, None)
        if not status_claimed and (is_blank(read) or failure is not None):
            raise make_fault(failure or refuse_empty(answer, "a text with nothing in it"), answer, read)
        return with_account(read, answer)
