"""Which live tests a worker takes together: those that share something that takes long to make, and no others.

`--dist loadfile` gives a file to one worker, which is right for most. The longest file would decide how long all of them take, so tests
that each start their own servers are taken one by one, and the hundreds of one file in parts.
"""

from __future__ import annotations

import re
import zlib

from xdist.scheduler import LoadFileScheduling

TOGETHER = {
    "tests/live/browser/test_calibration_browser.py": "one browser",
    "tests/live/browser/test_case_pages_browser.py": "one service with cases and runs",
    "tests/live/crashes/test_deciding_crash.py": "one service",
    "tests/live/clients/test_otel_sdk.py": "one service",
    "tests/live/browser/test_pages_walk.py": "one filled service and a browser",
    "tests/live/browser/test_report_browser.py": "one browser",
}
"""Files under tests/live/ whose tests share something, and what."""
BY_DATABASE = {
    "tests/live/browser/test_pages_browser.py": "a service with runs",
    "tests/live/browser/test_settings_browser.py": "a service",
    "tests/live/browser/test_trace_pages_browser.py": "a service with traces",
}
"""The same where there is one on each database."""
BY_NAME = {"tests/live/clients/test_framework_pages.py"}
"""Files in which the tests of one name share an environment: no other worker waits while it is made."""
BY_FIXTURE = {
    "tests/live/floods/test_slow_client_flood.py": ("becomes_large_delays_no_one", "memory_is_returned"),
    "tests/live/floods/test_slow_patterns.py": ("delay_no_one", "client_leaves"),
    "tests/live/clients/test_mcp_clients.py": ("over_http",),
}
"""Files in which only those tests share a service whose names have one of these words in them."""
PARTS = {"tests/rest/server/test_openapi.py": 3}
"""Into how many parts the tests of a file are divided; each part has a service of its own."""
_DATABASE = re.compile(r"sqlite|postgresql")


def find_group(test: str) -> str:
    """Return a name that is the same for all tests that one worker takes together."""
    file = test.partition("::")[0]
    if file in BY_NAME:
        return f"{file} {test.rpartition('[')[2]}"
    if file in PARTS:
        return f"{file} {zlib.crc32(test.encode()) % PARTS[file]}"
    if file in BY_DATABASE:
        return " ".join((file, *_DATABASE.findall(test.partition("[")[2])))
    if any(word in test for word in BY_FIXTURE.get(file, ())):
        return file
    return test if file.startswith("tests/live/") and file not in TOGETHER else file


class Schedule(LoadFileScheduling):
    """Hands out groups in the order in which the tests were found."""

    def _split_scope(self, nodeid: str) -> str:
        return find_group(nodeid)
