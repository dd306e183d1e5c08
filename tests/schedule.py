"""Which live tests a worker takes together: those that share something that takes long to make, and no others.

`--dist loadfile` gives a file to one worker, which is right for most. The longest file would decide how long all of them take, so tests
that each start their own servers are taken one by one, and the hundreds of one file in parts.
"""

from __future__ import annotations

import zlib

from xdist.scheduler import LoadFileScheduling

TOGETHER = {
    "tests/live/test_deciding_crash.py": "one service",
    "tests/live/test_report_browser.py": "one browser",
}
"""Files under tests/live/ whose tests share something, and what."""
BY_NAME = {"tests/live/test_framework_pages.py"}
"""Files in which the tests of one name share an environment: no other worker waits while it is made."""
PARTS = {"tests/rest/test_openapi.py": 3}
"""Into how many parts the tests of a file are divided; each part has a service of its own."""


def find_group(test: str) -> str:
    """Return a name that is the same for all tests that one worker takes together."""
    file = test.partition("::")[0]
    if file in BY_NAME:
        return f"{file} {test.rpartition('[')[2]}"
    if file in PARTS:
        return f"{file} {zlib.crc32(test.encode()) % PARTS[file]}"
    return test if file.startswith("tests/live/") and file not in TOGETHER else file


class Schedule(LoadFileScheduling):
    """Hands out groups in the order in which the tests were found."""

    def _split_scope(self, nodeid: str) -> str:
        return find_group(nodeid)
