"""The live curve, from samples, agrees with a full replay of the same traffic."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from random import Random

import pytest
from compiled import interpreted
from recorded_bays import RecordedBay, burst, competing, pass_by, send, steady, take
from simulated_bay import SimulatedBay

from forebay.cache.accounting import shares
from forebay.cache.accounting.shares import Shares
from forebay.dispatch.core.memory import curve as curve_module
from forebay.dispatch.core.memory.backlog import RUNS_MAX
from forebay.dispatch.core.memory.curve import Curve, CurvePoint, CurveSampler, ListSample, quantum_bytes
from forebay.dispatch.engine.curve_watch import LIMIT_BYTES, TRACK_BYTES
from forebay.dispatch.loading.chooser import LOAD_MESSAGES_MAX
from forebay.dispatch.planning.plan import plan

MIB = 1 << 20


def differences(traffic: Callable[[RecordedBay], None], limit: str) -> dict[int, float]:
    """Live less replayed hit ratio, by limit."""
    bay = RecordedBay(memory_limit=limit)
    traffic(bay)
    live = bay.bay.statistics().memory.curve
    bay.bay.close()
    replayed = plan(bay.trace, [point.limit_bytes for point in live.points])
    assert abs(live.deliveries / replayed.curve.deliveries - 1) < 0.02
    assert len({round(point.hit_ratio, 2) for point in replayed.curve.points}) > 1, "the traffic tells limits apart"
    return {
        point.limit_bytes: point.hit_ratio - other.hit_ratio
        for point, other in zip(live.points, replayed.curve.points, strict=True)
    }


@pytest.mark.parametrize("limit", ["4MiB", "16MiB"])
@pytest.mark.parametrize("seed", [1, 2])
def test_steady_traffic_is_known_within_a_hundredth(seed: int, limit: str) -> None:
    found = differences(lambda bay: steady(bay, Random(seed)), limit)
    assert max(map(abs, found.values())) < 0.01, found


@pytest.mark.parametrize("limit", ["4MiB", "16MiB"])
def test_bursts_and_their_drain_are_known_within_a_hundredth(limit: str) -> None:
    found = differences(lambda bay: burst(bay, Random(1)), limit)
    assert max(map(abs, found.values())) < 0.01, found


@pytest.mark.slow
def test_competing_selectors_are_known_within_a_hundredth() -> None:
    found = differences(lambda bay: competing(bay, Random(0), 100), "8MiB")
    assert max(map(abs, found.values())) < 0.01, found


def test_queues_that_share_memory_are_known_within_a_hundredth() -> None:
    found = differences(lambda bay: pass_by(bay, Random(3)), "8MiB")
    assert max(map(abs, found.values())) < 0.01, found


def test_live_curve_does_not_depend_on_the_limit_it_is_seen_under() -> None:
    curves = []
    for limit in ("4MiB", "32MiB"):
        bay = RecordedBay(memory_limit=limit)
        burst(bay, Random(1))
        points = bay.bay.statistics().memory.curve.points
        curves.append({point.limit_bytes: point.hit_ratio for point in points})
    shared = curves[0].keys() & curves[1].keys()
    assert len(shared) >= 3
    assert all(abs(curves[0][limit] - curves[1][limit]) < 0.005 for limit in shared)


def test_head_of_a_queue_without_consumer_counts_as_far_as_it_fits() -> None:
    bay = SimulatedBay(memory_limit="8MiB")
    send(bay.queue(), 8000, 1000)
    consumer = bay.queue().subscribe()
    take(consumer, 8000)
    for point in bay.bay.statistics().memory.curve.points:
        head = min(point.limit_bytes // 4 / (8000 * 1384), 1.0)
        assert abs(point.hit_ratio - head) < 0.02, point


@interpreted("replaces what compiled code has linked")
def test_patch_of_the_policy_changes_curve_and_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    def ratios() -> tuple[list[float], list[float]]:
        bay = RecordedBay(memory_limit="8MiB")
        burst(bay, Random(1))
        live = bay.bay.statistics().memory.curve
        bay.bay.close()
        replayed = plan(bay.trace, [point.limit_bytes for point in live.points])
        return [point.hit_ratio for point in live.points], [point.hit_ratio for point in replayed.curve.points]

    before = ratios()
    monkeypatch.setattr(shares, "TARGET_LISTS_SHARE", 0.05)
    monkeypatch.setattr(shares, "PENDING_CACHE_SHARE", 0.05)
    after = ratios()
    for earlier, later in zip(before, after, strict=True):
        assert later[0] < earlier[0] - 0.1
        assert later[1] < earlier[1] - 0.1


def test_nothing_delivered_says_nothing() -> None:
    bay = SimulatedBay(memory_limit="8MiB")
    send(bay.queue(), 100, 100)
    curve = bay.bay.statistics().memory.curve
    assert curve.deliveries == 0
    assert curve.recommended_limit_bytes is None


def test_limits_of_the_curve_are_multiples_of_the_limit() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    points = bay.bay.statistics().memory.curve.points
    assert [point.limit_bytes // MIB for point in points] == [4, 8, 16, 32, 64, 128]
    bay = SimulatedBay(memory_limit="16MiB", index_cache_size="4MiB")
    points = bay.bay.statistics().memory.curve.points
    assert [point.limit_bytes // MIB for point in points] == [8, 16, 32, 64, 128], "the index would take all of 4 MiB"


def test_smallest_limit_near_the_best_is_recommended() -> None:
    def recommended(*ratios: float) -> int | None:
        points = tuple(CurvePoint(4 * MIB << doubled, ratio) for doubled, ratio in enumerate(ratios))
        return Curve(points, 100).recommended_limit_bytes

    assert recommended(0.5, 0.985, 0.99, 1.0) == 16 * MIB
    assert recommended(0.5, 0.9, 0.9) == 8 * MIB
    assert recommended(1.0, 1.0) == 4 * MIB


@interpreted("replaces what compiled code has linked")
def test_list_in_memory_is_looked_at_once_for_many_messages() -> None:
    bay = SimulatedBay(memory_limit="8MiB")
    looks = 0
    watch = bay.watermarks.live_curve
    look = watch.sample

    def counted(target: object) -> None:
        nonlocal looks
        looks += 1
        look(target)  # type: ignore[arg-type]

    watch.sample = counted  # type: ignore[method-assign]
    consumer = bay.queue().subscribe()
    for _ in range(100):
        send(bay.queue(), 100, 1000)
        take(consumer, 100, batch=1)
    assert 80 < looks < 120


def test_a_long_backlog_is_looked_at_less_often() -> None:
    assert quantum_bytes(0, 1384) == 128 * 1024
    assert quantum_bytes(0, 100_000) == 1_600_000
    assert quantum_bytes(1 << 30, 1384) == 1 << 25


@pytest.mark.parametrize("seed", range(10))
def test_sampler_keeps_its_sums_whatever_it_is_told(seed: int) -> None:
    random = Random(seed)
    limits = [
        Shares.of(4 * MIB << at, index_bytes=MIB // 2, metadata_bytes=MIB // 8, fixed_bytes=MIB) for at in range(4)
    ]
    sampler = CurveSampler(limits)
    tracks = [sampler.track(random.choice((0, 3 * MIB)), MIB, 1000.0) for _ in range(4)]
    taken = [0] * len(tracks)
    for _ in range(2000):
        at = random.randrange(len(tracks))
        taken[at] += random.randrange(MIB)
        waiting = random.choice((0, random.randrange(8 * MIB)))
        rate = random.choice((None, 0.0, 1e6))
        watermarks = sampler.watermarks_of(len(tracks), rate)
        seen = ListSample(waiting, taken[at], 1000.0, random.randrange(MIB), len(tracks))
        sampler.sample(tracks[at], seen, watermarks)
        for limit in range(len(limits)):
            behind = [track for track in tracks if track.behind > limit]
            assert sampler.overflowed[limit] == pytest.approx(sum(track.rest[limit].kept for track in behind), abs=1)
            others = sum(track.waiting - track.direct[limit] for track in behind)
            assert sampler.not_direct[limit] == pytest.approx(others, abs=1)
            for track in behind:
                rest = track.rest[limit]
                rest._check()
                parts = track.direct[limit], rest.kept, rest.waiting - rest.kept
                assert min(parts) >= -1
                assert sum(parts) == pytest.approx(track.waiting, abs=1)
        assert sampler.waiting == pytest.approx(sum(track.waiting for track in tracks), abs=1)
    assert all(0 <= point.hit_ratio <= 1 for point in sampler.curve().points)
    for track in tracks:
        sampler.drop(track)
    assert sampler.waiting == pytest.approx(0, abs=1)
    assert sampler.overflowed == pytest.approx([0] * 4, abs=1)


@interpreted("measures Python objects")
@pytest.mark.parametrize("limits", [4, 7])
def test_a_list_with_as_many_gaps_as_are_told_apart_costs_no_more_than_it_is_charged(limits: int) -> None:
    divided = [
        Shares.of(4 * MIB << at, index_bytes=MIB // 2, metadata_bytes=MIB // 8, fixed_bytes=MIB) for at in range(limits)
    ]
    sampler = CurveSampler(divided)
    lists = 100
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        tracks = {at: sampler.track(1000.0 + at, 100.0, 1000.0 + at) for at in range(lists)}
        for rest in [rest for track in tracks.values() for rest in track.rest]:
            for at in range(2 * RUNS_MAX):
                rest.append(1000.0 + at, 1000.0 * (at % 2))
        watermarks = {at: tuple(1000 * (number + limits * at) for number in range(limits)) for at in tracks}
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert all(len(track.rest) == limits for track in tracks.values()) and len(watermarks) == lists
    assert grown <= lists * (TRACK_BYTES + limits * LIMIT_BYTES)


def test_last_list_may_end_far_behind_what_it_has_seen() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    send(bay.queue(), 5000, 1000, kind="a")
    consumer = bay.queue().subscribe(selector="kind = 'a'")
    bay.reopen()
    consumer = bay.queue().subscribe(selector="kind = 'a'")
    assert consumer.take(1)
    consumer.close()
    assert bay.bay.statistics().memory.curve.deliveries == 1


def test_the_curve_loads_as_many_messages_at_once_as_the_loader_does() -> None:
    assert curve_module.LOAD_MESSAGES == LOAD_MESSAGES_MAX
