"""Delivery: one message handed out to one consumer, until it is acknowledged or goes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...store.format.properties import decode_properties, group_of
from ...store.format.record import RecordDamaged
from ...store.format.times import times_of
from ...store.message import HeaderValue

if TYPE_CHECKING:
    from ..consumer.consumer import Consumer
    from ..transactions.transaction import Transaction
    from .queue_area import LaneState


class Delivery:
    """What `take` returns. Settle it once, with `ack` or `nack`.

    Its body is charged to the DispatchArea until then. When bodies handed out
    hold half the memory limit already, the delivery is lazy: `body` reads the
    journal (or tmp-storage) on access, into the caller's own memory.
    """

    __slots__ = (
        "_consumer",
        "_area",
        "sequence",
        "_properties",
        "_body",
        "_timestamp",
        "attempts",
        "_number",
        "_group",
    )
    _group: str | None
    """Of a lazy delivery that a dealer made; else not set."""

    def __init__(
        self,
        consumer: Consumer,
        area: LaneState,
        sequence: int,
        properties: bytes,
        body: bytes | None,
        timestamp: int,
        attempts: int,
        number: int,
    ) -> None:
        self._consumer = consumer
        self._area = area
        self.sequence = sequence
        """Place in its lane, that is among the messages of this priority in this destination."""
        self._properties = properties
        self._body = body
        self._timestamp = timestamp
        self.attempts = attempts
        """1 at the first delivery."""
        self._number = number
        """Counts the deliveries of its consumer."""

    @property
    def body(self) -> bytes:
        """O(1); one read of the journal when the delivery is lazy. StoreFailed when that read fails."""
        if self._body is None:
            return self._load()[2] or b""
        return self._body

    @property
    def headers(self) -> dict[str, HeaderValue]:
        """A new dict each time; decoded now. O(bytes of the headers). StoreFailed when they make no sense."""
        return self._decoded()[0]

    def _decoded(self) -> tuple[dict[str, HeaderValue], str | None]:
        properties = self._load()[1] if self._body is None else self._properties
        try:
            return decode_properties(properties) if properties else ({}, None)
        except RecordDamaged as damage:
            raise self._area.not_read(str(damage)) from None

    @property
    def group(self) -> str | None:
        """The group it was sent with. O(1); one read of the journal when the delivery is lazy."""
        properties = self._load()[1] if self._body is None else self._properties
        try:
            return group_of(properties)
        except RecordDamaged as damage:
            raise self._area.not_read(str(damage)) from None

    @property
    def id(self) -> str:
        """The message id that send returned."""
        own = self._decoded()[1]
        return own if own is not None else f"{self._area.id_prefix}{self.sequence}"

    @property
    def timestamp(self) -> int:
        """When it was sent, in ms since 1970 (UTC)."""
        return self._load()[3] if self._body is None else self._timestamp

    @property
    def expires_at(self) -> int | None:
        """From when on nobody is handed it any more, in ms since 1970 (UTC); None: never."""
        properties = self._load()[1] if self._body is None else self._properties
        return times_of(properties).expires_at or None

    @property
    def priority(self) -> int:
        return self._area.lane.priority

    @property
    def persistent(self) -> bool:
        """False: it was sent so, and is lost when the process ends."""
        return self._area.is_persistent

    @property
    def destination(self) -> str:
        return self._area.queue.name

    def ack(self, transaction: Transaction | None = None) -> None:
        """Done with it: after this returns, or the transaction commits, it is never delivered again."""
        self._consumer.ack(self, transaction=transaction)

    def nack(self, delay: float = 0.0) -> None:
        """Not done: it goes back to its place, to be delivered again after delay seconds."""
        self._consumer.nack(self, delay=delay)

    def _load(self) -> tuple[int, bytes, bytes | None, int]:
        return self._area.read_one(self.sequence)

    def __repr__(self) -> str:
        return f"<Delivery {self._area.id_prefix}{self.sequence} attempt {self.attempts}>"
