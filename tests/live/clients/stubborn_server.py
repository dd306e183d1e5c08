"""A tool server that does not let itself be ended: it ignores signals and the end of its input, and has a child that does the same.

It is as stubborn as this while the file that it is given exists; without that file it ends as a server should.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from tests.targets import bare_server


def main() -> None:
    """Answer as the bare server does, and stay."""
    stubborn = os.path.exists(sys.argv[1])
    if stubborn:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
    bare_server.main()
    if stubborn:
        time.sleep(600)


if __name__ == "__main__":
    main()
