"""Take: a take of several messages under way, with what it has got and what it may still get."""

from __future__ import annotations

from ..model.delivery import Delivery
from ..model.destination import CoreConsumer


class Take:
    """One take of a consumer while messages of one list after the other are dispatched for it."""

    __slots__ = ("consumer", "most", "bytes_left", "deliveries")

    def __init__(self, consumer: CoreConsumer, most: int, max_bytes: int | None) -> None:
        """Make a take that has got nothing. most, max_bytes: see Dispatcher.dispatch."""
        self.consumer = consumer
        # How many messages it may get in total.
        self.most = most
        # How many more bytes it may get. None: any number.
        self.bytes_left = max_bytes
        # What it has got so far.
        self.deliveries: list[Delivery] = []
