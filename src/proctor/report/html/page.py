"""What every HTML report is made of: the page around it, files that lie beside this one, and hashes by which it allows nothing else."""

from __future__ import annotations

import base64
import hashlib


def read_template(name: str) -> str:
    """Return a part of a page, from the files beside this one; read through the loader, so a zipped installation works too."""
    from pkgutil import get_data  # nothing but these reports needs it

    content = get_data("proctor.report", f"templates/{name}")
    assert content is not None, name
    # A checkout may have changed the line ends, and a browser changes them back before it compares the hash.
    return content.decode().replace("\r\n", "\n")


def page(*, title: str, style: str, body: str, script: str | None = None) -> str:
    """Return a whole page around `body`, which may load nothing and run nothing but `script`; title and body are HTML already."""
    runs = "" if script is None else f"script-src {_hash_source(script)}; "
    # Browsers that know Trusted Types then refuse any script that writes markup, our own included.
    types = "" if script is None else "; require-trusted-types-for 'script'; trusted-types 'none'"
    policy = f"default-src 'none'; {runs}style-src {_hash_source(style)}; img-src data:; base-uri 'none'; form-action 'none'{types}"
    return read_template("page.html").format(title=title, policy=policy, style=style, body=body)


def _hash_source(text: str) -> str:
    """Return how a policy names a script or style sheet that it allows."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
