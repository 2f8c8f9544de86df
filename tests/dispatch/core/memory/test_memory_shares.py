"""memory_share and memory_reserve: what the destinations of a pattern hold together, and what is kept for them."""

from __future__ import annotations

from random import Random

import pytest
from delivering import fill
from sampling import sampled
from simulated_bay import SimulatedBay

from forebay import Consumer, DestinationPolicy, SettingsError, StoreFull
from forebay.cache.accounting.budget import ShareStatistics
from forebay.cache.accounting.charge import OVERHEAD_BYTES
from forebay.dispatch.core.memory.memory_rule import MemoryRule
from forebay.dispatch.planning.rules import ListsFirst

KIB = 1024
MIB = 1024 * KIB
SIZE = 2 * KIB
FLOOD = 6000
PROTECTED = 200
ROUNDS = 20


def share_of(bay: SimulatedBay, pattern: str) -> ShareStatistics:
    return bay.bay.statistics().memory.shares[pattern]


def bay_with(
    memory_limit: str = "16MiB", *, memory_share: str | None = None, memory_reserve: str | None = None
) -> SimulatedBay:
    policy = DestinationPolicy(memory_share=memory_share, memory_reserve=memory_reserve)
    return SimulatedBay(memory_limit=memory_limit, policies={"logs.>": policy})


def take_all(bay: SimulatedBay, name: str, most: int = 50) -> list[str]:
    taken = []
    with bay.queue(name).subscribe(prefetch=1000) as consumer:
        while deliveries := consumer.take(most):
            taken += [delivery.id for delivery in deliveries]
            consumer.ack(deliveries)
            bay.loader.step()
            bay.check()
    return taken


@pytest.mark.parametrize("delivery_mode", ["PERSISTENT", "NON_PERSISTENT"])
def test_destinations_with_a_share_never_hold_more_than_it_and_lose_nothing(delivery_mode: str) -> None:
    bay = bay_with(memory_share="1MiB")
    is_persistent = delivery_mode == "PERSISTENT"
    readers = [bay.queue(name).subscribe() for name in ("logs.a", "logs.b.c")]
    for number in range(1500):
        for name in ("logs.a", "logs.b.c"):
            bay.queue(name).send(bytes(SIZE), persistent=is_persistent)
        if not number % 100:
            bay.check()
            assert 0 < share_of(bay, "logs.>").held_bytes <= MIB
    for reader in readers:
        count = 0
        while deliveries := reader.take(20):
            count += len(deliveries)
            assert share_of(bay, "logs.>").held_bytes <= MIB + 20 * OVERHEAD_BYTES
            reader.ack(deliveries)
            bay.loader.step()
        assert count == 1500
    bay.check()
    assert share_of(bay, "logs.>").held_bytes == 0


def test_a_queue_without_consumers_keeps_no_more_of_its_head_than_the_share_of_its_pattern_allows() -> None:
    bay = bay_with(memory_share="1MiB")
    fill(bay, 1000, "logs.a", SIZE)
    fill(bay, 1000, "orders", SIZE)
    assert 0 < share_of(bay, "logs.>").held_bytes <= MIB // 4
    assert bay.bay.statistics().memory.holders["head_queue_cache"] > MIB
    assert take_all(bay, "logs.a") and len(take_all(bay, "orders")) == 1000


def test_what_is_in_flight_counts_and_a_consumer_gets_references_beyond_the_share() -> None:
    bay = bay_with(memory_share="256KiB")
    fill(bay, 600, "logs.a", SIZE)
    with bay.queue("logs.a").subscribe(prefetch=0) as consumer:
        held = []
        while deliveries := consumer.take(100):
            held += deliveries
            bay.check()
        assert len(held) == 600, "progress does not wait for the share"
        assert share_of(bay, "logs.>").held_bytes <= 256 * KIB + 600 * OVERHEAD_BYTES
        assert {len(delivery.body) for delivery in held} == {SIZE}
        consumer.ack(held)
    bay.check()
    assert share_of(bay, "logs.>").held_bytes == 0


