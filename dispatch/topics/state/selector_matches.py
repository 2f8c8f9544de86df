"""SelectorMatches: which selectors of a topic's subscriptions match the message that is arriving."""

from __future__ import annotations

from typing import Final

from ....store.format.record import RecordDamaged
from ....store.message import HeaderValue
from ....store.stored_message import StoredMessage
from ...core.model.contracts import MessageSource
from ...core.model.delivery import DeliveryLane
from ...core.model.destination import SelectorGroup
from ...core.model.matching import values_of
from ...selectors.selector import FIELD_NAMES, Selector

NOBODY: Final = -1


class SelectorMatches:
    """Which selectors match the arriving message: each selector text is evaluated once, whoever has it."""

    __slots__ = ("_priority", "_sequence", "_values", "_matches")

    def __init__(self) -> None:
        self._priority = self._sequence = NOBODY
        self._values: dict[str, HeaderValue] | None = None
        self._matches: dict[str, bool] = {}

    def begin(self, priority: int, sequence: int) -> None:
        """Begin with the next message of the topic."""
        self._priority, self._sequence = priority, sequence
        self._values = None
        self._matches.clear()

    def finish(self) -> None:
        """Forget the message, because it has arrived everywhere."""
        self.begin(NOBODY, NOBODY)

    def is_about(self, lane: DeliveryLane, message: StoredMessage) -> bool:
        """Return whether a message is the persistent message that is arriving. Requires: the lock."""
        return lane.is_persistent and message[0] == self._sequence and lane.pending_lane.priority == self._priority

    def matches(self, selector: Selector, source: MessageSource, message: StoredMessage) -> bool:
        """Return whether a selector matches the arriving message. Requires: the lock, and that `is_about` is true."""
        is_match = self._matches.get(selector.text)
        if is_match is None:
            if self._values is None:
                self._values = values_of(source, message, FIELD_NAMES)
            is_match = self._matches[selector.text] = selector.matches(self._values)
        return is_match


class SubscriptionSelectorGroup(SelectorGroup):
    """The selector group of a subscription."""

    __slots__ = ("_selector_matches",)

    def __init__(self, selector: Selector | None, selector_matches: SelectorMatches) -> None:
        super().__init__(selector)
        self._selector_matches = selector_matches

    def wants(self, lane: DeliveryLane, message: StoredMessage, values: dict[str, HeaderValue] | None = None) -> bool:
        """Return whether a message matches. A non-persistent one does, because the FanOut has matched it already."""
        return not lane.is_persistent or super().wants(lane, message, values)

    def verdict(
        self, lane: DeliveryLane, message: StoredMessage, values: dict[str, HeaderValue] | None = None
    ) -> bool | None:
        """Return whether a message matches, as SelectorMatcher.verdict does. Requires: the lock.

        An arriving message is judged once for all subscriptions with the same selector.
        """
        if self.selector is None or not self._selector_matches.is_about(lane, message):
            return super().verdict(lane, message, values)
        try:
            return self._selector_matches.matches(self.selector, lane, message)
        except RecordDamaged:
            return None
