"""Makes the OpenAPI document in a process of its own, run as `python -m proctor.rest.openapi_process`.

In a thread it would take a second of the interpreter that answers everybody else: the first to ask for it, who needs no key, would slow
down all others.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from proctor.errors import StoreError

_TIMEOUT_S = 60.0


async def write_document() -> bytes:
    """Return the document as bytes. Raises `StoreError` where the process does not get there."""
    command = (sys.executable, "-m", "proctor.rest.openapi_process")
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            written, _ = await process.communicate()
    except TimeoutError:
        written = b""
    finally:
        # Its time is over, or whoever asked has gone: it would go on for nobody.
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0 or not written:
        raise StoreError("the document cannot be made just now: its process ended too early")
    return written


def main() -> None:
    """Write the document to standard output."""
    import msgspec

    from proctor.rest.app import make_app
    from proctor.rest.settings import ServeSettings
    from proctor.service.settings import ServiceSettings

    os.nice(10)  # others are being answered
    # Nothing is opened, and every service has the same routes.
    sys.stdout.buffer.write(msgspec.json.encode(make_app(ServeSettings(service=ServiceSettings(home=Path()))).openapi()))


if __name__ == "__main__":
    main()