def hits_of_a_protected_queue(*, is_flooded: bool, reserve: str | None) -> float:
    """Return the share of deliveries of "orders" that needed no read, beside a flood or alone."""
    policies = {"orders": DestinationPolicy(memory_reserve=reserve)}
    bay = SimulatedBay(memory_limit="8MiB", policies=policies)
    orders = bay.queue("orders")
    reads = delivered = 0
    with orders.subscribe(prefetch=0) as consumer, bay.queue("flood").subscribe(prefetch=0) as greedy:
        for _ in range(ROUNDS):
            if is_flooded:
                fill(bay, FLOOD // ROUNDS, "flood", 8 * KIB)
                greedy.take(FLOOD // ROUNDS // 2)  # and holds what it has
            fill(bay, PROTECTED, "orders", SIZE)
            if is_flooded:
                fill(bay, FLOOD // ROUNDS, "flood", 8 * KIB)
                bay.loader.step()
            bay.clock.advance(1.0)
            bay.housekeep()
            while deliveries := consumer.take(10):
                before = bay.reads
                assert all(len(delivery.body) == SIZE for delivery in deliveries)
                reads += min(bay.reads - before, len(deliveries))
                reads += sum(delivery.held_body is None for delivery in deliveries) if bay.reads == before else 0
                delivered += len(deliveries)
                consumer.ack(deliveries)
            bay.check()
    assert delivered == ROUNDS * PROTECTED
    return 1 - reads / delivered


def test_a_flood_beside_a_queue_with_a_reserve_changes_its_hit_ratio_by_at_most_five_percent() -> None:
    alone = hits_of_a_protected_queue(is_flooded=False, reserve="20%")
    flooded = hits_of_a_protected_queue(is_flooded=True, reserve="20%")
    unprotected = hits_of_a_protected_queue(is_flooded=True, reserve=None)
    assert alone == 1.0
    assert alone - flooded <= 0.05
    assert alone - unprotected > 0.2, "the flood would cost an unprotected queue its hits, or this shows nothing"


def test_others_never_take_what_is_reserved_also_where_nobody_uses_it() -> None:
    bay = bay_with(memory_reserve="4MiB")
    reader = bay.queue("orders").subscribe(prefetch=0)
    fill(bay, 2000, "orders", 8 * KIB)
    fill(bay, 2000, "others", 8 * KIB)
    held = reader.take(300)
    memory = bay.bay.statistics().memory
    assert memory.limit_bytes - memory.held_bytes >= 4 * MIB
    fill(bay, 600, "logs.a", SIZE)
    bay.queue("logs.b").subscribe()
    fill(bay, 600, "logs.b", SIZE)
    assert share_of(bay, "logs.>").held_bytes > MIB
    bay.check()
    reader.ack(held)


def test_places_of_what_arrives_elsewhere_take_nothing_of_a_reserve() -> None:
    bay = bay_with(memory_reserve="4MiB")
    topic = bay.bay.topic("prices")
    for _ in range(30):
        topic.subscribe(prefetch=0)
    topic.send(b"", persistent=False)
    with bay.full_memory():
        with pytest.raises(StoreFull, match="memory_limit"):
            topic.send(b"", persistent=False, delay=5.0)  # every lane needs room for times
        assert bay.budget.free_bytes == 0
    topic.send(b"", persistent=False, delay=5.0)
    bay.check()


@pytest.mark.parametrize("delivery_mode", ["PERSISTENT", "NON_PERSISTENT"])
def test_a_destination_fills_its_reserve_where_others_have_all_the_rest(delivery_mode: str) -> None:
    bay = bay_with(memory_reserve="4MiB")
    queue = bay.queue("logs.a")
    with queue.subscribe(prefetch=0) as consumer:
        queue.send(b"", persistent=delivery_mode == "PERSISTENT")
        with bay.full_memory():
            for _ in range(8_000):
                queue.send(b"", persistent=delivery_mode == "PERSISTENT")
            assert share_of(bay, "logs.>").held_bytes > 8_000 * OVERHEAD_BYTES
            assert bay.budget.free_bytes == 0
        bay.check()
        consumer.ack(consumer.take(10_000))
        bay.check()


def test_what_waits_is_spilled_under_a_falling_limit_though_arrivals_have_used_up_what_is_held_ahead() -> None:
    bay = bay_with(memory_reserve="2MiB")
    held = bay.queue("held").subscribe(prefetch=0)
    for _ in range(300):
        bay.queue("held").send(bytes(400), persistent=False)
    assert sum(len(held.take(100)) for _ in range(10)) == 300
    holder, account = bay.budget.holders["transactions"], bay.overflow.account
    with bay.lock:
        taken_bytes = bay.budget.free_bytes - 100 * KIB
        assert holder.reserve(taken_bytes)
    bay.bay.resize("8MiB")
    with bay.lock:
        arrived_bytes = account.ahead_bytes
        assert account.reserve(arrived_bytes)
    before_bytes = bay.budget.held_bytes
    held.close()
    with bay.lock:
        bay.overflow.spill_all()
    assert bay.overflow.buffer.holder.held_bytes == 0
    assert bay.budget.held_bytes < before_bytes - 300 * 400
    with bay.lock:
        holder.release(taken_bytes)
        account.release(arrived_bytes)
    bay.check()


def test_who_borrows_of_a_reserve_leaves_the_rest_to_its_owner() -> None:
    bay = bay_with(memory_reserve="4MiB")
    queue = bay.queue("logs.a")
    fill(bay, 1, "logs.a", SIZE)
    with queue.subscribe(prefetch=0), bay.full_memory():
        borrower = bay.budget.holders["transactions"]
        with bay.lock:
            assert borrower.reserve_for_progress(MIB)
        fill(bay, 2_000, "logs.a", SIZE)
        assert 2 * MIB < share_of(bay, "logs.>").held_bytes <= 3 * MIB
        with bay.lock:
            borrower.release(MIB)


def test_what_a_pattern_holds_within_its_reserve_is_not_given_back_for_others() -> None:
    bay = bay_with(memory_limit="8MiB", memory_reserve="2MiB")
    slow = bay.queue("logs.a").subscribe(prefetch=0)
    bay.queue("logs.b").subscribe(prefetch=0)
    fill(bay, 300, "logs.a", SIZE)
    fill(bay, 300, "logs.b", SIZE)
    fill(bay, 100, "logs.c", SIZE)
    before = share_of(bay, "logs.>").held_bytes
    assert MIB < before <= 2 * MIB
    bay.reclaim.make_room(bay.budget.limit_bytes, None)
    assert share_of(bay, "logs.>").held_bytes == before
    fill(bay, 2000, "orders", 8 * KIB)
    assert len(take_all(bay, "orders")) == 2000
    assert share_of(bay, "logs.>").held_bytes == before
    slow.close()


def test_lists_give_of_a_reserve_to_each_other_though_they_gave_nothing_to_others_just_before() -> None:
    bay = bay_with(memory_limit="8MiB", memory_reserve="2MiB")
    names = ("logs.a", "logs.b", "orders")
    for name, count in zip(names, (80, 1, 1), strict=True):
        bay.queue(name).subscribe()
        fill(bay, count, name, SIZE)
    lists = {target.lane.destination.name: target for target in bay.lists()}
    rich, poor, other = (lists[name] for name in names)
    rich_bytes, least_seconds = rich.direct_bytes, 40 * KIB / rich.bytes_per_second
    assert rich_bytes > 80 * SIZE
    with bay.lock:
        bay.reclaim.make_room(bay.budget.limit_bytes, other, supply_seconds_min=least_seconds)
    assert rich.direct_bytes == rich_bytes
    with bay.lock:
        bay.reclaim.make_room(bay.budget.limit_bytes, poor, supply_seconds_min=least_seconds)
    assert 40 * KIB <= rich.direct_bytes < 40 * KIB + 2 * SIZE
    bay.check()


@pytest.mark.parametrize("lists_first", [False, True])
def test_within_a_share_lists_and_caches_give_back_in_the_order_of_the_rule(lists_first: bool) -> None:
    policies = {"logs.>": DestinationPolicy(memory_share="1MiB")}
    bay = SimulatedBay(
        memory_limit="16MiB", policies=policies, memory_rule=ListsFirst() if lists_first else MemoryRule()
    )
    with bay.queue("logs.a").subscribe(), bay.queue("logs.b").subscribe() as other:
        for name, count in (("logs.a", 1), ("logs.b", 40), ("logs.c", 40)):
            fill(bay, count, name, SIZE)
        memory = bay.memories.of_patterns["logs.>"]
        (keep,) = (target for target in bay.lists() if target.lane.destination.name == "logs.a")

        def held() -> tuple[int, int]:
            return other.statistics().watermark_bytes, memory.head_queue_cache.holder.held_bytes

        lists_before, heads_before = held()
        assert lists_before > 20 * SIZE and heads_before > 20 * SIZE
        with bay.lock:
            bay.reclaim.make_room(memory.share_free_bytes + 10 * SIZE, keep)
        lists_after, heads_after = held()
        assert (lists_after < lists_before, heads_after < heads_before) == (lists_first, not lists_first)
    bay.check()


def test_a_resize_computes_percentages_anew_and_gives_back_what_is_above_the_share() -> None:
    bay = bay_with(memory_limit="32MiB", memory_share="25%", memory_reserve="10%")
    fill(bay, 4000, "logs.a", SIZE)
    assert share_of(bay, "logs.>").share_bytes == 8 * MIB
    assert share_of(bay, "logs.>").held_bytes > MIB
    assert bay.bay.resize("8MiB").is_settled
    after = share_of(bay, "logs.>")
    assert (after.share_bytes, after.reserve_bytes) == (2 * MIB, int(8 * MIB * 0.1))
    assert after.held_bytes <= 2 * MIB
    bay.check()
    bay.bay.resize("32MiB")
    assert share_of(bay, "logs.>").share_bytes == 8 * MIB
    bay.check()


def test_reserves_of_more_than_half_are_refused_in_words_at_open_and_at_resize() -> None:
    with pytest.raises(SettingsError, match=r"reserve .* in all of a memory_limit of 8MiB, and at most .* raise"):
        bay_with(memory_limit="8MiB", memory_reserve="60%")
    bay = bay_with(memory_limit="32MiB", memory_reserve="8MiB")
    with pytest.raises(SettingsError, match="reserve less, or raise memory_limit"):
        bay.bay.resize("8MiB")
    assert bay.bay.statistics().memory.limit_bytes == 32 * MIB
    with pytest.raises(SettingsError, match="memory_reserve must not be above memory_share"):
        bay_with(memory_reserve="2MiB", memory_share="1MiB")


@pytest.mark.parametrize("given", ["0%", "101%", 1000, 1.5, "much", True])
def test_a_share_that_is_none_is_refused_with_its_name(given: object) -> None:
    with pytest.raises(SettingsError, match="memory_share"):
        DestinationPolicy(memory_share=given)  # type: ignore[arg-type]


def test_explain_names_what_a_pattern_holds_beside_its_share_and_its_reserve() -> None:
    bay = bay_with(memory_share="1MiB", memory_reserve="512KiB")
    fill(bay, 100, "logs.a", SIZE)
    sentence = bay.bay.explain().sentence
    assert "by 'logs.>'" in sentence and "of a share of 1" in sentence and "a reserve of 512" in sentence


@pytest.mark.parametrize("seed", sampled(range(6), 3))
def test_whatever_comes_the_ledger_agrees_and_nothing_is_lost(seed: int) -> None:
    random = Random(seed)
    policies = {
        "logs.>": DestinationPolicy(memory_share="512KiB", max_attempts=None),
        "orders": DestinationPolicy(memory_reserve="512KiB", memory_share="1MiB", max_attempts=None),
        "kept": DestinationPolicy(memory_reserve="256KiB", max_attempts=None),
        ">": DestinationPolicy(max_attempts=None),
    }
    bay = SimulatedBay(seed, memory_limit="6MiB", policies=policies)
    names = ["logs.a", "logs.b", "orders", "kept", "others", "more"]
    topic = bay.bay.topic("logs.news")
    subscribers = [topic.subscribe(durable="one"), topic.subscribe()]
    sent = dict.fromkeys(names, 0)
    taken = dict.fromkeys(names, 0)
    consumers: dict[str, Consumer] = {}

    def take(name: str) -> None:
        consumer = consumers.setdefault(name, bay.queue(name).subscribe(prefetch=0))
        deliveries = consumer.take(random.choice((1, 40, 300)))
        if random.random() < 0.3:
            consumer.nack(deliveries)
        elif random.random() < 0.1:
            consumers.pop(name).close()
        else:
            assert all(len(delivery.body) for delivery in deliveries[:3])
            consumer.ack(deliveries)
            taken[name] += len(deliveries)

    for _ in range(250):
        name = random.choice(names)
        match random.randrange(6):
            case 0 | 1:
                count, size = random.choice(((200, 300), (40, 5 * KIB), (1, 400 * KIB)))
                is_persistent = random.random() < 0.6
                group = random.choice((None, None, "a")) if name == "more" else None
                for _ in range(count):
                    bay.queue(name).send(bytes(size), persistent=is_persistent, group=group)
                sent[name] += count
            case 2 | 3:
                take(name)
            case 4:
                topic.send(bytes(3 * KIB), persistent=random.random() < 0.5)
                if random.random() < 0.3:
                    for subscriber in subscribers:
                        subscriber.ack(subscriber.take(100))
                bay.clock.advance(1.0)
                bay.bay.step()
            case _:
                bay.bay.resize(random.choice(("6MiB", "12MiB", "6MiB")))
                bay.loader.step()
        bay.check()
    for name in names:
        consumer = consumers.get(name) or bay.queue(name).subscribe(prefetch=0)
        while deliveries := consumer.take(100):
            consumer.ack(deliveries)
            taken[name] += len(deliveries)
        bay.check()
    assert taken == sent
