"""SpillBuffer against a plain model, and at its edges."""

from __future__ import annotations

from random import Random

import pytest
from tmp_storages import numbered

from forebay.cache.accounting.budget import Budget
from forebay.cache.spill.spill_buffer import BATCH_BYTES, BATCH_MESSAGES, SpillBuffer

POOL, LONE = 900, 901


def test_a_buffer_gives_batches_in_order_and_keeps_the_rest() -> None:
    buffer = SpillBuffer(Budget(64 << 20).holder("spill_buffer"), 1 << 20)
    messages = numbered(0, 600, 400)
    for message in sorted(messages, key=lambda message: message[0] % 7):
        buffer.put(1, message)
        buffer.put(2, message)
    buffer._check()
    first = buffer.batch(1)
    assert first == messages[: len(first)] and len(first) == BATCH_MESSAGES
    buffer.remove_written(1, first)
    assert buffer.batch(1)[0] == messages[BATCH_MESSAGES]
    assert not buffer.may_have(3, 1_000) and buffer.may_have(1, 1_000)
    assert (buffer.fullest(), buffer.keys) == (2, [1, 2])
    buffer.discard_lane(2)
    buffer._check()


def test_a_batch_is_as_large_as_one_write_and_one_message_of_any_size() -> None:
    buffer = SpillBuffer(Budget(64 << 20).holder("spill_buffer"), 1 << 20)
    large = [(n, b"", bytes(BATCH_BYTES + n), 0) for n in range(3)]
    for message in large:
        buffer.put(1, message)
    assert buffer.is_batch(1) and buffer.batch(1) == large[:1]


@pytest.mark.parametrize("seed", range(8))
def test_the_buffer_does_what_a_dict_of_sets_does(seed: int) -> None:
    random = Random(seed)
    buffer = SpillBuffer(Budget(64 << 20).holder("spill_buffer"), 1 << 20)
    messages = numbered(0, 40)
    # What each lane needs.
    model: dict[int, set[int]] = {LONE: set()}
    for _ in range(600):
        lane, n = random.choice((LONE, *range(6))), random.randrange(40)
        what = random.random()
        if lane not in model:
            buffer.join(lane, POOL)
            model[lane] = set()
        elif what < 0.5:
            assert buffer.put(lane, messages[n])
            model[lane].add(n)
        elif what < 0.8:
            assert buffer.take(lane, n) == (messages[n] if n in model[lane] else None)
            model[lane].discard(n)
        elif what < 0.85:
            buffer.discard_lane(lane)
            model[LONE].clear() if lane == LONE else model.pop(lane)
        elif what < 0.9:
            buffer.arriving = random.choice((None, (POOL, max(set().union(*_shared(model)), default=0))))
            batch = buffer.batch(POOL)
            needed = sorted(set().union(*_shared(model)))
            if buffer.arriving is not None:
                needed = needed[:-1]
            assert [message[0] for message in batch] == needed
            if batch:
                held = {
                    lane: {batch[at][0] for at in range(len(batch)) if bits >> at & 1}
                    for lane, bits in buffer.lanes_needing(POOL, batch)
                }
                expected = {lane: found & set(needed) for lane, found in model.items() if lane != LONE}
                assert held == {lane: found for lane, found in expected.items() if found}
                buffer.remove_written(POOL, batch)
                for found in _shared(model):
                    found.difference_update(needed)
        for lane, found in model.items():
            assert [buffer.peek(lane, n) is not None for n in range(40)] == [n in found for n in range(40)]
            assert buffer.has(lane) == bool(found) and (not found or buffer.may_have(lane, min(found)))
        assert len(buffer) == len(set().union(*_shared(model))) + len(model[LONE])
        buffer._check()


@pytest.mark.parametrize("lane", [LONE, 1])
def test_a_run_of_any_length_costs_what_is_here(lane: int) -> None:
    """A purge hands in one run for all that a queue or subscription has; the buffer has a few of it."""
    buffer = SpillBuffer(Budget(64 << 20).holder("spill_buffer"), 1 << 20)
    for sharing in (1, 2):
        buffer.join(sharing, POOL)
    for message in numbered(10, 20):
        buffer.put(lane, message)
        buffer.put(2, message)
    buffer.discard_run(lane, 12, 14)
    assert [n for n in range(40) if buffer.peek(lane, n)] == [10, 11, *range(15, 30)]
    buffer.discard_run(lane, 11, 10**12)
    assert [n for n in range(40) if buffer.peek(lane, n)] == [10]
    assert all(buffer.peek(2, n) for n in range(10, 30)), "what another one needs stays"
    buffer._check()


def _shared(model: dict[int, set[int]]) -> list[set[int]]:
    return [found for lane, found in model.items() if lane != LONE]
