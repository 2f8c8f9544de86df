"""The load test: it must find every fault that a store could have, and see none where there is none."""

from __future__ import annotations

import json
import random
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from forebay.__main__ import main
from forebay.benchmarks.load import consuming, supervisor
from forebay.benchmarks.load.bounds import Bounds
from forebay.benchmarks.load.broker_process import from_plan
from forebay.benchmarks.load.events import CAME_AGAIN, PRODUCER_SHIFT, Decoder, Kind, encode
from forebay.benchmarks.load.evidence import Evidence
from forebay.benchmarks.load.input_file import InputFile
from forebay.benchmarks.load.neighbours import Neighbours
from forebay.benchmarks.load.readers import Readers, readers_of
from forebay.benchmarks.load.reads import Reads
from forebay.benchmarks.load.report import Report
from forebay.benchmarks.load.result import Run, Sample
from forebay.benchmarks.load.scenario import ConsumerPlan, DestinationPlan, Scenario
from forebay.benchmarks.load.scenario_file import shipped
from forebay.benchmarks.load.words import short
from forebay.benchmarks.load.workload import BATCH_BYTES, SIZE_BYTES_MIN, Generated, Workload
from forebay.dispatch.config.sizes import KIB, MIB
from forebay.store.errors import SettingsError
from forebay.store.message import Message

# Evidence

COMPETING = Readers([[0]], [0, 0], lambda consumer, producer, n: True)
"""Two consumers that compete for the messages of one producer."""


def keys(*numbers: int, producer: int = 0) -> array[int]:
    return array("Q", [producer << PRODUCER_SHIFT | n for n in numbers])


def evidence_of(sent: int, *, lane: Callable[[int, int], int] | None = None, unwanted: int = 0) -> Evidence:
    """One producer, whose messages were all confirmed."""
    evidence = Evidence([sent], COMPETING, lane, unwanted)
    evidence.sending(0, sent)
    evidence.sent(0)
    return evidence


def settle(evidence: Evidence, *numbers: int, consumer: int = 0) -> None:
    evidence.settling(consumer, keys(*numbers))
    evidence.settled(consumer)


def failed(evidence: Evidence) -> list[str]:
    return [check.name for check in evidence.judge() if not check.held]


def test_what_was_sent_and_settled_once_holds() -> None:
    evidence = evidence_of(4)
    settle(evidence, 0, 2)
    settle(evidence, 1, 3, consumer=1)
    assert failed(evidence) == []
    assert evidence.settled_messages == 4


def test_confirmed_message_that_never_came_is_lost() -> None:
    evidence = evidence_of(3)
    settle(evidence, 0, 2)
    assert failed(evidence) == ["count"]
    assert "1 message (first: producer 0, n 1) lost" in evidence.judge()[0].text


def test_message_that_was_never_sent_is_a_failure() -> None:
    evidence = Evidence([10], COMPETING)
    evidence.sending(0, 2)
    settle(evidence, 0, 1, 2)
    settle(evidence, 1 << 45)
    assert failed(evidence) == ["count"]


def test_message_in_two_hands_is_a_failure() -> None:
    evidence = evidence_of(1)
    evidence.settling(0, keys(0))
    evidence.settling(1, keys(0))
    assert failed(evidence) == ["count"]


def test_acknowledged_message_that_comes_again_is_a_failure() -> None:
    evidence = evidence_of(2)
    settle(evidence, 0, 1)
    evidence.killed()
    settle(evidence, 0)
    assert failed(evidence) == ["acknowledged"]


def test_consumer_that_sees_a_producer_backwards_is_a_failure() -> None:
    evidence = evidence_of(3)
    settle(evidence, 0, 2)
    settle(evidence, 1)
    assert failed(evidence) == ["order"]


def test_message_that_came_again_may_come_behind_newer_ones() -> None:
    evidence = evidence_of(4)
    settle(evidence, 2, 3)
    evidence.settling(0, array("Q", [key | CAME_AGAIN for key in keys(0, 1)]))
    evidence.settled(0)
    assert failed(evidence) == []


