"""Writes logs: one JSON object per line, about requests and workers, without what was sent.

A request is logged with its method, the template of its route (never the address itself, which may hold ids of others), status,
milliseconds, the id of the key and the request id. Only with `log_content` the beginning of its body, redacted, is there too.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from typing import TextIO

from proctor.service.hub import stamp

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class JsonLineFormatter(logging.Formatter):
    """Writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["error"] = type(error).__name__
            # Where, and not what: messages of errors quote what was sent.
            frames = traceback.extract_tb(error.__traceback__)[-8:]
            line["trace"] = [f"{frame.filename.rpartition('/src/')[2]}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line, ensure_ascii=True, default=str)


def log_to_stream(stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Send the logs of the service and of its server to a stream, standard error by default."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLineFormatter())
    # All of ours: whatever logger had no handler would be written as it is, with what was sent.
    for name in ("proctor", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level if name == "proctor" else logging.WARNING)
        logger.propagate = False
