"""HeldMessages: messages of many lanes in RAM, found by sequence and charged to one holder.

This is the common part of the two caches and the SpillBuffer: messages are found, taken out and forgotten. Each of the
three decides how messages come in, and which leave when memory is needed.
"""

from __future__ import annotations

from ...store.stored_message import StoredMessage
from ..accounting.budget import Holder
from ..accounting.charge import charge_of, charge_of_all
from .lanes_by_amount import LanesByAmount


class HeldMessages:
    """Messages by (lane number, sequence). The state lock guards it. O(1) unless a method says otherwise."""

    def __init__(self, holder: Holder, share_bytes: int) -> None:
        """Make it empty. share_bytes: most bytes of messages that it should hold."""
        self.holder = holder
        self._share_bytes = share_bytes
        # Only lanes with messages. The messages of a lane are in the order in which they came here.
        self._lanes: dict[int, dict[int, StoredMessage]] = {}
        self._lanes_by_amount = LanesByAmount(self._amount_of)
        # How many messages loads and browsers found here, so that they did not have to read them.
        self.served = 0

    @property
    def share_bytes(self) -> int:
        """Most bytes that it should hold."""
        return self._share_bytes

    def peek(self, lane_number: int, sequence: int) -> StoredMessage | None:
        """Return the message, which stays. None: it is not here."""
        messages = self._lanes.get(lane_number)
        return messages.get(sequence) if messages else None

    def take(self, lane_number: int, sequence: int) -> StoredMessage | None:
        """Return the message and remove it with its charge. None: it is not here."""
        messages = self._lanes.get(lane_number)
        if not messages:
            return None
        message = messages.pop(sequence, None)
        if message is not None:
            self.holder.release(charge_of(message))
            if not messages:
                self._leave(lane_number)
        return message

    def shares_messages(self, lane_number: int) -> bool:
        """Return whether other lanes may need the lane's messages, so that taking one frees no memory."""
        return False

    def has(self, lane_number: int) -> bool:
        """Return whether a message of the lane is here."""
        return bool(self._lanes.get(lane_number))

    def may_have(self, lane_number: int, last: int) -> bool:
        """Return whether messages of the lane up to `last` may be here: true if any message of the lane is here.

        The SpillBuffer compares `last` with the lowest sequence of the lane.
        """
        return bool(self._lanes.get(lane_number))

    def discard_run(self, lane_number: int, first: int, last: int) -> None:
        """Drop the lane's messages of a run. O(messages of the run, or that are here: the fewer of the two)."""
        held = self._messages_for(lane_number)
        if last - first < len(held):
            for sequence in range(first, last + 1):
                self.take(lane_number, sequence)
            return
        for sequence in [sequence for sequence in held if first <= sequence <= last]:
            self.take(lane_number, sequence)

    def _messages_for(self, lane_number: int) -> dict[int, StoredMessage]:
        """Return the messages among which all messages of the lane are."""
        return self._lanes.get(lane_number, {})

    def discard_lane(self, lane_number: int) -> None:
        """Drop all messages of a lane. O(messages of the lane here)."""
        messages = self._lanes.get(lane_number)
        if messages is not None:
            self._leave(lane_number)
            self.holder.release(charge_of_all(list(messages.values())))

    def _leave(self, lane_number: int) -> None:
        """Forget a lane without messages."""
        del self._lanes[lane_number]
        self._lanes_by_amount.forget(lane_number)

    def _amount_of(self, lane_number: int) -> int:
        """Return how much a lane has, for choosing the lane that gives memory back first."""
        return len(self._lanes[lane_number])

    def audit(self) -> int:
        """Return the charge of everything here, computed anew."""
        return sum(charge_of(message) for messages in self._lanes.values() for message in messages.values())

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def _check(self) -> None:
        assert self.audit() == self.holder.held_bytes
        assert all(self._lanes.values())
        assert len(self._lanes_by_amount) == len(self._lanes)
        self._lanes_by_amount._check()
