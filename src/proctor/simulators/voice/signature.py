"""How Twilio signs what it sends: HMAC-SHA1 over the address and the fields, by name, with the token of the account as key.

Whoever has the token can tell that a webhook comes from the simulated line; the SDKs call it `RequestValidator`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable


def sign_request(url: str, fields: Iterable[tuple[str, str]], token: str) -> dict[str, str]:
    """Return the header that signs a request; none where the token is unknown."""
    if not token:
        return {}
    signed = url + "".join(f"{name}{value}" for name, value in sorted(fields))
    return {"x-twilio-signature": base64.b64encode(hmac.new(token.encode(), signed.encode(), hashlib.sha1).digest()).decode()}
