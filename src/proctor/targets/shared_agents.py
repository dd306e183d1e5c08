"""What is to be said of an agent object of a framework that is called itself, and of what its code raises.

A function of the user's makes or chooses the agent for each case. Where the agent itself is the target, all cases share one object: its
conversation goes from case to case, and its keyword arguments are the framework's, not ours.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path

from proctor.model.show import exception_text
from proctor.targets.frameworks.looking import find_package
from proctor.targets.frameworks.recognise import FUNCTION_PAGE, find_page

_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
_KEEPS = ("messages", "memory", "chat_history")
"""Members in which agents of frameworks keep their conversation."""
_AT_ONCE = re.compile(r"already (?:processing|running|in use)|concurrent(?:ly)? (?:invo|use|run|call|request)", re.IGNORECASE)

_ONE_AT_A_TIME = (
    "the agent answers one message at a time: make it in the function, one for each session_id, or run one case at a time with -j 1"
)


def find_agent_object(function: object) -> object | None:
    """Return the agent of a framework that is called itself, or whose method is; None for a function of anybody's."""
    # Of bound methods only: a function written in C has a `__self__` too, which is its module.
    owner = getattr(function, "__self__", None) if hasattr(function, "__func__") else function
    if owner is None or isinstance(owner, type) or find_page(owner) == FUNCTION_PAGE:
        return None
    return owner


def describe_shared_agent(function: object, name: str) -> str | None:
    """Return a warning where the target is an agent that keeps its conversation, which all cases then share."""
    agent = find_agent_object(function)
    if agent is None or not _keeps_conversation(agent):
        return None
    kind = f"{find_package(agent).partition('.')[0]} {type(agent).__name__}"
    return (
        f"warning: target {name!r} is one {kind} for all cases: what was said in one case it remembers in the next; "
        f"make it in a function for each session_id, see {find_page(agent)}"
    )


def _keeps_conversation(agent: object) -> bool:
    try:
        return any(getattr(agent, member, None) is not None for member in _KEEPS)
    except Exception:  # an object of somebody else's may do anything when it is looked at; then it is unknown to keep any
        return False


def describe_exception(error: BaseException) -> str:
    """Return what was raised and where: the last line of the user's own code, and the line of the package that raised, if another did."""
    frames = traceback.extract_tb(error.__traceback__)
    text = exception_text(error)
    told = f"{type(error).__name__}: {text}"
    if not frames:
        return told
    last = frames[-1]
    own = next((frame for frame in reversed(frames) if _is_own(frame.filename)), None)
    places = [f"{Path(own.filename).name}:{own.lineno}"] if own is not None else []
    if own is not last:
        places.append(f"in {_shorten_path(last.filename)}:{last.lineno}")
    hint = f"; {_ONE_AT_A_TIME}" if _AT_ONCE.search(text) else ""
    return f"{told} ({', '.join(places)}){hint}"


def _is_own(file: str) -> bool:
    """Return whether a file is neither of an installed package nor of Python nor of proctor."""
    ours = str(Path(__file__).parents[1])
    return not (_INSTALLED.search(file) or file.startswith(("<", ours, sysconfig.get_path("stdlib"))))


def _shorten_path(file: str) -> str:
    """Return a path from its package on: `strands/agent/agent.py`."""
    found = list(_INSTALLED.finditer(file))
    return file[found[-1].end() :].replace("\\", "/") if found else Path(file).name
