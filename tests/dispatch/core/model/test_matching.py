"""Judging the messages of a load: those that surely do not match are left out, damaged ones are judged later."""

from __future__ import annotations

from itertools import compress
from typing import Any

import pytest

from forebay.dispatch.core.model.matching import SelectorMatcher
from forebay.dispatch.selectors.selector import compile_selector
from forebay.store.format.message_properties import encode_properties
from forebay.store.index.fingerprint import BlockSurvey, ExactFingerprint, fingerprint_of
from forebay.store.stored_message import StoredMessage

DAMAGED = b"\x0c\xc1"
"""Headers with a byte that MessagePack never uses."""


def message(sequence: int, part: int, body: bytes | None = b"body") -> StoredMessage:
    return sequence, encode_properties({"part": part, "region": "eu"}), body, 1


def sorted_out(
    messages: list[StoredMessage], selector: str = "part = 7", *, names_all: bool = True
) -> tuple[set[int], list[StoredMessage], list[StoredMessage], BlockSurvey]:
    """Return what goes, what matches, what is left to be judged, and what the survey took in.

    The first half of the messages are those that RAM had.
    """
    survey = BlockSurvey(frozenset({"part"}), 0)
    judge = SelectorMatcher(compile_selector(selector)).scan_judge(survey, names_all=names_all)
    assert judge is not None
    held, read = messages[: len(messages) // 2], messages[len(messages) // 2 :]
    wanted = judge.judge([message[0] for message in read], [message[1] for message in read])
    left = judge.sort_out(held) + judge.undecided(read)
    candidates = [message for message in held if message[0] not in judge.unwanted] + list(compress(read, wanted))
    return judge.unwanted, [message for message in candidates if message not in left], left, survey


def found_values(survey: BlockSurvey) -> list[Any]:
    """Return the values of the header in the fingerprint. Requires: there are few."""
    fingerprint = fingerprint_of(survey.pack()["part"])
    assert isinstance(fingerprint, ExactFingerprint)
    return fingerprint.values


def test_what_does_not_match_goes_and_nothing_is_left_to_be_judged() -> None:
    messages = [message(sequence, sequence % 8) for sequence in range(20)]
    unwanted, matches, left, survey = sorted_out(messages)
    assert matches == [messages[7], messages[15]] and left == []
    assert unwanted == set(range(20)) - {7, 15}
    assert survey.examined == (1 << 20) - 1
    assert set(found_values(survey)) == set(range(8))


def test_damaged_headers_are_left_to_be_judged_and_are_not_surveyed() -> None:
    """Only who judges them alone can say which message is damaged."""
    damaged: StoredMessage = (1, DAMAGED, b"body", 1)
    unwanted, matches, left, survey = sorted_out([message(0, 7), damaged, message(2, 8)])
    assert (matches, left) == ([message(0, 7)], [damaged])
    assert unwanted == {2}
    assert survey.examined == 0b101
    assert set(found_values(survey)) == {7, 8}


def test_of_messages_that_were_read_only_those_that_match_are_named_where_nobody_notes_the_others() -> None:
    """Of the messages that RAM had, each that does not match goes back to where it was."""
    damaged: StoredMessage = (3, DAMAGED, b"body", 1)
    messages = [message(0, 7), message(1, 8), message(2, 9), damaged, message(4, 7), message(5, 8)]
    unwanted, matches, left, survey = sorted_out(messages, names_all=False)
    assert (unwanted, matches, left) == ({1, 2}, [messages[0], messages[4]], [damaged])
    assert survey.examined == 0b110111


def test_messages_that_ram_had_may_be_behind_those_that_were_read() -> None:
    messages = [message(sequence, sequence) for sequence in (5, 9, 3, 7)]
    unwanted, matches, left, survey = sorted_out(messages)
    assert (unwanted, matches, left) == ({3, 5, 9}, [messages[3]], [])
    assert survey.examined == 0b1010101000


def test_where_all_are_damaged_nothing_is_surveyed() -> None:
    damaged: StoredMessage = (0, DAMAGED, b"body", 1)
    unwanted, matches, left, survey = sorted_out([damaged])
    assert (unwanted, matches, left, survey.examined) == (set(), [], [damaged], 0)


def test_message_without_headers_is_judged_by_what_it_lacks() -> None:
    bare: StoredMessage = (0, b"", b"body", 1)
    assert sorted_out([bare])[:3] == ({0}, [], [])
    assert sorted_out([bare], "part IS NULL")[:3] == (set(), [bare], [])


def test_where_a_message_is_lazy_all_that_ram_had_are_left_and_the_others_are_noted() -> None:
    """Its headers are not in RAM."""
    messages = [message(0, 8, None), message(1, 8), message(2, 7), message(3, 8)]
    unwanted, matches, left, survey = sorted_out(messages)
    assert (unwanted, matches, left, survey.examined) == ({3}, [messages[2]], messages[:2], 0b1110)


def test_empty_body_is_no_reason_to_judge_one_by_one() -> None:
    assert sorted_out([message(0, 8, b""), message(1, 7, b"")])[:3] == ({0}, [message(1, 7, b"")], [])


@pytest.mark.parametrize("selector", ["part = 7 AND JMSPriority = 4", None])
def test_where_a_selector_asks_for_fields_or_there_is_none_nothing_judges_many(selector: str | None) -> None:
    matcher = SelectorMatcher(compile_selector(selector) if selector is not None else None)
    assert matcher.scan_judge(BlockSurvey(frozenset({"part"}), 0), names_all=True) is None
