"""Lists that share too little memory: each gets a part, and the loader comes to rest."""

from __future__ import annotations

import pytest
from simulated_bay import SimulatedBay

from forebay import Message
from forebay.cache.accounting.charge import charge_of

KIB = 1024


def bay_with(queues: list[list[float]]) -> SimulatedBay:
    """A queue for each list of sizes in KiB, with a consumer that takes nothing."""
    bay = SimulatedBay(memory_limit="4MiB")
    for number, sizes in enumerate(queues):
        bay.queue(f"q{number}").send_many(Message(bytes(int(size * KIB))) for size in sizes)
    for number in range(len(queues)):
        bay.queue(f"q{number}").subscribe()
    return bay


def test_lists_do_not_take_memory_from_each_other_for_ever() -> None:
    queues: list[list[float]] = [
        [2, 60, 2, 100, 2],
        [100, 60],
        [2, 60, 100],
        [60],
        [0.5, 2, 100, 2, 60],
        [100],
        [60, 100],
        [0.5, 100],
        [2, 2, 60, 0.5, 2, 2, 100],
        [100, 0.5],
        [60, 60, 2, 60],
        [100, 60, 2, 0.5],
    ]
    bay = bay_with(queues)
    loads = 0
    while bay.loader.step():
        loads += 1
        assert loads <= 10 * sum(map(len, queues)), "the loader never rests"
    assert all(target.direct for target in bay.lists()), "each list has something to hand out"
    bay.check()


@pytest.mark.parametrize("last_kib", [1, 100])
def test_a_list_that_gives_memory_keeps_as_much_as_the_taker_will_have(last_kib: int) -> None:
    bay = bay_with([[*[1] * 80, last_kib], [1]])
    bay.bay.step()
    rich, poor = bay.lists()
    assert not rich.has_supply
    bay.reclaim.make_room(bay.budget.limit_bytes, poor, supply_seconds_min=90 * KIB / rich.bytes_per_second)
    assert rich.direct_bytes >= 90 * KIB
    assert rich.direct_bytes - charge_of(rich.direct[-1]) < 90 * KIB, "it gave all that it could"
    bay.check()


def test_what_a_list_may_not_take_from_its_counterpart_another_list_may() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    bay.queue("both").send(bytes(KIB), persistent=False)
    bay.queue("both").send_many(Message(bytes(KIB)) for _ in range(80))
    bay.queue("other").send(bytes(KIB))
    for name in ("both", "other"):
        bay.queue(name).subscribe()
    bay.bay.step()
    lists = {(target.lane.destination.name, target.lane.is_persistent): target for target in bay.lists()}
    rich, counterpart, other = lists["both", True], lists["both", False], lists["other", True]
    rich_bytes, least_seconds = rich.direct_bytes, 40 * KIB / rich.bytes_per_second
    assert counterpart.counterpart is rich and rich_bytes > 80 * KIB
    bay.reclaim.make_room(bay.budget.limit_bytes, counterpart, supply_seconds_min=least_seconds)
    assert rich.direct_bytes == rich_bytes, "it has no more than half of what the two may have"
    bay.reclaim.make_room(bay.budget.limit_bytes, other, supply_seconds_min=least_seconds)
    assert 40 * KIB <= rich.direct_bytes < 42 * KIB
    bay.check()