def test_what_nobody_asked_for_must_be_left() -> None:
    evidence = evidence_of(4, unwanted=2)
    settle(evidence, 0, 1)
    evidence.left(keys(2, 3))
    evidence.depth = 2
    assert failed(evidence) == []
    evidence.depth = 3
    assert failed(evidence) == ["depth"]


@pytest.mark.parametrize(("left", "expected"), [((2,), ["count"]), ((1, 2, 3), ["acknowledged", "depth"])])
def test_message_left_that_is_missing_or_too_many_is_a_failure(left: tuple[int, ...], expected: list[str]) -> None:
    evidence = evidence_of(4, unwanted=2)
    settle(evidence, 0, 1)
    evidence.left(keys(*left))
    evidence.depth = len(left)
    assert failed(evidence) == expected


@pytest.mark.parametrize(("purged", "expected"), [(1, ["count"]), (2, []), (3, ["count"])])
def test_each_message_is_delivered_or_purged(purged: int, expected: list[str]) -> None:
    evidence = evidence_of(4)
    settle(evidence, 0, 3)
    evidence.purged_messages = purged
    assert failed(evidence) == expected


def test_order_is_judged_for_each_lane_of_a_producer() -> None:
    evidence = evidence_of(4, lane=lambda producer, n: n % 2)
    settle(evidence, 1, 3, 0, 2)
    assert failed(evidence) == []


def test_returned_message_may_come_before_newer_ones_after_a_kill() -> None:
    evidence = evidence_of(4)
    evidence.settling(0, keys(0, 1))
    settle(evidence, 2, 3, consumer=1)
    evidence.killed()
    settle(evidence, 0, 1, consumer=1)
    assert failed(evidence) == []


@pytest.mark.parametrize("kept", [[], [2], [2, 3]])
def test_send_under_way_at_a_kill_may_go_either_way(kept: list[int]) -> None:
    evidence = Evidence([6], COMPETING)
    evidence.sending(0, 2)
    evidence.sent(0)
    evidence.sending(0, 4)
    evidence.killed()
    assert evidence.starts == [4]
    evidence.sending(0, 6)
    evidence.sent(0)
    settle(evidence, 0, 1, *kept, 4, 5)
    assert failed(evidence) == []
    assert f"2 sends, {len(kept)} kept" in evidence.judge()[0].text


@pytest.mark.parametrize("redelivered", [[], [1], [0, 1]])
def test_ack_under_way_at_a_kill_may_go_either_way(redelivered: list[int]) -> None:
    evidence = evidence_of(2)
    evidence.settling(0, keys(0, 1))
    evidence.killed()
    settle(evidence, *redelivered)
    assert failed(evidence) == []
    assert f"2 acks, {2 - len(redelivered)} kept" in evidence.judge()[0].text


def test_damaged_message_is_a_failure() -> None:
    evidence = evidence_of(1)
    settle(evidence, 0)
    evidence.damaged("producer 0, n 0, 3 bytes")
    assert failed(evidence) == ["checksum"]


SUBSCRIPTIONS = Readers([[0], [0]], [0, 1], lambda consumer, producer, n: True, subscriptions=2)
"""Two consumers that each get every message of one producer."""


def test_each_subscription_gets_each_message() -> None:
    evidence = Evidence([2], SUBSCRIPTIONS)
    evidence.sending(0, 2)
    evidence.sent(0)
    settle(evidence, 0, 1)
    assert failed(evidence) == ["count"]
    settle(evidence, 0, 1, consumer=1)
    assert failed(evidence) == []
    assert evidence.settled_messages == 4
    assert "each delivered to each of 2 subscriptions" in evidence.judge()[0].text
    settle(evidence, 1, consumer=1)
    assert failed(evidence) == ["order", "acknowledged"]


@pytest.mark.parametrize(("got", "expected"), [([[], []], []), ([[0], [0]], []), ([[0], []], ["count"])])
def test_send_in_doubt_is_for_all_subscriptions_or_for_none(got: list[list[int]], expected: list[str]) -> None:
    evidence = Evidence([1], SUBSCRIPTIONS)
    evidence.sending(0, 1)
    evidence.killed()
    for consumer, numbers in enumerate(got):
        settle(evidence, *numbers, consumer=consumer)
    assert failed(evidence) == expected


