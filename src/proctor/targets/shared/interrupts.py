"""Whether an exception is the user's Ctrl-C, or only looks like it.

Code under test may raise anything, `KeyboardInterrupt` too. The user's own comes from a handler of the signal, and only in the main
thread: the handler of an event loop's runner shows in the traceback, Python's own does not and could have raised it anywhere. Where a
loop watches for the signal itself, none is raised at all.
"""

from __future__ import annotations

import signal
import threading
import traceback


def is_interrupt(error: BaseException) -> bool:
    """Return whether this is the user's own Ctrl-C; if unclear, it is."""
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        return True
    # `asyncio.Runner` installs a handler of this name for the signal.
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].name == "_on_sigint"
