"""The state: destinations, next sequences, data logs and counts come back, and damage is told from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.store.format.branch import Branch, PlacedSlice
from forebay.store.format.imports import ImportRecord
from forebay.store.format.record import NUMBERS, RecordDamaged
from forebay.store.format.state_record import (
    NAME_BYTES_MAX,
    QUEUE,
    TOPIC,
    Destination,
    LaneCounts,
    StateRecord,
    Subscription,
    SubscriptionBacklog,
    UseCounts,
    decode_destination,
    decode_root,
    decode_state,
    decode_subscription,
    decode_unsubscribe,
    encode_counts,
    encode_destination,
    encode_root,
    encode_state,
    encode_subscription,
    encode_unsubscribe,
)

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
NUMBER = st.integers(0, NUMBERS - 1)
NAMES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=NAME_BYTES_MAX // 4)
DESTINATIONS = st.builds(Destination, NUMBER, st.integers(0, 1), NAMES, st.booleans())
SUBSCRIPTIONS = st.builds(Subscription, NUMBER, NUMBER, NAMES, st.none() | st.text(min_size=1))
STATES = st.builds(
    StateRecord,
    st.lists(DESTINATIONS, max_size=4),
    st.dictionaries(U64, U64, max_size=4),
    st.lists(U32, max_size=6),
    subscriptions=st.lists(SUBSCRIPTIONS, max_size=4),
    next_number=NUMBER,
    open_transactions=st.lists(U64, max_size=4),
)
LANES = st.builds(LaneCounts, U64, U64, U64, U64)
IDS = st.lists(U32, max_size=5).map(tuple)
USES = st.builds(UseCounts, U32, U64, U64, IDS, IDS)

RUNS = st.lists(st.tuples(U64, U64), max_size=3).map(tuple)
MASKS = st.lists(st.tuples(U64, st.integers(0, 2**512 - 1)), max_size=3).map(tuple)
BACKLOGS = st.builds(SubscriptionBacklog, U64, U64, RUNS, MASKS)

STATE = StateRecord(
    [Destination(1, QUEUE, "orders"), Destination(2, QUEUE, "ß"), Destination(3, TOPIC, "prices")],
    {20: 7, 36: 2**40},
    [1, 2, 9],
)
STATE.subscriptions = [Subscription(4, 3, "audit", "n > 1")]
STATE.branches.append(Branch(2**40, b"xid"))
STATE.open_transactions.append(2**40 + 1)
STATE.branches[0].add(20, 2 << 32 | 64, 3, 500)
STATE.branches[0].acknowledge(36, 5, 2**40 - 1)
ROOT = encode_root(
    STATE,
    encode_counts(STATE, [LaneCounts(20, 7, 3, 300)], [UseCounts(1, 3, 300, (), (2,)), UseCounts(2, 0, 0, (1, 9))]),
    [SubscriptionBacklog(68, 700, ((0, 2), (5, 5)), ((5, 2**511 + 1),))],
)


@given(DESTINATIONS)
def test_destination_comes_back(destination: Destination) -> None:
    assert decode_destination(encode_destination(destination)) == destination


def test_the_longest_name_fits() -> None:
    destination = Destination(NUMBERS - 1, QUEUE, "x" * NAME_BYTES_MAX)
    assert decode_destination(encode_destination(destination)) == destination


@given(STATES)
def test_state_comes_back(state: StateRecord) -> None:
    assert decode_state(encode_state(state)) == state


@given(STATES, U64, st.lists(LANES, max_size=4), st.lists(USES, max_size=4), st.lists(BACKLOGS, max_size=3))
def test_root_comes_back(
    state: StateRecord,
    log_sequence: int,
    lanes: list[LaneCounts],
    uses: list[UseCounts],
    backlogs: list[SubscriptionBacklog],
) -> None:
    state.next_log_sequence = log_sequence
    assert decode_root(encode_root(state, encode_counts(state, lanes, uses), backlogs)) == (
        state,
        lanes,
        uses,
        backlogs,
    )


@given(SUBSCRIPTIONS)
def test_subscription_comes_back(subscription: Subscription) -> None:
    assert decode_subscription(encode_subscription(subscription)) == subscription
    assert decode_unsubscribe(encode_unsubscribe(subscription.number)) == subscription.number


def test_kind_of_a_subscription_that_nobody_knows_is_damage() -> None:
    data = bytearray(encode_subscription(Subscription(4, 3, "audit", None)))
    data[8] = 2
    with pytest.raises(RecordDamaged, match="of kind 2"):
        decode_subscription(bytes(data))


def test_branches_come_back() -> None:
    for decoded in (decode_state(encode_state(STATE)), decode_root(ROOT)[0]):
        (branch,) = decoded.branches
        assert (branch.number, branch.xid, branch.messages) == (2**40, b"xid", 3)
        assert list(branch) == [PlacedSlice(20, 2 << 32 | 64, 3, 500)]
        assert list(branch.runs()) == [(36, 5, 2**40 - 5)]
        assert decoded.open_transactions == [2**40 + 1]


def test_imports_come_back_and_any_cut_through_them_is_damage() -> None:
    marks = [ImportRecord("day-1", bytes(range(16)), 1000, 300), ImportRecord("day-2", bytes(16), 1, 0)]
    state, bare = replace(STATE, imports=marks), len(encode_state(STATE))
    assert decode_root(encode_root(state, encode_counts(state, [], [])))[0].imports == marks
    data = encode_state(state)
    assert decode_state(data).imports == marks
    for length in range(bare + 1, len(data)):
        with pytest.raises(RecordDamaged):
            decode_state(data[:length])
    with pytest.raises(RecordDamaged, match="another length"):
        decode_state(data[: bare + 1] + bytes([data[bare + 1] - 1]) + data[bare + 2 :])


def test_empty_state_is_six_counts_and_a_number() -> None:
    assert encode_state(StateRecord()) == bytes(28)
    assert decode_state(bytes(28)) == StateRecord()


def test_state_of_ten_thousand_destinations_stays_small() -> None:
    state = StateRecord([Destination(number, QUEUE, f"tenant.{number:05}") for number in range(10_000)])
    assert len(encode_state(state)) < 20 * 10_000


@pytest.mark.parametrize("decoder, data", [(decode_root, ROOT), (decode_state, encode_state(STATE))])
def test_any_cut_is_damage(decoder: Callable[[bytes], object], data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(RecordDamaged):
            decoder(data[:length])


@pytest.mark.parametrize("decoder", [decode_state, decode_root])
def test_counts_are_not_trusted(decoder: Callable[[bytes], object]) -> None:
    for data in (b"\xff" * 4, b"\xff" * 40, bytes(4) + b"\xff" * 4, bytes(8) + b"\xff\xff\xff\xff\x01\x02"):
        with pytest.raises(RecordDamaged):
            decoder(data)


def test_name_that_is_no_text_is_damage() -> None:
    with pytest.raises(RecordDamaged, match="not text"):
        decode_destination(bytes(5) + b"\x01\xff")


@pytest.mark.parametrize(
    "destination",
    [
        Destination(NUMBERS, QUEUE, "orders"),
        Destination(1, 7, "orders"),
        Destination(1, QUEUE, ""),
        Destination(1, QUEUE, "\x1b[2J"),
    ],
)
def test_destination_that_no_host_could_make_is_damage(destination: Destination) -> None:
    """The name would go to logs and terminals, the number to the next one that is made."""
    with pytest.raises(RecordDamaged):
        decode_destination(encode_destination(destination))


def meet(data: bytes) -> None:
    for decoder in (decode_destination, decode_subscription, decode_unsubscribe, decode_state, decode_root):
        try:
            decoder(data)
        except RecordDamaged:
            continue


@given(st.binary(max_size=120))
def test_decoders_meet_arbitrary_bytes(data: bytes) -> None:
    meet(data)


@given(st.binary(min_size=1, max_size=6), st.integers(0, len(ROOT)))
def test_decoders_meet_mutated_bytes(patch: bytes, at: int) -> None:
    meet(ROOT[:at] + patch + ROOT[at + len(patch) :])
    meet(ROOT[:at] + patch + ROOT[at:])
