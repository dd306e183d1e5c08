"""How keys and tokens are kept: they are random, and the database has only their hashes."""

from __future__ import annotations

import hashlib

_LONGEST = 200
"""Characters of a token that are looked at; those given out are shorter."""


def hash_token(token: str) -> str:
    """Return the hash under which a key or token is kept."""
    # It is random, so that nothing slower is needed; and looking up a hash tells nothing about how much of a guess was right.
    return hashlib.sha256(token[:_LONGEST].encode("utf-8", errors="surrogatepass")).hexdigest()
