"""Logging that never calls a handler under a lock of the library.

A handler is a host's code. It may send its log records through the store, and would then wait for a lock that its own
thread holds. So a record that is logged inside a section waits, with its time and place, until a thread has left the
section. Outside of sections a record is logged at once.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from typing import Final

from .locks import owned_locks

WAITING_MAX: Final = 10_000
"""Most records that wait. Beyond it the oldest are dropped, and the loss is logged."""


class LateLogger:
    """The part of `logging.Logger` that the library uses.

    event: what happened, in snake case; docs/reference/log-events.md lists all events. One event may have several
        texts, and its name never changes with a text.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    @property
    def name(self) -> str:
        """The name of the logger."""
        return self._logger.name

    def debug(self, text: str, *values: object, event: str) -> None:
        """Log as Logger.debug does."""
        self.log(logging.DEBUG, text, *values, event=event)

    def info(self, text: str, *values: object, event: str) -> None:
        """Log as Logger.info does."""
        self.log(logging.INFO, text, *values, event=event)

    def warning(self, text: str, *values: object, event: str) -> None:
        """Log as Logger.warning does."""
        self.log(logging.WARNING, text, *values, event=event)

    def error(self, text: str, *values: object, event: str, exc_info: BaseException | None = None) -> None:
        """Log as Logger.error does."""
        self.log(logging.ERROR, text, *values, event=event, exc_info=exc_info)

    def exception(self, text: str, *values: object, event: str) -> None:
        """Log as Logger.exception does."""
        self.log(logging.ERROR, text, *values, event=event, exc_info=sys.exc_info()[1])

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name that it has there
        """Return whether the level is enabled, as Logger.isEnabledFor does."""
        return self._logger.isEnabledFor(level)

    def log(self, level: int, text: str, *values: object, event: str, exc_info: BaseException | None = None) -> None:
        """Log as Logger.log does. The record has the event as an attribute, so a host need not parse the text."""
        if not self._logger.isEnabledFor(level):
            return
        locks = owned_locks()
        if not locks:
            emit_late()
            self._logger.log(level, text, *values, exc_info=exc_info, stacklevel=3, extra={"event": event})
            return
        path, line, function, _ = self._logger.findCaller(stacklevel=3)
        error = (type(exc_info), exc_info, exc_info.__traceback__) if exc_info is not None else None
        waiting = self._logger.makeRecord(
            self._logger.name, level, path, line, text, values, error, function, extra={"event": event}
        )
        _waiting.append((self._logger, waiting))
        for lock in locks:
            if lock.on_late is not None:
                lock.on_late()


_waiting: deque[tuple[logging.Logger, logging.LogRecord]] = deque(maxlen=WAITING_MAX)


def emit_late() -> None:
    """Log the records that wait. Inside a section this does nothing; the end of the section calls it again."""
    if not _waiting or owned_locks():
        return
    if len(_waiting) == WAITING_MAX:
        logging.getLogger("forebay").warning(
            "more than %d log records waited: the oldest are lost", WAITING_MAX, extra={"event": "log_records_lost"}
        )
    for _ in range(len(_waiting)):
        try:
            logger, record = _waiting.popleft()
        except IndexError:  # another thread emits records too
            return
        logger.handle(record)
