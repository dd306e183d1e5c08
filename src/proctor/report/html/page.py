"""The frame of every HTML report: templates, and a content security policy by hash."""

from __future__ import annotations

import base64
import hashlib


def read_template(name: str) -> str:
    """Return a template; uses the package loader, so zipped installations work."""
    from pkgutil import get_data  # only reports need it

    content = get_data("proctor.report", f"templates/{name}")
    assert content is not None, name
    # Normalise line ends: browsers do before they compare hashes.
    return content.decode().replace("\r\n", "\n")


def page(*, title: str, style: str, body: str, script: str | None = None) -> str:
    """Return a page around `body` that can run only `script`; title and body are HTML."""
    runs = "" if script is None else f"script-src {_hash_source(script)}; "
    # With Trusted Types, browsers block scripts that write markup.
    types = "" if script is None else "; require-trusted-types-for 'script'; trusted-types 'none'"
    policy = f"default-src 'none'; {runs}style-src {_hash_source(style)}; img-src data:; base-uri 'none'; form-action 'none'{types}"
    return read_template("page.html").format(title=title, policy=policy, style=style, body=body)


def _hash_source(text: str) -> str:
    """Return a policy source for a script or style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