def test_message_that_its_consumer_had_not_asked_for_is_a_failure() -> None:
    evidence = Evidence([2], Readers([[0]], [0, 0], lambda consumer, producer, n: n % 2 == consumer))
    evidence.sending(0, 2)
    evidence.sent(0)
    settle(evidence, 0)
    assert "selected" not in failed(evidence)
    settle(evidence, 1)
    assert failed(evidence) == ["selected"]


def test_message_of_another_destination_was_never_sent_there() -> None:
    evidence = Evidence([1, 1], Readers([[0], [1]], [0, 1], lambda consumer, producer, n: True))
    evidence.sending(0, 1)
    evidence.sending(1, 1)
    settle(evidence, 1 << PRODUCER_SHIFT)
    assert "1 message (first: producer 1, n 0) never sent" in evidence.judge()[0].text.replace("; ", "\n")


# Readers


def test_readers_are_all_queues_together_and_each_subscription() -> None:
    scenario = Scenario(
        "own",
        "to see",
        destinations=(
            DestinationPlan("orders", producers=2, share=2),
            DestinationPlan("quotes", kind="topic", producers=1),
            DestinationPlan("logs", producers=1),
        ),
        consumers=(
            ConsumerPlan("a", at="orders"),
            ConsumerPlan("b", at="quotes"),
            ConsumerPlan("b", 1, at="quotes"),
            ConsumerPlan("c", at="logs"),
        ),
    )
    workload = Generated(8, [64], scenario.destinations, seed=1)
    readers = readers_of(scenario, workload)
    assert workload.counts == [2, 2, 2, 2]
    assert (readers.producers, readers.of) == ([[0, 1, 3], [2], [2]], [0, 1, 2, 0])
    assert readers.deliveries(workload.counts) == 10
    assert [[readers.wants(consumer, producer, 0) for producer in range(4)] for consumer in range(4)] == [
        [True, True, False, False],
        [False, False, True, False],
        [False, False, True, False],
        [False, False, False, True],
    ]


def test_reader_with_a_selector_wants_what_was_sent_with_its_kind_or_key() -> None:
    plan = [DestinationPlan(producers=2)]
    workload = Generated(400, [64], plan, seed=1, stuck_every=10, keys=3)
    for producer in (0, 1):
        for n, message in enumerate(messages_of(workload, producer)):
            headers = message.headers or {}
            for kind in ("plain", "rare", "stuck"):
                assert workload.is_for(ConsumerPlan("a", kinds=(kind,)), producer, n) == (headers["kind"] == kind)
            for key in range(3):
                assert workload.is_for(ConsumerPlan("a", key, own_key=True), producer, n) == (headers["key"] == key)


# Consumers in turns


def test_one_thread_drives_many_consumers_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    def consumer(name: str, rests: Sequence[float]) -> Iterator[float]:
        for rest in rests:
            happened.append(name)
            yield rest

    monkeypatch.setattr(time, "sleep", lambda seconds: happened.append(f"slept {seconds}"))
    consuming.drive([consumer("a", [0.0, 0.02]), consumer("b", [0.04, 0.01, 9.0])])
    assert happened == ["a", "b", "a", "b", "slept 0.01", "b", "slept 0.05"]


@pytest.mark.parametrize(("consumers", "threads"), [(1, 1), (16, 16), (17, 4), (3000, 4)])
def test_each_consumer_is_driven_by_one_thread(consumers: int, threads: int) -> None:
    shared = consuming.shared_out(consumers)
    assert len(shared) == threads
    assert sorted(number for numbers in shared for number in numbers) == list(range(consumers))


# Reads


def disk_gauges(**facts: int) -> dict[str, int]:
    return {"read_bytes": 0, "topic_bytes": 0, "spread_bytes": 0, "reach_bytes": MIB} | facts


