"""Reads the text layer of one PDF in a separate process: a document of some kilobytes can take minutes and gigabytes.

`python -I pdf_process.py FOLDER_OF_PYPDF`: the document on standard input, JSON on standard output. It needs nothing but pypdf, so that it
starts fast. The text is the last member; a process that ends without it ran out of time or memory.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any

CPU_S = 5
MEMORY_BYTES = 500_000_000


def read_pdf(data: bytes, most_pages: int) -> dict[str, Any]:
    """Return the number of pages, the pages without a text layer, and the text of a document; `error` if it cannot be read."""
    import pypdf  # its folder was added to the path

    try:
        pages = pypdf.PdfReader(io.BytesIO(data)).pages
        texts = [page.extract_text() for page in pages[:most_pages]]
        pictures = [index + 1 for index, text in enumerate(texts) if not text.strip() and _is_drawn(pages[index])]
    except Exception as error:  # pypdf may raise anything for a damaged document
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    return {"pages": len(pages), "pictures": pictures, "text": "\n".join(texts).encode("utf-8", "replace").decode()}


def _is_drawn(page: Any) -> bool:
    """Return whether a page has any content, including pictures."""
    content = page.get_contents()
    return content is not None and bool(content.get_data().strip())


def main() -> None:
    """Read one document."""
    sys.path.append(sys.argv[1])
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # not on every platform; the caller has a time limit too

        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    print(json.dumps(read_pdf(sys.stdin.buffer.read(), int(sys.argv[2]))))


if __name__ == "__main__":
    main()
