"""Log lines that say which run, step, attempt and request they come from, as JSON or as text.

`configure(format="json")` sets a program up. The formatters and the filter work in a configuration of your
own, too; once there is one of them, drives say where their code is at work.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import traceback
import warnings
from collections.abc import Collection
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, TextIO

from everstep.errors import BadRequest
from everstep.runtime.live.at_work import AT_WORK, REQUEST
from everstep.runtime.live.log_text import without_secrets
from everstep.runtime.services import Services

__all__ = [
    "FORMATS",
    "LEVELS",
    "JsonFormatter",
    "PlaceFilter",
    "TextFormatter",
    "configure",
    "finish",
    "writes_json",
]

LEVELS = ("debug", "info", "warning", "error", "critical")
FORMATS = ("json", "text")
LevelName = Literal["debug", "info", "warning", "error", "critical"]
FormatName = Literal["json", "text"]
OUTPUT = ("stdout", "stderr")
"""The loggers of what the program prints, with JSON."""
_PLACE = ("run", "step", "attempt", "request_id")


class PlaceFilter(logging.Filter):
    """Notes on each record where it comes from: `run`, `step`, `attempt`, `request_id`, none where unknown.

    A handler of your own needs it only if its formatter runs on another thread, or uses `%(run)s`.
    """

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        Services.notes_at_work = True

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in _place(record).items():
            setattr(record, name, value)
        return True


class JsonFormatter(logging.Formatter):
    """Writes a record as a JSON object on one line, without tokens and what a name says is a secret."""

    def __init__(self) -> None:
        super().__init__()
        Services.notes_at_work = True

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(_message(record)),
            **_place(record),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = _error(record.exc_info[1])
        if (span := _span()) is not None:
            line["trace_id"], line["span_id"] = span
        return json.dumps(line)


class TextFormatter(logging.Formatter):
    """Writes a record for people: time, level, logger, message, and where it comes from if known."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        Services.notes_at_work = True

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  the name that logging calls
        known = [f"{name} {value}" for name, value in _place(record).items() if value]
        return super().formatMessage(record) + (f" [{', '.join(known)}]" if known else "")

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(map(without_secrets, super().format(record).split("\n")))


def configure(
    *,
    level: LevelName | None = None,
    format: FormatName = "text",
    stream: TextIO | None = None,
    output: Collection[str] = OUTPUT,
) -> None:
    """Have all log lines of this process written to a stream, by default stderr, in one form.

    Warnings of Python and exceptions that nothing catches are lines, too; with `"json"`, so is each line that
    the program prints to the streams that `output` names. Without a level, warnings are shown, and what
    workers and the service tell of.
    """
    if format not in FORMATS:
        raise BadRequest(f"the log format is {format!r:.60}.", fix=f"Use one of {', '.join(FORMATS)}.")
    if level is not None and level not in LEVELS:
        raise BadRequest(f"the log level is {level!r:.60}.", fix=f"Use one of {', '.join(LEVELS)}.")
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, _Handler)]:
        root.removeHandler(old)
    root.addHandler(_Handler(stream or _inner(sys.stderr), is_json=format == "json"))
    root.setLevel(logging.WARNING if level is None else level.upper())
    for name in ("everstep.worker", "everstep.access"):
        logging.getLogger(name).setLevel(logging.INFO if level is None else logging.NOTSET)
    warnings.showwarning = _show_warning
    sys.excepthook = _on_exception
    threading.excepthook = _on_thread_exception
    if format == "json":
        for name in output:
            logging.getLogger(name).setLevel(logging.INFO)  # what is printed is never lost
            if not isinstance(getattr(sys, name), _Lines):
                setattr(sys, name, _Lines(name, getattr(sys, name)))


def finish() -> None:
    """Log what was printed and has no end of line yet: for a process that is about to end."""
    for name in OUTPUT:
        stream = getattr(sys, name)
        if isinstance(stream, _Lines):
            stream.finish()


