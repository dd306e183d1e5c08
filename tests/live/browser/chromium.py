"""The real browser of the tests: found on the machine and started in one way."""

from __future__ import annotations

import os
import shutil
from typing import Any

# The first is the same browser without windows and tabs: a page costs it a part of the work.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = os.environ.get("PROCTOR_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
"""Its path; None if not installed."""
# A container has no user namespaces and little shared memory.
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def launch_chromium(started: Any) -> Any:
    """Return the browser, started by Playwright."""
    return started.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
