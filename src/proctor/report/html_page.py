"""What every HTML report is made of: files that lie beside this one, and the hashes by which a page allows only them."""

from __future__ import annotations

import base64
import hashlib


def template(name: str) -> str:
    """A part of a page, from the files beside this one; read through the loader, so a zipped installation works too."""
    from pkgutil import get_data  # nothing but these reports needs it

    content = get_data("proctor.report", f"templates/{name}")
    assert content is not None, name
    # A checkout may have changed the line ends, and a browser changes them back before it compares the hash.
    return content.decode().replace("\r\n", "\n")


def source_hash(text: str) -> str:
    """How a policy names a script or style sheet that it allows."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
