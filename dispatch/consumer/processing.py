"""Processing: call a handler for each delivery and settle it, in threads, until the consumer ends.

If a handler returns, the delivery is acknowledged; if it raises, the delivery is given back. A delivery that the
handler settled itself is left alone. After a crash, a delivery that a handler was working on comes again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from inspect import iscoroutinefunction
from typing import Any, Final

from ...store.environment.late_log import LateLogger
from ...store.errors import ArgumentError, ForebayError, StateError, StoreFailed, argument_error
from ..core.model.delivery import Delivery, is_in_flight
from ..core.model.destination import lane_of

logger = LateLogger("forebay.dispatch")

REASON_LENGTH_MAX: Final = 500
"""How many characters of an exception's text a dead letter's header keeps."""

ExceptionTypes = type[Exception] | tuple[type[Exception], ...]


class NonRetryable:
    """The exceptions of a handler that mean that a message can never be processed."""

    def __init__(self, handler: object, concurrency: object, reject_on: object) -> None:
        """Check the arguments of `process`. ArgumentError, SettingsError."""
        if not callable(handler):
            raise ArgumentError(f"a handler must be callable, not {type(handler).__name__}")
        if type(concurrency) is not int or concurrency < 1:
            raise argument_error(f"concurrency must be an int from 1 on, not {concurrency!r}", concurrency, int)
        types = reject_on if isinstance(reject_on, tuple) else (reject_on,)
        if not all(isinstance(each, type) and issubclass(each, Exception) for each in types):
            raise ArgumentError(f"reject_on must be a class of exceptions or a tuple of them, not {reject_on!r}")
        self._types: tuple[Any, ...] = types

    def reason(self, error: BaseException) -> str | None:
        """Return the reason for which a message is a dead letter now. None: it may be tried again."""
        if not isinstance(error, self._types):
            return None
        try:
            text = str(error)
        except Exception:  # a class of the caller may raise anything
            text = ""
        name = type(error).__name__
        said = f"{name}: {text}" if text else name
        return said[:REASON_LENGTH_MAX].encode("utf-8", "replace").decode()


class MessageGroupTurns:
    """Gives handlers the messages of one group one after the other, each when the previous one is settled.

    A message that is taken while a handler has an earlier message of its group waits here. It is in flight, so
    `prefetch` and memory limit how many wait. If the earlier message is given back, all messages that wait are given
    back too, because they must not overtake it. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By message group: deliveries that wait until the handler of an earlier one has ended.
        self._waiting: dict[str, deque[Delivery]] = {}
        # The group of each delivery that a handler has, because a settled delivery can't be asked for it.
        self._groups: dict[Delivery, str] = {}
        # How often a delivery went back. Deliveries that were taken before the last time may belong behind it.
        self.returns = 0

    def begin(self, delivery: Delivery, returns: int) -> bool:
        """Return whether to handle the delivery now. If not, it waits here, or has gone back to its place.

        returns: the value of `returns` before it was taken. Requires: deliveries come here in the order of taking.
        """
        group = _group(delivery)
        if group is None:
            return True
        with self._lock:
            waiting = self._waiting.get(group)
            if waiting is not None:
                waiting.append(delivery)
                return False
            if returns == self.returns:
                self._waiting[group] = deque()
                self._groups[delivery] = group
                return True
            _return_untried(delivery)
        _run_callbacks(delivery)
        return False

    def finish(self, delivery: Delivery) -> Delivery | None:
        """End the turn of a settled delivery; return the next one of its group, to be handled now."""
        group = self._groups.pop(delivery, None)
        if group is None:
            return None
        with self._lock:
            waiting = self._waiting[group]
            if waiting:
                following = waiting.popleft()
                self._groups[following] = group
                return following
            del self._waiting[group]
        return None

    def go_back(self, delivery: Delivery) -> None:
        """Give back the deliveries that wait behind this one, because this one went back."""
        group = self._groups.pop(delivery, None)
        if group is None:
            return
        with self._lock:
            # All go back in one section: a delivery that is taken after it comes behind all of them.
            for behind in self._waiting.pop(group):
                _return_untried(behind)
            self.returns += 1
        _run_callbacks(delivery)


