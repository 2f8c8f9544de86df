"""SelectorMatcher: decide which messages a selector matches, by what RAM holds of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from itertools import compress
from operator import itemgetter, not_
from typing import Final

from ....store.format.message_properties import (
    decode_properties,
    group_of,
    header_values,
    header_values_of_each,
    message_id_of,
)
from ....store.format.record import RecordDamaged
from ....store.index.fingerprint import BlockSurvey
from ....store.message import HeaderValue
from ....store.numbering import BLOCK_MASK
from ....store.stored_message import StoredMessage, properties_of, sequence_of
from ...selectors.selector import Selector
from .contracts import MessageSource
from .delivery import DeliveryLane

NO_NAMES: Final[frozenset[str]] = frozenset()
_body_of: Final[Callable[[StoredMessage], bytes | None]] = itemgetter(2)


class SelectorMatcher:
    """Decides which messages a selector matches. Without a selector it matches all."""

    __slots__ = ("selector",)

    def __init__(self, selector: Selector | None) -> None:
        self.selector = selector

    def wants(self, lane: DeliveryLane, message: StoredMessage, values: dict[str, HeaderValue] | None = None) -> bool:
        """Return whether the selector matches. O(selector). Headers are decoded only if they may decide the answer.

        values: the headers that the selector names, if the caller has decoded them already.
        """
        selector = self.selector
        if selector is None:
            return True
        if values is not None and not selector.field_names:
            return selector.condition.is_true(values)
        if selector.needles and not _holds_one(message[1], selector.needles):
            return False
        return selector.condition.is_true(values_of(lane, message, selector.field_names, selector.header_names))

    @property
    def header_names(self) -> frozenset[str]:
        """The headers that may be decoded for `verdict`, once for all groups that name the same."""
        selector = self.selector
        return NO_NAMES if selector is None or selector.field_names else selector.header_names

    @property
    def has_needles(self) -> bool:
        """Whether `verdict` decodes the headers of few messages, because a search of the bytes rejects most."""
        return self.selector is not None and bool(self.selector.needles)

    def decode(self, messages: Iterable[StoredMessage], survey: BlockSurvey | None) -> None:
        """Decode in one pass the fields that `examine` will need of these messages, as far as RAM holds them."""
        if survey is not None and self.selector is not None:
            held = [message for message in messages if message[2] is not None]
            indexes = [message[0] & BLOCK_MASK for message in held]
            survey.decode(indexes, [message[1] for message in held], self.selector.header_names)

    def scan_judge(self, survey: BlockSurvey | None, *, names_all: bool) -> ScanJudge | None:
        """Return a judge of many messages of a block together, which also adds their headers to the survey.

        None: `examine` must judge each message, because there is no survey, or the selector names fields.
        names_all: whether the judge must name all messages that do not match.
        """
        selector = self.selector
        if survey is None or selector is None or selector.field_names:
            return None
        return ScanJudge(self, selector, survey, names_all=names_all)

    def examine(self, lane: DeliveryLane, message: StoredMessage, survey: BlockSurvey | None) -> bool:
        """Judge as `wants` does, and add the headers to the survey, if there is one.

        Requires: the survey is of the message's block, and for headers that the selector names.
        """
        if survey is None or self.selector is None:
            return self.wants(lane, message)
        index = message[0] & BLOCK_MASK
        values = survey.noted.get(index)
        if values is None:
            values = values_of(lane, message, NO_NAMES, self.selector.header_names)
            survey.add(index, values)
        return self.wants(lane, message, values)

    def verdict(
        self, lane: DeliveryLane, message: StoredMessage, values: dict[str, HeaderValue] | None = None
    ) -> bool | None:
        """Judge as `wants` does. None: the headers are not in RAM or can't be decoded.

        In the second case the loader judges the message again, and reports it as unreadable.
        """
        if self.selector is not None and message[2] is None:
            return None
        try:
            return self.wants(lane, message, values)
        except RecordDamaged:
            return None


class ScanJudge:
    """Judges the messages of a load by their headers alone, and adds the headers to a survey.

    It decodes the headers of many messages in one pass. It is given columns, not messages, because machine code would
    make a new tuple of each message.
    """

    __slots__ = ("_matcher", "_selector", "_survey", "_names_all", "unwanted", "_undecided")

    def __init__(self, matcher: SelectorMatcher, selector: Selector, survey: BlockSurvey, *, names_all: bool) -> None:
        self._matcher = matcher
        self._selector = selector
        self._survey = survey
        self._names_all = names_all
        # Sequences of messages that do not match. Without names_all, those that were read from disk are left out.
        self.unwanted: set[int] = set()
        # Sequences of messages whose headers can't be decoded. They count as wanted; `examine` raises the error later.
        self._undecided: set[int] = set()

    def judge(self, sequences: Sequence[int], properties: Sequence[bytes]) -> list[bool]:
        """Return whether each message is wanted. Requires: there is one, and no message comes twice."""
        condition = self._selector.condition
        decoded = header_values_of_each(properties, self._selector.header_names)
        self._survey.take_in(sequences, decoded)
        wanted = [values is None or condition.is_true(values) for values in decoded]
        if self._names_all:
            self.unwanted.update(compress(sequences, map(not_, wanted)))
        # Each is compared with None, which takes longer, only if some headers are empty or None.
        if not all(decoded) and None in decoded:
            self._undecided.update([sequences[at] for at, values in enumerate(decoded) if values is None])
        return wanted

    def sort_out(self, held: list[StoredMessage]) -> list[StoredMessage]:
        """Judge messages that RAM had, and note all that do not match; return those that `examine` must judge.

        If one of them is lazy, `examine` must judge all, and their headers are only decoded here.
        """
        if _has_lazy(held):
            self._matcher.decode(held, self._survey)
            return held
        if held:
            sequences = list(map(sequence_of, held))
            wanted = self.judge(sequences, list(map(properties_of, held)))
            self.unwanted.update(compress(sequences, map(not_, wanted)))
        return self.undecided(held)

    def undecided(self, messages: list[StoredMessage]) -> list[StoredMessage]:
        """Return those of the messages that `examine` must judge."""
        undecided = self._undecided
        return [message for message in messages if message[0] in undecided] if undecided else []


def values_of(
    source: MessageSource, message: StoredMessage, fields: Set[str], names: frozenset[str] | None = None
) -> dict[str, HeaderValue]:
    """Return the values of a message that a selector may ask for: the given fields, and the named headers or all of
    them.

    Raise RecordDamaged if a value is not text.
    """
    properties = message[1]
    values: dict[str, HeaderValue] = {}
    if properties:
        values = decode_properties(properties)[0] if names is None else header_values(properties, names)
    if fields:
        own_id = message_id_of(properties) if "JMSMessageID" in fields else None
        values |= {
            "JMSPriority": source.priority,
            "JMSMessageID": own_id if own_id is not None else f"{source.id_prefix}{message[0]}",
            "JMSTimestamp": message[3],
            "JMSDeliveryMode": source.delivery_mode,
            "JMSXGroupID": group_of(properties) if "JMSXGroupID" in fields else None,
        }
    return values


def _has_lazy(messages: list[StoredMessage]) -> bool:
    """Return whether some message has no body. Each body is compared with None only if one is empty or None."""
    return not all(map(_body_of, messages)) and None in map(_body_of, messages)


def _holds_one(data: bytes, needles: Iterable[bytes]) -> bool:
    find = data.find  # `in` takes three times as long: it tries the needle as an int first, and drops the TypeError
    for needle in needles:  # any() of a generator takes six times as long
        if find(needle) >= 0:
            return True
    return False