def writes_json() -> bool:
    """True if `configure` has set this process up to log as JSON."""
    return any(isinstance(handler, _Handler) and handler.is_json for handler in logging.getLogger().handlers)


class _Handler(logging.StreamHandler[TextIO]):
    """The handler that `configure` sets."""

    def __init__(self, stream: TextIO, *, is_json: bool) -> None:
        super().__init__(stream)
        self.is_json = is_json
        self.setFormatter(JsonFormatter() if is_json else TextFormatter())


class _Lines(io.TextIOBase):
    """Stands in for stdout or stderr: each line that is written there is logged."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, name: str, inner: TextIO) -> None:
        self.inner = inner
        """The stream that it stands before."""
        self._log = logging.getLogger(name)
        self._lock = threading.Lock()
        self._open: dict[int, str] = {}
        """Of each thread, a line that has not ended."""
        self._busy = threading.local()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if getattr(self._busy, "is_so", False):  # what logging says of itself when it cannot log
            return self.inner.write(text)
        thread = threading.get_ident()
        with self._lock:
            *lines, last = (self._open.pop(thread, "") + text).split("\n")
            if last:
                self._open[thread] = last
        self._busy.is_so = True
        try:
            for line in filter(str.strip, lines):
                self._log.info("%s", line)
        finally:
            self._busy.is_so = False
        return len(text)

    def flush(self) -> None:
        return

    def finish(self) -> None:
        """Log what has no end of line yet."""
        with self._lock:
            rest, self._open = list(self._open.values()), {}
        for line in rest:
            self._log.info("%s", line)

    def fileno(self) -> int:
        return self.inner.fileno()


def _inner(stream: Any) -> TextIO:
    found: TextIO = stream.inner if isinstance(stream, _Lines) else stream
    return found


def _place(record: logging.LogRecord) -> dict[str, Any]:
    """Return where a record comes from: as it says itself, else what runs here."""
    here = AT_WORK.get()
    place: dict[str, Any] = {
        "run": here.run if here is not None else None,
        "step": here.step or None if here is not None else None,
        "attempt": here.attempt or None if here is not None else None,
        "request_id": REQUEST.get() or None,
    }
    said = vars(record)
    return {name: _as_json(said.get(name)) or place[name] for name in _PLACE}


def _as_json(said: object) -> str | int | None:
    """Return what a program notes of a place itself, as text unless it is a number: no line is lost."""
    if said is None or isinstance(said, int):
        return said
    try:
        return without_secrets(str(said))
    except Exception as error:
        return f"<{type(said).__name__}: {error!r}>"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # arguments that do not fit: what was to be said is better than nothing
        return f"{record.msg} {record.args!r} ({error!r})"


def _error(error: BaseException) -> dict[str, str]:
    trace = "".join(traceback.format_exception(error))
    return {
        "type": type(error).__name__,
        "message": without_secrets(str(error)),
        "traceback": "\n".join(map(without_secrets, trace.splitlines())),
    }


def _span() -> tuple[str, str] | None:
    """Return the trace and the span that are current, if this program uses OpenTelemetry."""
    trace_api: Any = sys.modules.get("opentelemetry.trace")
    found = trace_api.get_current_span().get_span_context() if trace_api is not None else None
    if found is None or not found.is_valid:
        return None
    return f"{found.trace_id:032x}", f"{found.span_id:016x}"


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    logging.getLogger("py.warnings").warning("%s: %s (%s:%d)", category.__name__, message, filename, lineno)


def _on_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger("everstep").critical("process ended: %s", kind.__name__, exc_info=(kind, error, trace))


def _on_thread_exception(given: threading.ExceptHookArgs) -> None:
    name = given.thread.name if given.thread is not None else "?"
    if given.exc_value is not None and not isinstance(given.exc_value, SystemExit):
        exc_info = (given.exc_type, given.exc_value, given.exc_traceback)
        logging.getLogger("everstep").error(
            "thread %s ended: %s", name, given.exc_type.__name__, exc_info=exc_info
        )
