"""Encrypts secrets at rest: Fernet (AES-128-CBC with HMAC-SHA-256), with replaceable keys.

The keys come from `PROCTOR_SECRET_KEY`, or from a file of mode 0600 in the workspace that is created when needed. Several keys are
separated by commas or lines: the first encrypts, all decrypt. To replace a key, write the new one in front, run `proctor db rekey`, and
remove the old one. A key is the output of `Fernet.generate_key()`; any other text of at least 16 characters is stretched into one.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import InputError, MissingExtra, StoreError

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

KEY_FILE = "secret.key"
_SHORTEST = 16
_FERNET_KEY = re.compile(r"[A-Za-z0-9_-]{43}=")


class SecretBox:
    """Encrypts and decrypts texts and bytes. Reads its keys when it is first used, and never shows them."""

    def __init__(self, home: Path, keys: str | None = None) -> None:
        self._home = home
        self._keys = keys or None
        self._engine: MultiFernet | None = None

    def lock(self, text: str) -> str:
        """Return the text, encrypted."""
        return self.lock_bytes(text.encode("utf-8", errors="surrogatepass")).decode()

    def lock_bytes(self, data: bytes) -> bytes:
        """Return bytes, encrypted."""
        return self._open_engine().encrypt(data)

    def unlock(self, locked: str) -> str:
        """Return the decrypted text. Raises `StoreError` if it was encrypted with another key, or changed."""
        return self.unlock_bytes(locked.encode()).decode("utf-8", errors="surrogatepass")

    def unlock_bytes(self, locked: bytes) -> bytes:
        """Return the decrypted bytes. Raises `StoreError` as `unlock` does."""
        from cryptography.fernet import InvalidToken  # slow to load

        try:
            return self._open_engine().decrypt(locked)
        except InvalidToken:
            raise StoreError(f"a stored secret cannot be decrypted with the configured key ({self._describe_place()})") from None

    def relock(self, locked: str) -> str:
        """Return the same secret, encrypted with the first key."""
        return self.lock(self.unlock(locked))

    def _describe_place(self) -> str:
        return "PROCTOR_SECRET_KEY" if self._keys is not None else str(self._home / KEY_FILE)

    def _open_engine(self) -> MultiFernet:
        if self._engine is None:
            try:
                from cryptography.fernet import Fernet, MultiFernet  # as above
            except ModuleNotFoundError:
                raise MissingExtra("Storing secrets", "serve") from None
            text = self._keys if self._keys is not None else _read_key_file(self._home / KEY_FILE)
            words = [word.strip() for word in re.split(r"[,\n]", text) if word.strip()]
            if not words:
                raise InputError(f"no key in {self._describe_place()}")
            self._engine = MultiFernet([Fernet(_stretch_key(word, self._describe_place())) for word in words])
        return self._engine


def _stretch_key(word: str, place: str) -> bytes:
    if _FERNET_KEY.fullmatch(word):
        return word.encode()
    if len(word) < _SHORTEST:
        raise InputError(f"the key in {place} is too short: expected {_SHORTEST} characters or more")
    # A fixed salt, so that two servers derive the same key. The length of the text protects it.
    return base64.urlsafe_b64encode(hashlib.scrypt(word.encode(), salt=b"proctor secrets at rest", n=2**14, r=8, p=1, dklen=32))


def _read_key_file(path: Path) -> str:
    """Return the keys in the file, created if missing. Two concurrent processes get the same key."""
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Written completely with mode 0600, then linked to its name.
            descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            try:
                with open(descriptor, "wb") as file:
                    file.write(base64.urlsafe_b64encode(os.urandom(32)) + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
                with contextlib.suppress(FileExistsError):
                    # A link fails if the name exists, unlike a rename: the first of two processes wins, and both read its key.
                    os.link(partial, path)
            finally:
                os.unlink(partial)
        # Rejected, not repaired: the key may have leaked, and an administrator must know.
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise StoreError(
                f"the key file {str(path)!r} is readable by others; run `chmod 600`, and replace the key if it may have leaked"
            )
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"the key file {str(path)!r} cannot be used: {error}") from error
