"""The log: one line an event, as text or as JSON. It has no rows, texts, labels or keys."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Literal

import orjson

Format = Literal["text", "json"]


class JsonLines(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, perhaps more."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record; a traceback is one string in it."""
        event = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        request_id = getattr(record, "request_id", None)
        if request_id is not None:
            event["request_id"] = request_id
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(event).decode()


def start_log(style: Format) -> None:
    """Write warnings and errors to standard error from now on."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if style == "json" else text)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    # uvicorn warns of every request that is no HTTP: strangers could fill the log with it, and a
    # server whose log nobody reads waits at its next line.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
