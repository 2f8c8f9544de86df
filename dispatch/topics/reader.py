"""TopicReader: read a topic from a chosen place on, and then its new messages, without acks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from ...store.errors import Closed
from ..config.checks import AT_ONCE
from ..consumer.consumer import Consumer
from ..core.model.delivery import Delivery, is_in_flight

ITERATED_MESSAGES: Final = 100
"""Most messages that iteration takes at a time."""


class TopicReader:
    """A reader, made by `Topic.reader`. A context manager; iteration waits for new messages.

    Use it in one thread at a time.

    Each `take` settles the messages of the previous one, so read their bodies before the next `take`. A reader is not
    on disk: it ends with `close`, with the store, or in a crash. While it is open, the store keeps what it has not
    read.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._taken: list[Delivery] = []

    def take(
        self, max_messages: int = 1, *, timeout: float | None = AT_ONCE, max_bytes: int | None = None
    ) -> list[Delivery]:
        """Return up to max_messages that come next, at least one if there is one; [] after timeout seconds.

        max_bytes and timeout: as in Consumer.take. No ack is needed. Raises Closed.
        """
        self._settle()
        self._taken = self._consumer.take(max_messages, timeout=timeout, max_bytes=max_bytes)
        return list(self._taken)

    def __iter__(self) -> Iterator[Delivery]:
        """Yield the messages from the place on, and then new messages as they arrive.

        Ends when the reader or the store is closed.
        """
        while True:
            try:
                taken = self.take(ITERATED_MESSAGES, timeout=None)
            except Closed:
                return
            yield from taken

    def _settle(self) -> None:
        """Settle the messages of the last take. If that fails, the next call tries again."""
        taken, self._taken = self._taken, []  # so that a close in another thread does not settle them too
        held = [delivery for delivery in taken if is_in_flight(delivery)]
        try:
            if held:
                self._consumer.ack(held)
        except BaseException:
            self._taken = taken
            raise

    def close(self) -> None:
        """End the reader, so that the store keeps nothing for it. A waiting take raises Closed.

        A second call does nothing.
        """
        try:
            with suppress(Closed):
                self._settle()
        finally:
            self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<TopicReader of {self._consumer.destination.name!r}>"