def test_reads_of_all_processes_are_set_against_the_backlogs_that_they_found_or_got() -> None:
    reads = Reads(subscriptions=8)
    for read, backlog in ((60 * MIB, 50 * MIB), (52 * MIB, 50 * MIB)):
        reads.opened()
        reads.gauge(disk_gauges(read_bytes=read // 2, topic_bytes=backlog))
        reads.gauge(disk_gauges(read_bytes=read, topic_bytes=backlog, spread_bytes=MIB))
    [check] = reads.judge()
    assert check.held
    assert check.text == (
        "112.0 MiB read from disk for 100.0 MiB of backlog, 1.12 times; allowed 1.1 times, and 2.0 MiB"
    )
    reads.gauge(disk_gauges(read_bytes=53 * MIB, topic_bytes=50 * MIB))
    [check] = reads.judge()
    assert not check.held


def test_reads_of_subscriptions_that_were_far_apart_are_said_and_not_judged() -> None:
    reads = Reads(subscriptions=8)
    reads.gauge(disk_gauges(read_bytes=90 * MIB, topic_bytes=MIB, spread_bytes=3 * MIB))
    reads.gauge(disk_gauges(read_bytes=99 * MIB, topic_bytes=MIB, spread_bytes=2 * MIB))
    [check] = reads.judge()
    assert check.held
    assert check.text.endswith("99.00 times; not judged, subscriptions were 3.0 MiB apart and share within 1.0 MiB")


@pytest.mark.parametrize("facts", [{"topic_bytes": 5}, {"read_bytes": 5}])
def test_reads_are_not_judged_where_there_is_nothing_to_say(facts: dict[str, int]) -> None:
    reads = Reads(subscriptions=1)
    reads.gauge(disk_gauges(**facts))
    assert list(reads.judge()) == []


# Neighbours


def neighbours_of(takes: int, ran: tuple[float, float], hits: tuple[float, float]) -> Neighbours:
    """One flood in the middle, before and in which each take ran for so long and so large a share was a hit."""
    neighbours = Neighbours([1])
    delivered = misses = 0
    for producer, seconds, hit_ratio in ((0, ran[0], hits[0]), (1, ran[1], hits[1])):
        neighbours.sending(producer)
        for _ in range(takes):
            neighbours.took(9.0, seconds)
        delivered += 1000
        misses += round(1000 * (1 - hit_ratio))
        neighbours.gauge({"protected_delivered": delivered, "protected_misses": misses})
    return neighbours


@pytest.mark.parametrize(
    ("takes", "ran", "hits", "expected"),
    [
        (1000, (0.001, 0.0029), (1.0, 0.96), []),
        (1000, (0.001, 0.0031), (1.0, 0.96), ["take"]),
        (10, (0.001, 0.001), (1.0, 0.94), ["neighbours"]),
        (10, (0.001, 0.001), (0.9, 1.0), ["neighbours"]),
        (9, (0.001, 0.001), (1.0, 1.0), ["neighbours"]),
    ],
)
def test_flood_that_a_protected_queue_notices_is_a_failure(
    takes: int, ran: tuple[float, float], hits: tuple[float, float], expected: list[str]
) -> None:
    assert [check.name for check in neighbours_of(takes, ran, hits).judge() if not check.held] == expected


def test_p99_that_rests_on_a_few_takes_is_not_judged() -> None:
    take = list(neighbours_of(999, (0.001, 9.0), (1.0, 1.0)).judge())[-1]
    assert take.held
    assert "not judged: 999 and 999 takes, fewer than 1,000" in take.text


def test_counters_of_a_new_process_begin_anew() -> None:
    neighbours = neighbours_of(10, (0.001, 0.001), (1.0, 1.0))
    neighbours.opened()
    neighbours.gauge({"protected_delivered": 1000, "protected_misses": 0})
    text = next(iter(neighbours.judge())).text
    assert "(1,000 and 2,000 deliveries)" in text


def test_scenario_without_a_flood_has_no_neighbours() -> None:
    assert list(Neighbours([]).judge()) == []


# Bounds


def gauges(**facts: int) -> dict[str, int]:
    return {"held_bytes": 0, "held_bytes_max": 0, "limit_bytes": 64 * MIB, "uss_bytes": 0, "spilled_bytes": 0} | facts


def out_of_bounds(bounds: Bounds) -> list[str]:
    return [check.name for check in bounds.judge() if not check.held]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"held_bytes_max": 64 * MIB, "uss_bytes": 94 * MIB}, []),
        ({"held_bytes_max": 64 * MIB + 1}, ["memory"]),
        ({"held_bytes": 16 * MIB + 1, "limit_bytes": 16 * MIB}, ["memory"]),
        ({"uss_bytes": 95 * MIB}, ["process"]),
    ],
)
def test_memory_above_what_was_promised_is_a_failure(facts: dict[str, int], expected: list[str]) -> None:
    bounds = Bounds(64 * MIB)
    bounds.gauge(gauges(**facts))
    bounds.gauge(gauges())
    assert out_of_bounds(bounds) == expected