class Processing:
    """One handler for the deliveries of a consumer, called in any number of threads."""

    def __init__(
        self,
        handler: Callable[[Delivery], object],
        rejections: NonRetryable,
        take: Callable[[], Delivery | None],
    ) -> None:
        """Make it for one call of `process`.

        take: waits for the next delivery; None: there are no more.
        """
        if iscoroutinefunction(handler):
            raise ArgumentError("the handler is a coroutine function: a consumer of forebay.aio can await it")
        self._handler = handler
        self._rejections = rejections
        self._take = take
        self._taking = threading.Lock()
        self._turns = MessageGroupTurns()

    def run(self) -> None:
        """Handle deliveries until there are no more."""
        while (delivery := self._next()) is not None:
            following: Delivery | None = delivery
            while following is not None:
                following = self._handle(following)

    def _next(self) -> Delivery | None:
        with self._taking:  # one thread at a time, so that the messages of a group begin in order
            while True:
                returns = self._turns.returns
                delivery = self._take()
                if delivery is None or self._turns.begin(delivery, returns):
                    return delivery

    def _handle(self, delivery: Delivery) -> Delivery | None:
        """Call the handler and settle the delivery; return the next one of its group.

        Raises errors that are no Exception, and errors of settling.
        """
        is_done = False
        try:
            is_done = self._settle(delivery)
        finally:
            if not is_done:
                self._turns.go_back(delivery)
        return self._turns.finish(delivery) if is_done else None

    def _settle(self, delivery: Delivery) -> bool:
        """Call the handler and settle the delivery; return whether it is settled for good, not given back."""
        try:
            result = self._handler(delivery)
        except KeyboardInterrupt:
            give_back(delivery)  # KeyboardInterrupt says nothing about the message
            raise
        except Exception as error:
            report(delivery, error)
            return self._give_up(delivery, error)
        except BaseException:
            with suppress(ForebayError):
                delivery.nack()
            raise
        if isinstance(result, Coroutine):
            result.close()
            give_back(delivery)
            raise ArgumentError("the handler returned a coroutine: a consumer of forebay.aio can await it")
        if is_in_flight(delivery):
            with IgnoreSettled(delivery):
                delivery.ack()
                return True
        return not came_back(delivery)

    def _give_up(self, delivery: Delivery, error: Exception) -> bool:
        """Settle a delivery whose handler raised; return whether it is settled for good, not given back."""
        if is_in_flight(delivery):
            reason = self._rejections.reason(error)
            with IgnoreSettled(delivery):
                if reason is None:
                    delivery.nack()
                else:
                    delivery.reject(reason)
        return not came_back(delivery)


class IgnoreSettled:
    """Ignores a StateError if a delivery was settled elsewhere meanwhile, for example because its queue was deleted."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, traceback: object) -> bool:
        return isinstance(error, StateError) and not is_in_flight(self._delivery)


def give_back(delivery: Delivery) -> None:
    """Return a delivery to its place without counting an attempt, unless it is settled. Ignores ForebayError."""
    _return_untried(delivery)
    _run_callbacks(delivery)


def _return_untried(delivery: Delivery) -> None:
    """Return a delivery as `give_back` does; the caller calls `_run_callbacks` once it holds no lock."""
    if is_in_flight(delivery):
        with suppress(ForebayError):
            delivery.consumer.return_untried((delivery,))


def _run_callbacks(delivery: Delivery) -> None:
    """Call the callbacks that are due because deliveries of this consumer went back. Ignores ForebayError."""
    with suppress(ForebayError):
        lane_of(delivery).destination.monitor.run_deferred()


def came_back(delivery: Delivery) -> bool:
    """Return whether a settled delivery is in its place again, to be delivered once more."""
    lane = lane_of(delivery)
    with lane.destination.monitor.lock:
        if delivery.sequence in lane.parked:
            return False
        return lane.pending_lane.is_pending(delivery.sequence) and delivery.sequence not in lane.dead_letters


def _group(delivery: Delivery) -> str | None:
    """Return the group of a message, or None if the message can't be read any more."""
    try:
        return delivery.group
    except StoreFailed:
        return None


def report(delivery: Delivery, error: BaseException) -> None:
    """Log that a handler failed."""
    logger.error(
        "a handler raised %s at attempt %d of a message of %r",
        type(error).__name__,
        delivery.attempts,
        delivery.destination,
        event="handler_raised",
        exc_info=error,
    )


def run_in_threads(work: Callable[[], None], threads: int, stop: Callable[[], None]) -> None:
    """Run work in this thread and in others until it has returned in all of them; raise the first error.

    stop: called when work has raised in one thread, to make it return in the others.
    """
    errors: list[BaseException] = []

    def work_beside() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)
            with suppress(ForebayError):
                stop()

    begun: list[threading.Thread] = []
    try:
        for number in range(1, threads):
            thread = threading.Thread(target=work_beside, name=f"forebay-process-{number}")
            thread.start()
            begun.append(thread)
        work()
    except BaseException:
        with suppress(ForebayError):
            stop()
        raise
    finally:
        for thread in begun:
            thread.join()
    if errors:
        raise errors[0]
