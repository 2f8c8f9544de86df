"""Batching: a send_many is divided into batches, and a batch knows what of it is left to store."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from simulated_bay import SimulatedBay

from forebay import ArgumentError, Message
from forebay.dispatch.producer.batching import Batch, Batching
from forebay.store.format.contents import Contents
from forebay.store.format.record import SLICE_MESSAGES_MAX

ITERABLES = [pytest.param(list, id="list"), pytest.param(iter, id="iterator")]


class Division:
    """Divides messages, and notes of each batch its priority, its persistence and its messages."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.batches: list[tuple[object, object, int]] = []
        self.prepared: list[int] = []
        """For each time that the destination was prepared for groups, how many batches had come before."""

    def divide(self, messages: Iterable[Message]) -> None:
        parts = SimulatedBay().sender_parts
        for batch in Batching(parts, self.ids, None, None, self._prepare_groups).batches(messages):
            count = len(batch.contents)
            assert batch.stored == 0 and len(batch.sizes) == len(batch.own_ids) == count
            self.batches.append((batch.priority, batch.persistent, count))
            self.ids += map(str, range(count))
            assert batch.stored == count

    def _prepare_groups(self, batch: Batch) -> None:
        self.prepared.append(len(self.batches))


@pytest.mark.parametrize("kind", ITERABLES)
def test_messages_that_are_alike_make_full_batches(kind: Callable[[list[Message]], Iterable[Message]]) -> None:
    division = Division()
    division.divide(kind([Message(b"x", {"n": number}) for number in range(SLICE_MESSAGES_MAX + 44)]))
    assert division.batches == [(4, True, SLICE_MESSAGES_MAX), (4, True, 44)]
    assert division.prepared == []


@pytest.mark.parametrize("kind", ITERABLES)
def test_another_priority_or_persistence_and_times_begin_a_batch(
    kind: Callable[[list[Message]], Iterable[Message]],
) -> None:
    messages = [
        Message(b"1"),
        Message(b"2", message_id="own"),
        Message(b"3", priority=9),
        Message(b"4", priority=9, persistent=False),
        Message(b"5", persistent=False),
        Message(b"6", expires_in=5.0),
        Message(b"7", delay=5.0),
        Message(b"8"),
    ]
    division = Division()
    division.divide(kind(messages))
    assert division.batches == [
        (4, True, 2),
        (9, True, 1),
        (9, False, 1),
        (4, False, 1),
        (4, True, 2),
        (4, True, 1),
    ]


def test_the_destination_is_prepared_for_a_batch_with_groups_before_it_comes() -> None:
    division = Division()
    division.divide(
        [Message(b"1"), Message(b"2", priority=1), Message(b"3", priority=1, group="tea"), Message(b"4"), Message(b"5")]
    )
    assert division.batches == [(4, True, 1), (1, True, 2), (4, True, 2)]
    assert division.prepared == [1]


@pytest.mark.parametrize("kind", ITERABLES)
def test_a_message_that_is_refused_keeps_its_batch_from_coming(
    kind: Callable[[list[Message]], Iterable[Message]],
) -> None:
    division = Division()
    refused = Message(b"3", headers=3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="headers"):
        division.divide(kind([Message(b"1", priority=1), Message(b"2"), refused]))
    assert division.batches == [(1, True, 1)]


def batch_of(ids: list[str]) -> Batch:
    """Return a batch of four messages, of which the second one has an id of its own."""
    return Batch(
        priority=4,
        persistent=True,
        contents=Contents([b""] * 4, [b"0", b"11", b"222", b"3333"]),
        sizes=[1, 2, 3, 4],
        own_ids=[None, "own", None, None],
        ids=ids,
        transaction=None,
        deadline=7.0,
    )


def test_a_batch_knows_what_of_it_is_left_whatever_its_call_has_stored_before() -> None:
    ids = ["of a batch before"]
    batch = batch_of(ids)
    assert batch.stored == 0 and batch.rest().sizes == [1, 2, 3, 4]
    ids.append("0")
    part = batch.next_part(2)
    assert (part.contents.bodies, part.sizes, part.own_ids) == ([b"11", b"222"], [2, 3], ["own", None])
    assert (batch.stored, part.stored) == (1, 0)
    ids += ["own", "2"]
    assert (batch.stored, part.stored, part.rest().sizes) == (3, 2, [])
    rest = batch.rest()
    assert (rest.contents.bodies, rest.own_ids, rest.priority, rest.deadline) == ([b"3333"], [None], 4, 7.0)


def test_a_batch_within_a_transaction_has_ids_of_its_own() -> None:
    bay, ids = SimulatedBay(), ["0"]
    batch = batch_of(ids)
    with bay.bay.transaction() as transaction:
        within = batch.within(transaction)
        within.ids.append("0")
        assert (within.stored, within.transaction, batch.stored, ids) == (1, transaction, 0, ["0"])
        assert within.rest().transaction is transaction