@pytest.mark.parametrize(("reached_bytes", "expected"), [(16 * MIB, []), (17 * MIB, ["limit"])])
def test_limit_must_become_what_was_asked_for(reached_bytes: int, expected: list[str]) -> None:
    bounds = Bounds(64 * MIB)
    bounds.resized(16 * MIB)
    bounds.gauge(gauges(limit_bytes=reached_bytes))
    assert out_of_bounds(bounds) == expected


@pytest.mark.parametrize(("spilled_bytes", "expected"), [(0, []), (1, ["tmp-storage"])])
def test_tmp_storage_must_give_its_disk_back(spilled_bytes: int, expected: list[str]) -> None:
    bounds = Bounds(64 * MIB)
    bounds.gauge(gauges(spilled_bytes=MIB))
    bounds.gauge(gauges(spilled_bytes=spilled_bytes))
    assert out_of_bounds(bounds) == expected


@pytest.mark.parametrize(("journal_bytes", "expected"), [(5 * MIB, []), (5 * MIB + 1, ["disk"])])
def test_journal_behind_a_cleanup_is_bounded(journal_bytes: int, expected: list[str]) -> None:
    facts = {"live_bytes": MIB, "data_log_bytes": MIB, "data_logs": 5, "deleted": 0, "journal_bytes": journal_bytes}
    bounds = Bounds(64 * MIB)
    bounds.cleaned(facts)
    assert out_of_bounds(bounds) == expected


# Events


def test_decoder_gives_the_same_events_however_the_pipe_cuts_them() -> None:
    frames = encode(Kind.SENDING, 3, 1 << 40) + encode(Kind.SETTLING, 1, keys(7, 8).tobytes()) + encode(Kind.DONE)
    for cut in range(len(frames) + 1):
        decoder = Decoder()
        events = [*decoder.feed(frames[:cut]), *decoder.feed(frames[cut:])]
        assert [(event.kind, event.who) for event in events] == [(Kind.SENDING, 3), (Kind.SETTLING, 1), (Kind.DONE, 0)]
        assert events[0].stop == 1 << 40
        assert events[1].keys == keys(7, 8)


def test_torn_last_frame_is_no_event() -> None:
    frame = encode(Kind.SETTLING, 0, keys(1).tobytes())
    assert list(Decoder().feed(frame[:-1])) == []


# Workload


def generated(
    messages: int,
    sizes: Sequence[int],
    producers: int,
    seed: int,
    destinations: int = 1,
    stuck_every: int | None = None,
) -> Generated:
    """Messages of producers that all send to the same queues."""
    plan = DestinationPlan(count=destinations, producers=producers)
    return Generated(messages, sizes, [plan], seed, stuck_every=stuck_every)


def messages_of(workload: Workload, producer: int = 0, start: int = 0) -> list[Message]:
    return [
        message
        for batch in workload.batches(producer, start, lambda n: 256)
        for messages in batch.messages.values()
        for message in messages
    ]


def test_generated_messages_depend_on_the_seed_alone() -> None:
    def bodies(seed: int) -> list[bytes]:
        return [message.body for message in messages_of(generated(300, [100], 1, seed))]

    assert bodies(1) == bodies(1) != bodies(2)
    assert len(set(bodies(1))) == 300


