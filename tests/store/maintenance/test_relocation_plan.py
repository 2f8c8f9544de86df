"""What relocation does next, and how much of it: arithmetic over counts."""

from __future__ import annotations

from random import Random

import pytest

from forebay.store.index.data_log_use import DataLogUse
from forebay.store.maintenance.relocation_plan import RelocationChoice, choose
from forebay.store.maintenance.removable import removable
from forebay.store.maintenance.throttle import CREDIT_BYTES_MAX, IDLE_SECONDS, Throttle

SIZE = 1_000_000


def use_of(live_share: float, *acked: int) -> DataLogUse:
    """A data log of SIZE of which that share is live, in messages of 936 bytes, with acks for others."""
    use = DataLogUse()
    use.pending_messages = int(live_share * SIZE / 1000)
    use.pending_bytes = 936 * use.pending_messages
    use.acked_data_logs.update(acked)
    return use


def chosen(
    uses: dict[int, DataLogUse],
    *,
    prepared_bytes: dict[int, int] | None = None,
    unmovable: set[int] | None = None,
    unnameable: dict[int, int] | None = None,
    only_sparse: bool = False,
) -> RelocationChoice | None:
    return choose(
        uses,
        dict.fromkeys(uses, SIZE),
        set(uses) - set(removable(uses, max(uses) + 1)),
        prepared_bytes=prepared_bytes or {},
        unmovable=unmovable or set(),
        unnameable=unnameable or {},
        only_sparse=only_sparse,
    )


def test_the_oldest_of_the_sparse_ones_comes_first() -> None:
    uses = {1: use_of(0.9), 2: use_of(0.2), 3: use_of(0.1)}
    assert chosen(uses) == (2, False, SIZE)
    assert chosen(uses, unmovable={2}) == (3, False, SIZE)


def test_without_sparse_ones_the_cheapest_is_copied_and_dense_ones_never() -> None:
    assert chosen({1: use_of(0.7), 2: use_of(0.5)}) == (2, False, SIZE)
    assert chosen({1: use_of(0.7), 2: use_of(0.5)}, only_sparse=True) is None
    assert chosen({1: use_of(0.8), 2: use_of(1)}) is None


def test_what_keeps_others_for_their_acks_is_named() -> None:
    uses = {1: use_of(0.95), 2: use_of(0, 1), 3: use_of(0, 2)}
    assert chosen(uses) == (1, True, 2 * SIZE)
    assert chosen(uses, only_sparse=True) is None


def test_what_could_not_be_named_is_tried_again_when_twice_as_much_waits() -> None:
    uses = {1: use_of(0.95), 2: use_of(0, 1)}
    assert chosen(uses, unnameable={1: SIZE}) is not None, "copied instead: that frees both"
    assert chosen(uses, unnameable={1: SIZE}, unmovable={1}) is None
    uses |= {3: use_of(0, 1), 4: use_of(0, 2)}
    assert chosen(uses, unnameable={1: SIZE}, unmovable={1}) == (1, True, 3 * SIZE)


def test_naming_is_not_worth_more_than_it_frees() -> None:
    """Fifty data logs of which messages are acknowledged in one: their names would be as long as that one."""
    uses = {data_log: use_of(0.95) for data_log in range(1, 51)} | {51: use_of(0, *range(1, 51))}
    assert chosen(uses) is None
    uses |= {52: use_of(0, *range(1, 51)), 53: use_of(0, 52)}
    assert chosen(uses) == (1, True, 3 * SIZE)


def test_an_emptied_data_log_that_would_stay_for_its_acks_is_dearer() -> None:
    keepers = {data_log: use_of(0.95) for data_log in range(1, 31)}
    assert chosen(keepers | {31: use_of(0.5, *keepers), 32: use_of(0.6)}) == (32, False, SIZE)


@pytest.mark.parametrize("seed", range(40))
def test_any_sequence_of_choices_ends(seed: int) -> None:
    """Each is carried out in counts: what is written goes to a newest data log, which is sealed when it is full."""
    random = Random(seed)
    uses = {
        data_log: use_of(
            random.choice((0, 0, 0.001, 0.2, 0.5, 0.7, 0.9, 1)),
            *random.sample(range(1, data_log), random.randint(0, data_log - 1)),
        )
        for data_log in range(1, random.randint(3, 40))
    }
    sizes = dict.fromkeys(uses, SIZE)
    newest = max(uses) + 1
    uses[newest], sizes[newest] = DataLogUse(), 0
    for _ in range(400):
        for data_log in removable(uses, newest):
            del uses[data_log], sizes[data_log]
            for use in uses.values():
                use.acked_data_logs.discard(data_log)
        choice = choose(
            uses, sizes, set(uses) - {newest}, prepared_bytes={}, unmovable=set(), unnameable={}, only_sparse=False
        )
        if choice is None:
            return
        source = uses[choice.data_log]
        if choice.is_naming:
            for use in uses.values():
                use.acked_data_logs.discard(choice.data_log)
            sizes[newest] += 36 + 20 * source.pending_messages
        else:
            assert source.pending_messages
            uses[newest].pending_messages += source.pending_messages
            uses[newest].pending_bytes += source.pending_bytes
            sizes[newest] += 1000 * source.pending_messages
            source.pending_messages = source.pending_bytes = 0
        uses[newest].acked_data_logs.add(choice.data_log)
        if sizes[newest] >= SIZE:
            newest += 1
            uses[newest], sizes[newest] = DataLogUse(), 0
    raise AssertionError("it goes on for ever")


def test_a_tenth_of_the_traffic_is_copied_and_as_much_as_it_where_the_journal_is_far_too_large() -> None:
    throttle = Throttle(0.0)
    assert not throttle.allows(0.1)
    for is_far_above, share in ((False, 10), (True, 1)):
        appended = copied = 0
        throttle = Throttle(0.0)
        for n in range(1000):
            now = n / 100
            appended += 50_000
            throttle.sample(now, appended)
            throttle.earn(is_far_above=is_far_above)
            while throttle.allows(now):
                throttle.count_copied(30_000, now)
                copied += 30_000
        assert appended / share <= copied <= appended / share + 30_000


def test_idle_time_costs_nothing_and_credit_is_not_saved_up() -> None:
    throttle = Throttle(0.0)
    throttle.sample(0.1, 1 << 30)
    throttle.earn(is_far_above=True)
    throttle.count_copied(CREDIT_BYTES_MAX, 0.1)
    assert not throttle.allows(0.2)
    throttle.sample(0.3, (1 << 30) + 100)
    throttle.earn(is_far_above=False)
    assert throttle.allows(0.1 + IDLE_SECONDS)
    throttle.count_copied(1 << 30, 0.1 + IDLE_SECONDS)
    throttle.sample(1.0, (1 << 30) + 100_000)
    throttle.earn(is_far_above=False)
    assert throttle.allows(1.0)
