"""Ends a call to custom code that takes too long.

In the main thread, a system timer raises `OutOfTime` inside the call repeatedly until the call ends; this also interrupts a sleep or a wait
for the network. In other threads, and on systems without such timers, the call runs in its own thread, which is asked to stop and then
abandoned. Neither can stop code that always catches the exception, or a C extension that does not return. An abandoned thread runs until
the process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_AGAIN_S: Final = 0.05
"""Interval at which `OutOfTime` is raised again in a call that caught it."""
_GRACE_S: Final = 0.5
"""Grace period of a thread that was asked to stop."""


class OutOfTime(BaseException):
    """Raised inside a call whose time is up; not an `Exception`, so that user code does not catch it by accident."""


class CallTooLong(Exception):
    """A call took longer than allowed."""

    def __init__(self, seconds: float, frames: traceback.StackSummary) -> None:
        super().__init__(f"did not end within {seconds:g} s")
        self.frames = frames
        """The call stack, innermost last."""


def call_within(work: Callable[[], T], seconds: float) -> T:
    """Return the result of `work`. Raises `CallTooLong` if it takes longer than `seconds`."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    # A handler of None was set by C code, and Python could not restore it.
    if in_main_thread and hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) is not None:
        return _call_under_timer(work, seconds)
    return _call_in_thread(work, seconds)


async def run_within(work: Callable[[], T], seconds: float) -> T:
    """Return the result of `work`, which runs in a thread outside the event loop. Raises `CallTooLong` like `call_within`."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    call = _ThreadedCall(work, lambda: loop.call_soon_threadsafe(ended.set))
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        frames = call.list_frames()
        call.interrupt()
        raise CallTooLong(seconds, frames) from None
    except asyncio.CancelledError:
        call.interrupt()
        raise
    return call.read()


class _TimedCall(Generic[T]):
    """One call in the main thread."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._frame: FrameType | None = None
        self.frames: traceback.StackSummary | None = None
        """The call stack when the time was up."""

    def end_by_time(self, number: int, frame: FrameType | None) -> None:
        # Only inside the call itself, and not in the code around it.
        if self._frame is not None and frame is not self._frame:
            # The first stack is where the call hung; later ones are where it handles the exception.
            self.frames = self.frames or traceback.extract_stack(frame)
            raise OutOfTime

    def make(self) -> T | None:
        """Make the call; return None if its time was up, whatever user code made of the exception."""
        self._frame = sys._getframe()  # pyright: ignore[reportPrivateUsage] - documented
        try:
            return self._work()
        except BaseException:
            if self.frames is None:
                raise
            return None
        finally:
            self._frame = None


def _call_under_timer(work: Callable[[], T], seconds: float) -> T:
    call = _TimedCall(work)
    previous_handler = signal.signal(signal.SIGALRM, call.end_by_time)
    # Enclosing code may use the same timer, as test runners do.
    remaining_s, interval_s = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    began = time.monotonic()
    try:
        answer = call.make()
    finally:
        # The timer before the handler: an alarm in between would go to the earlier handler, which by default ends the process.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler)
        if remaining_s:
            # Never zero, which would disable the other timer.
            signal.setitimer(signal.ITIMER_REAL, max(remaining_s - (time.monotonic() - began), 0.001), interval_s)
    if call.frames is not None:
        raise CallTooLong(seconds, call.frames)
    return answer  # type: ignore[return-value]  # if its time was not up, it returned


class _ThreadedCall(Generic[T]):
    """One call in its own thread."""

    def __init__(self, work: Callable[[], T], on_end: Callable[[], object] | None = None) -> None:
        self._work = work
        self._on_end = on_end
        self._ended = threading.Event()
        self._answer: T | None = None
        self._error: BaseException | None = None
        # User code sees the context variables of its caller, as in the main thread.
        context = contextvars.copy_context()
        # A daemon: a call that cannot be stopped must not prevent the process from exiting.
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="proctor own check", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._work()
        except BaseException as error:
            self._error = error
        self._ended.set()
        if self._on_end is not None:
            # The event loop may have been closed.
            with contextlib.suppress(RuntimeError):
                self._on_end()

    def wait(self, seconds: float) -> bool:
        """Return whether it ended within the given seconds; waits in slices, so that signals are handled."""
        until = time.monotonic() + seconds
        while not self._ended.wait(max(0.0, min(_AGAIN_S, until - time.monotonic()))):
            if time.monotonic() >= until:
                return False
        return True

    def read(self) -> T:
        """Return its result, or raise its exception."""
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]  # it has ended without an error

    def list_frames(self) -> traceback.StackSummary:
        """Return its current call stack."""
        frame = sys._current_frames().get(self._thread.ident or 0)  # pyright: ignore[reportPrivateUsage] - documented
        return traceback.extract_stack(frame) if frame is not None else traceback.StackSummary()

    def stop(self) -> None:
        """Ask it to stop, then abandon it after the grace period."""
        until = time.monotonic() + _GRACE_S
        while time.monotonic() < until and not self._ended.wait(_AGAIN_S):
            # Repeated: it is raised between two Python instructions, and code that catches it once continues.
            self.interrupt()

    def interrupt(self) -> None:
        """Raise `OutOfTime` in it, between two Python instructions."""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(OutOfTime))


def _call_in_thread(work: Callable[[], T], seconds: float) -> T:
    call = _ThreadedCall(work)
    try:
        in_time = call.wait(seconds)
    except BaseException:
        call.stop()
        raise
    if in_time:
        return call.read()
    # Before it is stopped: afterwards the stack has changed, or the thread has ended.
    frames = call.list_frames()
    call.stop()
    raise CallTooLong(seconds, frames)