def test_generated_messages_are_shared_out_and_go_on_where_they_stopped() -> None:
    workload = generated(1001, [64], 4, seed=1)
    assert workload.counts == [251, 250, 250, 250]
    assert messages_of(workload, 0, 100) == messages_of(workload, 0)[100:]
    assert [batch.stop for batch in workload.batches(1, 240, lambda n: 256)] == [250]


def test_last_hundredth_of_each_producer_is_rare() -> None:
    kinds = [(message.headers or {})["kind"] for message in messages_of(generated(1000, [64], 1, seed=1))]
    assert kinds == ["plain"] * 990 + ["rare"] * 10


@pytest.mark.parametrize("stuck_every", [None, 1, 7, 10_000])
def test_kinds_are_counted_as_they_are_sent(stuck_every: int | None) -> None:
    workload = generated(2001, [64], 2, seed=1, stuck_every=stuck_every)
    sent = [(message.headers or {})["kind"] for producer in (0, 1) for message in messages_of(workload, producer)]
    assert workload.kinds == {kind: sent.count(kind) for kind in ("plain", "rare", "stuck")}


def test_each_producer_sends_to_one_destination_after_the_other() -> None:
    workload = generated(10, [64], 1, seed=1, destinations=3)
    [batch] = workload.batches(0, 0, lambda n: 256)
    sent = {name: [(message.headers or {})["n"] for message in messages] for name, messages in batch.messages.items()}
    assert sent == {"load.0": [0, 3, 6, 9], "load.1": [1, 4, 7], "load.2": [2, 5, 8]}
    assert [workload.lane(0, n) for n in (0, 3, 1)] == [0, 0, 1]


MIXED = (SIZE_BYTES_MIN, KIB, 64 * KIB)


def test_each_message_has_the_size_whose_turn_it_is() -> None:
    sizes = [len(message.body) for message in messages_of(generated(100, MIXED, 1, seed=1))]
    assert sizes == [MIXED[n % 3] for n in range(100)]


@pytest.mark.parametrize("destinations", [2, 3, 6, 7])
def test_each_destination_gets_each_size(destinations: int) -> None:
    workload = generated(200, MIXED, 1, seed=1, destinations=destinations)
    got: dict[str, list[int]] = {f"load.{number}": [] for number in range(destinations)}
    for batch in workload.batches(0, 0, lambda n: 256):
        for name, messages in batch.messages.items():
            got[name] += [len(message.body) for message in messages]
    for sizes in got.values():
        assert sizes == [MIXED[turn % 3] for turn in range(len(sizes))]


@pytest.mark.parametrize("destinations", [1, 3, 4])
def test_bytes_of_mixed_bodies_are_counted_as_they_are_sent(destinations: int) -> None:
    workload = generated(1001, MIXED, 4, seed=1, destinations=destinations)
    sent = [message for producer in range(4) for message in messages_of(workload, producer)]
    assert sum(len(message.body) for message in sent) == workload.total_bytes
    assert (len(workload.check(sent)[0]), workload.check(sent)[1]) == (1001, [])


@pytest.mark.parametrize("sizes", [MIXED, (100,), (200 * KIB,), (SIZE_BYTES_MIN, 2 * BATCH_BYTES)])
def test_batch_is_full_with_its_bytes_whatever_their_sizes(sizes: tuple[int, ...]) -> None:
    workload = generated(1000, sizes, 1, seed=1, destinations=2)
    batches = [
        [len(message.body) for messages in batch.messages.values() for message in messages]
        for batch in workload.batches(0, 0, lambda n: 256)
    ]
    firsts = [batch[0] for batch in batches[1:]]
    for batch, following in zip(batches, firsts, strict=False):
        assert len(batch) == 1 or sum(batch) <= BATCH_BYTES
        assert len(batch) == 256 or sum(batch) + following > BATCH_BYTES
    assert sum(map(len, batches)) == 1000


def test_body_of_another_turn_is_damaged() -> None:
    workload, shifted = generated(3, (64, 100, 100), 1, seed=1), generated(3, (100, 64, 100), 1, seed=1)
    assert workload.check(messages_of(shifted)) == (
        keys(2),
        ["producer 0, n 0, 100 bytes", "producer 0, n 1, 64 bytes"],
    )


