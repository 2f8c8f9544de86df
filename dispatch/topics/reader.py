"""TopicReader: reads a topic from a place on, and goes on with what is sent, without a name and without acks owed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from ...store.errors import Closed
from ..consumer.consumer import Consumer
from ..core.deliveries.delivery import Delivery, is_in_flight

ITERATED_MESSAGES: Final = 100
"""Messages that an iteration takes at a time."""


class TopicReader:
    """Made by `Topic.reader`. A context manager; iterating it waits for what is sent next. One thread at a time.

    What `take` returned is settled by the next `take`, so its bodies can be read until then. Nothing of a reader is on
    disk: it ends with `close`, the store, or a crash. What it has not read yet stays in the store while it is open.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._taken: list[Delivery] = []

    def take(
        self, max_messages: int = 1, *, timeout: float | None = 0.0, max_bytes: int | None = None
    ) -> list[Delivery]:
        """Return up to max_messages that come next, at least one if there is one; [] after timeout seconds.

        max_bytes and timeout: as of Consumer.take. No ack is owed. Raises Closed.
        """
        self._settle()
        self._taken = self._consumer.take(max_messages, timeout=timeout, max_bytes=max_bytes)
        return list(self._taken)

    def __iter__(self) -> Iterator[Delivery]:
        """Yield what exists from the place on, then what is sent, as it comes; ends when reader or store is closed."""
        while True:
            try:
                taken = self.take(ITERATED_MESSAGES, timeout=None)
            except Closed:
                return
            yield from taken

    def _settle(self) -> None:
        held = [delivery for delivery in self._taken if is_in_flight(delivery)]
        self._taken = []
        if held:
            self._consumer.ack(held)

    def close(self) -> None:
        """End it: nothing stays in the store for it any more. A take that waits raises Closed. Twice is once."""
        with suppress(Closed):
            self._settle()
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<TopicReader of {self._consumer.destination.name!r}>"
