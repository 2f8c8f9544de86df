"""Logging that never calls a handler under a lock of ours.

A handler is a host's code: it may ship its records through the store, and would wait for the lock that the thread has.
What is logged inside a section waits, with its time and place, until whoever left the section passes by. Elsewhere it
is logged at once.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from typing import Final

from .locks import owned_locks

WAITING_MAX: Final = 10_000
"""Records that wait at a time; the oldest go first, and the loss is logged."""


class LateLogger:
    """As much of a `logging.Logger` as the library uses.

    event: what the record tells, in snake case: docs/reference/log-events.md lists them. One event may have several
    texts, and no event changes its name because its text does.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    @property
    def name(self) -> str:
        """Return the logger's name."""
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
        """Ask as Logger.isEnabledFor does."""
        return self._logger.isEnabledFor(level)

    def log(self, level: int, text: str, *values: object, event: str, exc_info: BaseException | None = None) -> None:
        """Log as Logger.log does. The record has the event as an attribute, so that a host need not parse the text."""
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
    """Log what waits. Does nothing inside a section, whose end calls this again."""
    if not _waiting or owned_locks():
        return
    if len(_waiting) == WAITING_MAX:
        logging.getLogger("forebay").warning(
            "more than %d log records waited: the oldest are lost", WAITING_MAX, extra={"event": "log_records_lost"}
        )
    for _ in range(len(_waiting)):
        try:
            logger, record = _waiting.popleft()
        except IndexError:  # another thread emits them, too
            return
        logger.handle(record)
