"""`forebay plan` says of recorded traffic what a store would have done with it, under any limit."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import pytest
from compiled import interpreted
from recorded_bays import RecordedBay, burst, competing, pass_by, send, steady, take
from simulated_disk import SimulatedDisk

import forebay
from forebay import Delivery, Message, SettingsError
from forebay.__main__ import main
from forebay.cache.accounting import shares
from forebay.dispatch.config.memory_plan import shares_of
from forebay.dispatch.config.settings import Settings
from forebay.dispatch.core.memory.memory_rule import MemoryRule
from forebay.dispatch.planning.plan import PlannedLimit, plan, plan_file
from forebay.dispatch.planning.player import TracePlayer
from forebay.dispatch.planning.report import table
from forebay.store.disk.disk import File
from forebay.store.format.trace import (
    ACK,
    ARRIVE,
    KINDS,
    LIST,
    TAKE,
    TICK,
    TRACE_BYTES,
    UNLIST,
    WAITING,
    Encoder,
    Event,
    TraceHeader,
    TraceReader,
)

MIB = 1 << 20


def read_back(bay: RecordedBay, traffic: Callable[[RecordedBay], None]) -> int:
    """How many messages the store itself read from its journal for that traffic."""
    store = bay.store
    read = store.message_store.read
    count = 0

    def counted(regions: Any, judge: Any = None) -> Any:
        nonlocal count
        found = read(regions, judge)
        count += len(found[0])
        return found

    store.message_store.read = counted  # type: ignore[method-assign]
    traffic(bay)
    bay.bay.close()
    return count


def played(file: File, limit_bytes: int) -> PlannedLimit:
    """Return the replay under a limit of a store that records, as the one that wrote the trace."""
    [only] = plan(file, [limit_bytes], TRACE_BYTES).limits
    return only


@interpreted("replaces what compiled code has linked")
@pytest.mark.slow
@pytest.mark.parametrize("limit", [4, 8, 16])
@pytest.mark.parametrize(
    "traffic",
    [
        lambda bay: steady(bay, Random(2)),
        lambda bay: burst(bay, Random(1)),
        lambda bay: competing(bay, Random(1)),
        lambda bay: pass_by(bay, Random(1)),
    ],
    ids=["steady", "burst", "competing", "pass_by"],
)
def test_replay_reads_what_the_store_itself_read(traffic: Callable[[RecordedBay], None], limit: int) -> None:
    bay = RecordedBay(memory_limit=limit * MIB)
    really = read_back(bay, traffic)
    found = played(bay.trace, limit * MIB)
    assert found.deliveries > 5000
    assert found.strays == 0
    assert abs(found.read_messages - really) < 0.01 * found.deliveries


def test_replay_is_deterministic() -> None:
    bay = RecordedBay(memory_limit="8MiB")
    competing(bay, Random(4), 10)
    bay.bay.close()
    assert plan(bay.trace) == plan(bay.trace)


def test_store_and_replay_have_the_same_room() -> None:
    for settings in (Settings(memory_limit="4MiB"), Settings(memory_limit="64MiB", persistent_index=False)):
        bay = RecordedBay(memory_limit=settings.memory_limit, persistent_index=settings.persistent_index)
        player = TracePlayer(shares_of(settings), {}, MemoryRule(), TRACE_BYTES)
        assert player.budget.free_bytes == bay.budget.free_bytes
        assert player.watermarks.shares == bay.watermarks.shares


def test_replay_keeps_the_ledger() -> None:
    bay = RecordedBay(memory_limit="8MiB")
    competing(bay, Random(4), 5)
    queue = bay.queue("more")
    with queue.subscribe() as consumer:
        send(queue, 100, 1000)
        consumer.nack(consumer.take(10))
        queue.purge()
        take(consumer, 5)
    bay.bay.close()
    reader = TraceReader(bay.trace)
    player = TracePlayer(shares_of(Settings(memory_limit="4MiB")), {}, MemoryRule())
    for event in reader.events():
        player.play(event)
        player.budget._check()
        assert player.budget.held_bytes <= player.budget.limit_bytes
        assert player.dispatch_area.lists_holder.held_bytes == sum(
            target.direct_bytes for target in player.watermarks.lists
        )
    assert player.dispatch_area.dispatch_holder.held_bytes == 0


def test_queue_with_groups_and_priorities_is_played_like_any_other() -> None:
    bay = RecordedBay()
    queue = bay.queue()
    with queue.subscribe(priority=1, prefetch=10) as first, queue.subscribe() as second:
        for number in range(600):
            queue.send(bytes(100), group=f"g{number % 7}", persistent=number % 5 > 0)
        while deliveries := first.take(9) + second.take(3):
            for delivery in deliveries:
                (delivery.ack if delivery.attempts > 1 or delivery.sequence % 11 else delivery.nack)()
    bay.bay.close()
    taken = sum(event[3] for event in TraceReader(bay.trace).events() if event[0] == TAKE)
    assert taken > 600
    found = played(bay.trace, 4 * MIB)
    assert taken // 2 < found.deliveries <= taken and found.reads == 0


def test_what_waited_at_open_is_read_under_any_limit() -> None:
    bay = RecordedBay(memory_limit="8MiB")
    send(bay.queue(), 1000, 100)
    bay.bay.close()
    bay.trace_disk.remove("trace")
    bay.open_again()
    send(bay.queue(), 1000, 100)
    with bay.queue().subscribe() as consumer:
        assert take(consumer, 2000) == 2000
    bay.bay.close()
    for limit in (8 * MIB, 512 * MIB):
        found = played(bay.trace, limit)
        assert (found.deliveries, found.hits) == (2000, 1000)


def test_returned_messages_are_played_in_their_places() -> None:
    bay = RecordedBay()
    queue = bay.queue()
    with queue.subscribe() as consumer:
        send(queue, 100, 100)
        consumer.nack(consumer.take(10))
        consumer.nack(consumer.take(1), delay=5)
        take(consumer, 50)
        bay.clock.advance(6)
        bay.bay.step()
        take(consumer, 1000)
    bay.bay.close()
    found = played(bay.trace, 8 * MIB)
    assert found.deliveries == 111
    assert found.strays == 0
    assert found.hits == 110, "the delayed one had left RAM"


def test_topic_is_played_for_each_subscription() -> None:
    bay = RecordedBay()
    topic = bay.bay.topic("prices")
    consumers = [topic.subscribe(), topic.subscribe(durable="audit", selector="n > 50")]
    topic.send_many(Message(b"x", headers={"n": n}) for n in range(100))
    for consumer in consumers:
        take(consumer, 1000)
    bay.bay.close()
    found = played(bay.trace, 8 * MIB)
    assert (found.deliveries, found.hits, found.strays) == (149, 149, 0)


def test_non_persistent_messages_are_played_too() -> None:
    bay = RecordedBay()
    queue = bay.queue()
    with queue.subscribe() as consumer:
        queue.send_many(Message(bytes(1000), persistent=bool(n % 2)) for n in range(2000))
        assert take(consumer, 2000) == 2000
    bay.bay.close()
    found = played(bay.trace, 64 * MIB)
    assert (found.deliveries, found.hits, found.strays) == (2000, 2000, 0)


def test_non_persistent_messages_of_a_topic_are_played_for_each_subscription() -> None:
    bay = RecordedBay()
    topic = bay.bay.topic("t")
    with topic.subscribe() as one, topic.subscribe(selector="n = 1") as other:
        for n in range(500):
            topic.send(bytes(3000), headers={"n": n % 2}, persistent=n % 5 == 0)
            if n % 10 == 9:
                assert take(one, 10) == 10
        taken = take(other, 1000)
    bay.bay.close()
    found = played(bay.trace, 4 * MIB)
    assert (taken, found.deliveries, found.strays) == (250, 750, 0)


def test_more_in_flight_than_a_limit_has_room_for_is_held_back_and_said() -> None:
    bay = RecordedBay(memory_limit="64MiB")
    queue = bay.queue()
    send(queue, 3000, 2048)
    with queue.subscribe(prefetch=2500) as consumer:
        taken: list[Delivery] = []
        while len(taken) < 2500:
            taken += consumer.take(256)
        consumer.ack(taken)
        assert take(consumer, 1000) == 500
    bay.bay.close()
    small, large = plan(bay.trace, [4 * MIB, 64 * MIB]).limits
    assert small.deliveries == large.deliveries == 3000
    assert small.held_back > 0 and large.held_back == 0
    assert small.hits <= 3000 - small.held_back
    lines = "\n".join(table(plan(bay.trace, [4 * MIB, 64 * MIB])))
    assert f"memory_limit=4MiB is too small for what was in flight: {small.held_back:,} deliveries" in lines
    assert "memory_limit=64MiB is too small" not in lines


def test_killed_process_leaves_a_trace_that_can_be_played() -> None:
    bay = RecordedBay()
    queue = bay.queue()
    consumer = queue.subscribe()
    send(queue, 1000, 100)
    take(consumer, 500)
    bay.pass_second()
    take(consumer, 500)
    found = plan(bay.trace)
    assert found.curve.deliveries == 500
    bay.trace_disk.open("trace").truncate(bay.trace.size() - 3)
    cut = plan(bay.trace)
    assert cut.curve.deliveries == 0
    assert cut.unread_bytes > 0
    assert any("left out" in line for line in table(cut))


def test_recorded_index_decides_about_the_room_too() -> None:
    bay = RecordedBay(memory_limit="8MiB", index_cache_size="4MiB")
    burst(bay, Random(1))
    bay.bay.close()
    usual = RecordedBay(memory_limit="8MiB")
    burst(usual, Random(1))
    usual.bay.close()
    assert played(bay.trace, 8 * MIB).hits < played(usual.trace, 8 * MIB).hits
    with pytest.raises(SettingsError, match="index_cache_size"):
        plan(bay.trace, [4 * MIB])


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = str(tmp_path / "traffic")
    fields: dict[str, Any] = {"memory_limit": "8MiB", "sync": "never", "background": False}
    with forebay.open(tmp_path / "data", record_trace=path, **fields) as bay:
        queue = bay.queue("orders")
        with queue.subscribe() as consumer:
            for _ in range(3):
                send(queue, 8000, 1000)
                take(consumer, 1 << 30)
    return path


def test_command_prints_a_table(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", trace]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "24,000 deliveries in 0 s, recorded with memory_limit=8MiB"
    rows = [line.split() for line in lines if line.startswith(" ") and "MiB" in line]
    assert [row[0] for row in rows] == [f"{4 << doubled}MiB" for doubled in range(8)]
    ratios = [float(row[1]) for row in rows]
    assert ratios[0] < 0.5
    assert ratios[-1] == 1.0
    [mark] = [row[0] for row in rows if row[-1] == "recommended"]
    assert lines[-1].startswith(f"memory_limit={mark}: the smallest")


def test_command_prints_one_json_object(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", trace, "--json", "--limits", "8MiB, 32MiB,8MiB"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["limit_bytes"] for row in found["limits"]] == [8 * MIB, 32 * MIB]
    assert found["recorded_limit_bytes"] == 8 * MIB
    assert found["recommended_limit_bytes"] == 32 * MIB
    assert found["limits"][1]["hit_ratio"] == found["limits"][1]["hits"] / 24_000


def test_trace_without_deliveries_recommends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "traffic")
    with forebay.open(tmp_path / "data", memory_limit="8MiB", record_trace=path):
        pass
    assert main(["plan", path]) == 1
    assert "nothing was delivered" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{missing}"], "can't be read (No such file or directory)"),
        (["{directory}"], "can't be read (Is a directory)"),
        (["{other}"], "it is not a trace that record_trace wrote"),
        (["{trace}", "--limits", "12"], "--limits='12' is not a size"),
        (["{trace}", "--limits", "1MiB"], "must be at least 4MiB"),
        (["{trace}", "--limits", ",".join(["8MiB"] * 65)], "65 sizes"),
        (["{trace}", "--limits", "4MiB", "--svg", "{missing}/x.svg"], "can't be written"),
    ],
)
def test_bad_input_is_one_clear_line(
    arguments: list[str], words: str, trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--svg" in arguments:
        pytest.importorskip("matplotlib")
    other = tmp_path / "other"
    other.write_bytes(bytes(1000))
    places = {"missing": tmp_path / "missing", "directory": tmp_path, "other": other, "trace": trace}
    assert main(["plan", *(argument.format(**places) for argument in arguments)]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.skipif(find_spec("matplotlib") is not None, reason="it is there")
def test_without_matplotlib_a_picture_is_refused_before_the_work(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", trace, "--svg", "out.svg"]) == 2
    assert "forebay[tools]" in capsys.readouterr().err


def test_picture_shows_curve_and_recommendation(trace: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from forebay.dispatch.planning.picture import picture

    target = tmp_path / "curve.svg"
    assert main(["plan", trace, "--svg", str(target)]) == 0
    content = target.read_text()
    assert content.startswith("<?xml") and content.rstrip().endswith("</svg>")
    for words in ("memory_limit", "recorded: 8MiB", "recommended: ", "24,000 deliveries", "512MiB"):
        assert words in content
    found = plan_file(trace)
    assert picture(found) == picture(found) == target.read_bytes()


@interpreted("replaces what compiled code has linked")
def test_each_limit_plays_the_library_s_own_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    bay = RecordedBay(memory_limit="8MiB")
    burst(bay, Random(1))
    bay.bay.close()
    before = played(bay.trace, 8 * MIB)
    monkeypatch.setattr(shares, "PENDING_CACHE_SHARE", 0.0)
    assert played(bay.trace, 8 * MIB).hits < before.hits


def test_takes_of_a_trace_are_what_was_delivered(trace: str) -> None:
    disk = Path(trace)
    assert disk.stat().st_size < 16 * 24_000 * 3
    found = plan_file(trace)
    from forebay.store.disk.user_file import user_place

    place, name = user_place(trace)
    takes = sum(event[3] for event in TraceReader(place.open_for_reading(name)).events() if event[0] == TAKE)
    assert takes == found.curve.deliveries == 24_000


@pytest.mark.parametrize(
    "events",
    [
        [(TAKE, 0, 0, 1, 0)],
        [(ARRIVE, 0, 0, 1, 10), (TAKE, 0, 0, 1, 7)],
        [(ARRIVE, 0, 0, 1, 10), (LIST, 0, 0, 0, 0), (TAKE, 0, 0, 2, 0)],
        [(ARRIVE, 0, 0, 1, 10), (LIST, 1, 0, 0, 0), (TAKE, 0, 0, 1, 0)],
        [(LIST, 0, 0, 0, 0), (LIST, 1, 0, 0, 0)],
        [(UNLIST, 0, 0, 0, 0)],
        [(ARRIVE, 0, 0, 1 << 40, 10)],
        [(ARRIVE, 0, 0, 1, 1 << 40)],
        [(WAITING, 0, 5, 1, 10), (ARRIVE, 0, 5, 1, 10)],
        [(ACK, 0, 0, 1 << 40, 0)],
        [(TICK, 0, 5, 0, 0), (TICK, 0, 4, 0, 0)],
    ],
)
def test_events_that_cannot_be_are_refused(events: list[Event]) -> None:
    with pytest.raises(SettingsError, match=f"event {len(events)} of the trace"):
        plan(written(events))


def written(events: list[Event]) -> File:
    file = SimulatedDisk().open("trace", create=True)
    encoder = Encoder()
    for event in events:
        encoder.put(*event)
    file.append(TraceHeader(8 * MIB, 0, False).encode() + encoder.block())
    return file


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_any_events_that_verify_are_played_or_refused(seed: int) -> None:
    random = Random(seed)
    events: list[Event] = []
    for _ in range(200):
        more = (random.randrange(KINDS), random.randrange(2), random.randrange(40), random.randrange(1, 9), 0)
        event = (*more[:4], random.randrange(3) if more[0] in (LIST, UNLIST, TAKE) else random.randrange(2000))
        try:
            plan(written([*events, event]), [4 * MIB])
        except SettingsError:
            continue
        events.append(event)
    assert len(events) > 40