@pytest.mark.parametrize("size_bytes", [SIZE_BYTES_MIN, 1000])
def test_check_sees_each_flipped_bit_of_a_body(size_bytes: int) -> None:
    workload = generated(3, [size_bytes], 1, seed=1)
    message = messages_of(workload)[2]
    assert workload.check([message]) == (keys(2), [])
    for bit in range(8 * size_bytes):
        body = bytearray(message.body)
        body[bit // 8] ^= 1 << bit % 8
        found, damaged = workload.check([Message(bytes(body), message.headers)])
        assert (len(found), len(damaged)) == (0, 1), f"bit {bit}"


def test_check_sees_a_body_under_the_headers_of_another() -> None:
    workload = generated(4, [64], 2, seed=1)
    one, other, foreign = *messages_of(workload), messages_of(workload, 1)[0]
    for headers in (other.headers, foreign.headers, {}):
        assert workload.check([Message(one.body, headers)])[1] != []
    assert workload.check([Message(one.body[:-1], one.headers)])[1] != []


# Input file


def lines(path: Path, *objects: Mapping[str, object]) -> InputFile:
    path.write_text("".join(json.dumps(fields) + "\n" for fields in objects), encoding="utf-8")
    return InputFile(str(path))


def test_each_line_of_an_input_file_becomes_a_message(tmp_path: Path) -> None:
    workload = lines(
        tmp_path / "messages.jsonl",
        {"destination": "a", "body": "öl"},
        {"destination": "b", "body": "", "headers": {"x": None, "y": 1.5}, "priority": 9, "message_id": "m"},
        {"destination": "a", "body": "third", "priority": 0},
        {"destination": "a", "body": "fourth", "group": "account 7"},
        {"destination": "a", "body": "fifth", "group": None},
    )
    workload.examine()
    assert (workload.counts, workload.destinations) == ([5], ["a", "b"])
    assert [workload.lane(0, n) for n in range(5)] == [0, 1, 2, 3, 0]
    [batch] = workload.batches(0, 0, lambda n: 256)
    assert [message.body for message in batch.messages["a"]] == ["öl".encode(), b"third", b"fourth", b"fifth"]
    assert [message.group for message in batch.messages["a"]] == [None, None, "account 7", None]
    [second] = batch.messages["b"]
    assert (second.priority, second.message_id) == (9, "m")
    assert {"x": None, "y": 1.5}.items() <= (second.headers or {}).items()


def test_input_file_goes_on_where_it_stopped_and_knows_its_messages_again(tmp_path: Path) -> None:
    workload = lines(tmp_path / "m", *({"destination": "a", "body": f"{n:1000}"} for n in range(700)))
    whole = messages_of(workload)
    assert [batch.stop for batch in workload.batches(0, 0, lambda n: 256)] == [256, 512, 700]
    assert messages_of(from_plan(workload.as_plan()), 0, 500) == whole[500:]
    assert workload.check(whole) == (keys(*range(700)), [])
    assert workload.check([Message(b"other", whole[0].headers)])[1] != []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b"[" * 100_000, "recursion"),
        (b"\xff", "not UTF-8"),
        (b"[]", "not a JSON object"),
        (b'{"body": ""}', "destination is missing"),
        (b'{"destination": "", "body": ""}', "destination is empty"),
        (b'{"destination": "a"}', "body is missing"),
        (b'{"destination": "a", "body": 1}', "body is not a string"),
        (b'{"destination": "a", "body": "\\ud800"}', "surrogate"),
        (b'{"destination": "a", "body": "", "ttl": 1}', "unknown field 'ttl'"),
        (b'{"destination": "a", "body": "", "headers": 0}', "headers is not an object"),
        (b'{"destination": "a", "body": "", "headers": {"": 1}}', "header"),
        (b'{"destination": "a", "body": "", "headers": {"load_line": 1}}', "load_line"),
        (b'{"destination": "a", "body": "", "priority": 10}', "priority"),
        (b'{"destination": "a", "body": "", "priority": true}', "priority"),
        (b'{"destination": "a", "body": "", "message_id": 7}', "message_id"),
        (b'{"destination": "a", "body": "", "group": 7}', "group"),
        (b'{"destination": "a", "body": "", "group": ""}', "group"),
    ],
)
def test_line_that_cannot_be_sent_is_refused_with_its_number(tmp_path: Path, line: bytes, problem: str) -> None:
    path = tmp_path / "messages.jsonl"
    path.write_bytes(b'{"destination": "a", "body": ""}\n' + line + b"\n")
    with pytest.raises(SettingsError, match=f"line 2: .*{problem}"):
        InputFile(str(path)).examine()


