"""Deduplication: the windows of ids beside plain lists, their memory and their bytes."""

from __future__ import annotations

import tracemalloc
from collections import OrderedDict, defaultdict
from random import Random
from typing import Any

import pytest
from compiled import interpreted

from forebay import DestinationPolicy, SettingsError
from forebay.store.format.identity import Identity, identity
from forebay.store.format.message_properties import encode_properties, own_identity
from forebay.store.format.record import RecordDamaged
from forebay.store.index.deduplication import WINDOW_CHARGE_BYTES, Deduplication
from forebay.store.index.digest_queue import DigestQueue


@pytest.mark.parametrize("window", [-1, 1.5, True, "8", 2_000_000])
def test_a_window_that_cannot_be_is_refused(window: Any) -> None:
    with pytest.raises(SettingsError, match="duplicate_window"):
        DestinationPolicy(duplicate_window=window)


def test_damaged_properties_have_no_identity() -> None:
    assert own_identity(b"") is None
    assert own_identity(encode_properties({"kg": 1})) is None
    encoded = encode_properties({"kg": 1}, "a", producer="p")
    assert own_identity(encoded) == (b"p", b"a")
    assert own_identity(encode_properties(None, "a")) == (b"", b"a")
    with pytest.raises(RecordDamaged):
        own_identity(encoded[:2])


@interpreted("weighs Python objects")
@pytest.mark.parametrize("producers, ids", [(1, 10_000), (2, 5_000), (200, 20), (1000, 1)])
def test_windows_take_no_more_memory_than_they_are_charged(producers: int, ids: int) -> None:
    windows = Deduplication(None, lambda name: ids, 1 << 30)
    windows.register(1, "orders")
    digests = [[Random(n).randbytes(16) for n in range(at, at + 2 * ids)] for at in range(0, producers * 7, 7)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for at in range(2 * ids):
            for number in range(producers):
                windows.remember(Identity(1, number.to_bytes(16), digests[number][at]))
            if at in (ids // 2, ids - 1, 3 * ids // 2, 2 * ids - 1):
                assert tracemalloc.get_traced_memory()[0] - before <= windows.held_bytes
    finally:
        tracemalloc.stop()
    assert windows.held_bytes == producers * (1024 + 32 * ids)


def test_random_operations_on_windows_agree_with_plain_lists() -> None:
    random = Random(7)
    windows = Deduplication(None, lambda name: int(name), 1 << 30)
    for number in (1, 2, 3):
        windows.register(number, f"{number * 2}")
    model: dict[tuple[int, bytes], list[bytes]] = defaultdict(list)
    for step in range(5000):
        found = identity(random.randint(1, 3), random.choice((b"", b"p")), b"%d" % random.randrange(12))
        known = model[found.destination, found.producer]
        assert windows.has_seen(found) == (found.message in known)
        if random.random() < 0.7:
            windows.remember(found)
            if found.message not in known:
                known.append(found.message)
                del known[: -2 * found.destination]
        if step % 500 == 0:
            windows.restore(windows.describe())
        windows._check()


def test_random_operations_under_a_bound_forget_the_oldest_id_each_time() -> None:
    random = Random(11)
    windows = Deduplication(None, lambda name: 40, 6 * WINDOW_CHARGE_BYTES)
    windows.register(1, "orders")
    noted: list[Identity] = []
    for step in range(5000):
        found = Identity(1, random.randrange(7).to_bytes(16), random.randrange(300).to_bytes(16))
        is_known = found in noted
        assert windows.has_seen(found) == is_known
        forgotten = windows.forgotten
        windows.remember(found)
        windows._check()
        if not is_known:
            own = [other for other in noted if other.producer == found.producer]
            if len(own) == 40:
                noted.remove(own[0])
            noted.append(found)
            del noted[: windows.forgotten - forgotten]
        assert windows.messages == len(noted)
        if step % 1000 == 999:
            noted = noted[len(noted) // 2 :]
            windows.resize(WINDOW_CHARGE_BYTES * len({other.producer for other in noted}) + 32 * len(noted))
            noted = [other for other in noted if windows.has_seen(other)]
            windows.resize(6 * WINDOW_CHARGE_BYTES)
    assert windows.forgotten > 1000


def test_a_queue_of_digests_finds_what_it_has_at_any_size() -> None:
    random = Random(13)
    queue, model = DigestQueue(), OrderedDict[bytes, int]()
    for most in (3, 700, 20, 2000, 0):
        while len(model) != most:
            if len(model) < most and random.random() < 0.9 or not model:
                digest = random.randbytes(16) if random.random() < 0.9 else bytes(15) + random.randbytes(1)
                if digest not in model:
                    assert not queue.has(digest)
                    queue.append(digest, len(model))
                    model[digest] = len(model)
            else:
                gone, stamp = model.popitem(last=False)
                assert queue.has(gone) and queue.oldest_stamp == stamp
                queue.drop_oldest()
                assert not queue.has(gone)
            if random.random() < 0.01:
                queue._check()
        queue._check()
        assert all(map(queue.has, model))
        assert b"".join(ids for _, ids in queue.pieces(7)) == b"".join(model)


def test_an_id_of_a_destination_without_a_window_is_not_noted() -> None:
    windows = Deduplication()
    windows.register(1, "orders")
    windows.remember(Identity(1, bytes(16), bytes(16)))
    assert windows.messages == 0 and not windows.watches(1)
