"""Sequences: what is in, block by block, against a plain set."""

from __future__ import annotations

import gc
import tracemalloc
from random import Random

import pytest
from compiled import interpreted

from forebay.store.environment.account import Unlimited
from forebay.store.index.sequence_bitmap import SequenceBitmap
from forebay.store.numbering import BLOCK_MESSAGES
from forebay.store.structures.bits import mask_of, ones, runs_of_ones


def contents(sequences: SequenceBitmap) -> set[int]:
    found: set[int] = set()
    number = sequences.next_block(0)
    while number is not None:
        for low, high in runs_of_ones(sequences.mask(number)):
            found.update(range(number * BLOCK_MESSAGES + low, number * BLOCK_MESSAGES + high + 1))
        number = sequences.next_block(number + 1)
    return found


@pytest.mark.parametrize("seed", range(10))
def test_random_operations_agree_with_a_plain_set(seed: int) -> None:
    random = Random(seed)
    sequences, model = SequenceBitmap(), set[int]()
    for _ in range(300):
        first = random.randrange(6 * BLOCK_MESSAGES)
        last = first + random.choice((0, 1, 30, 511, 512, 1500))
        if random.random() < 0.5:
            sequences.add(first, last)
            model.update(range(first, last + 1))
        else:
            number, low = first // BLOCK_MESSAGES, first % BLOCK_MESSAGES
            high = min(low + last - first, BLOCK_MESSAGES - 1)
            sequences.remove(number, ones(low, high))
            model.difference_update(range(first, number * BLOCK_MESSAGES + high + 1))
        sequences._check()
        assert sequences.count == len(model)
        assert (first in sequences) == (first in model)
    assert contents(sequences) == model
    again = SequenceBitmap()
    again.restore(sequences.backlog(0, 0))
    again._check()
    assert contents(again) == model and again.count == len(model)


def test_ten_million_in_a_row_are_one_run() -> None:
    sequences = SequenceBitmap()
    sequences.add(0, 10_000_000 - 1)
    backlog = sequences.backlog(0, 0)
    assert len(backlog.blocks) == 1 and len(backlog.masks) == 1
    assert sequences.count == 10_000_000


@pytest.mark.parametrize("mask, runs", [(0, []), (1, [(0, 0)]), (0b1011_0110, [(1, 2), (4, 5), (7, 7)])])
def test_runs_of_a_mask(mask: int, runs: list[tuple[int, int]]) -> None:
    assert list(runs_of_ones(mask)) == runs
    assert sum(ones(low, high) for low, high in runs) == mask


@pytest.mark.parametrize("places", [[0], [511], [3, 4, 5], [5, 3, 4], [0, 2], [7, 0, 511, 8]])
def test_mask_of_places_has_these_and_no_others(places: list[int]) -> None:
    assert mask_of(places) == sum(1 << place for place in places)


@interpreted("weighs Python objects")
@pytest.mark.parametrize("masks", [1, 2, 5, 6, 11, 22, 43, 86, 171, 342, 1_400])
def test_a_set_is_charged_what_it_takes(masks: int) -> None:
    account, count = Unlimited(), max(500 // masks, 2)
    kept: list[SequenceBitmap] = []
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(count):
            sequences = SequenceBitmap(account)
            sequences.add(300_000, 300_000 + BLOCK_MESSAGES * masks + number)
            for block in range(masks):
                sequences.remove((300_000 // BLOCK_MESSAGES) + block, ones(block * 37 % 400, block * 37 % 400 + 5))
            kept.append(sequences)
        gc.collect()
        real_bytes = tracemalloc.get_traced_memory()[0] // count
    finally:
        tracemalloc.stop()
    assert real_bytes <= account.held_bytes // count < 3 * real_bytes
    for sequences in kept:
        sequences.close()
    assert account.held_bytes == 0


def test_a_set_gives_back_what_it_was_charged_for_masks_that_are_gone() -> None:
    account = Unlimited()
    sequences = SequenceBitmap(account)
    before = account.held_bytes
    sequences.add(0, 100 * BLOCK_MESSAGES - 1)
    for number in range(100):
        sequences.remove(number, 1)
        sequences._check()
    assert account.held_bytes >= before + 100 * 64
    again = sequences.copy(account)
    assert account.held_bytes == 2 * again.charge_bytes
    for number in range(100):
        sequences.remove(number, ones(0, BLOCK_MESSAGES - 1))
        sequences._check()
    sequences.clear()
    assert sequences.charge_bytes == before
    again.close()
    assert account.held_bytes == before