# Report


def test_lines_are_plain_and_stand_in_columns(capsys: pytest.CaptureFixture[str]) -> None:
    with Report() as report:
        report.begin("title", 10)
        for seconds in (1.0, 100.0):
            report.line(
                Sample(
                    seconds, "fill", 123_456.7, 0.0, 1_000_000, 64 * MIB, 64 * MIB, 80 * MIB, 5 * MIB, 0, None, 0.25
                ),
                5,
            )
            report.line(Sample(seconds, "recover", 0.0, 999.4, 0, 0, 0, 0, 0, 0, 1.0, 0.0), 5)
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    header, *rows = printed.splitlines()[-5:]
    assert {len(row) for row in rows} == {len(header)}
    assert rows[0].split() == ["1.0", "fill", "123k", "0", "1.00M", "64.0", "80.0", "5.0", "-", "250"]
    assert rows[1].split() == ["1.0", "recover", "0", "999", "0", "0.0", "0.0", "0.0", "100.0", "0"]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (999.5, "1.00k"), (9_994, "9.99k"), (9_996, "10.0k"), (99_960, "100k"), (2.5e9, "2.50G")],
)
def test_numbers_take_at_most_five_characters(number: float, text: str) -> None:
    assert short(number) == text


# The whole


def supervise(directory: Path) -> Run:
    workload = generated(10, [64], 4, seed=1)
    return supervisor.Supervisor(shipped()["tour"], workload, str(directory), Report()).run()


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("import os; os.abort()", "SIGABRT"),
        ("import signal; signal.pause()", "nothing was sent"),
    ],
)
def test_broker_process_that_ends_or_hangs_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, problem: str
) -> None:
    monkeypatch.setattr(supervisor, "_START", program)
    monkeypatch.setattr(supervisor, "STALL_SECONDS", 1.0)
    run = supervise(tmp_path)
    assert run.failed == ["finished"]
    assert problem in run.checks[0].text


def test_broker_process_that_is_killed_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is while it warms up, if the reader of the output goes away early."""
    killed = "import os, signal, tempfile; tempfile.mkdtemp(); os.kill(os.getpid(), signal.SIGKILL)"
    monkeypatch.setattr(supervisor, "_START", killed)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    directory = tmp_path / "store"
    directory.mkdir()
    assert "SIGKILL" in supervise(directory).checks[0].text
    assert list(tmp_path.iterdir()) == [directory]


LATE_IMPORTS = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from forebay.benchmarks.load import broker_process

class Watched(broker_process.BrokerProcess):
    def run(self):
        known = set(sys.modules)
        super().run()
        late = sorted(name for name in set(sys.modules) - known if name.startswith(("forebay", "sqlite3")))
        if late:
            raise OSError(f"imported late: {late}")

broker_process.BrokerProcess = Watched
broker_process.main()
"""


def test_growth_is_measured_from_a_process_that_has_all_of_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_START", LATE_IMPORTS)
    assert [check.text for check in supervise(tmp_path).checks if not check.held] == []


def test_own_messages_come_back_through_two_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generator = random.Random(1)
    path = tmp_path / "messages.jsonl"
    lines(
        path,
        *(
            {"destination": generator.choice("abc"), "body": "x" * generator.randrange(2 * KIB), "priority": n % 10}
            for n in range(2000)
        ),
    )
    store = tmp_path / "kept"
    exit_code = main(["bench", "--input", str(path), "--dir", str(store)])
    printed = capsys.readouterr().out
    assert exit_code == 0, printed
    assert printed.count("killed with SIGKILL") == 2
    assert any(store.iterdir())
