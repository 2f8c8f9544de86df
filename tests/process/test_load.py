"""The load test: it must find every fault that a store could have, and see none where there is none."""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from forebay.__main__ import main
from forebay.benchmarks.load import supervisor
from forebay.benchmarks.load.bounds import Bounds
from forebay.benchmarks.load.broker_process import from_plan
from forebay.benchmarks.load.events import CAME_AGAIN, PRODUCER_SHIFT, Decoder, Kind, encode
from forebay.benchmarks.load.evidence import Evidence
from forebay.benchmarks.load.input_file import InputFile
from forebay.benchmarks.load.report import Report
from forebay.benchmarks.load.result import Run, Sample
from forebay.benchmarks.load.scenario_file import shipped
from forebay.benchmarks.load.words import short
from forebay.benchmarks.load.workload import BATCH_BYTES, MIN_SIZE_BYTES, Generated, Workload
from forebay.dispatch.config.sizes import KIB, MIB
from forebay.store.errors import SettingsError
from forebay.store.message import Message

# Evidence


def keys(*numbers: int, producer: int = 0) -> array[int]:
    return array("Q", [producer << PRODUCER_SHIFT | n for n in numbers])


def evidence_of(sent: int, *, lane: Callable[[int, int], int] | None = None, unwanted: int = 0) -> Evidence:
    """One producer, whose messages were all confirmed."""
    evidence = Evidence([sent], lane, unwanted)
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
    evidence = Evidence([10])
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
    evidence = Evidence([6])
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


def messages_of(workload: Workload, producer: int = 0, start: int = 0) -> list[Message]:
    return [
        message
        for batch in workload.batches(producer, start, lambda n: 256)
        for messages in batch.messages.values()
        for message in messages
    ]


def test_generated_messages_depend_on_the_seed_alone() -> None:
    def bodies(seed: int) -> list[bytes]:
        return [message.body for message in messages_of(Generated(300, [100], 1, seed))]

    assert bodies(1) == bodies(1) != bodies(2)
    assert len(set(bodies(1))) == 300


def test_generated_messages_are_shared_out_and_go_on_where_they_stopped() -> None:
    workload = Generated(1001, [64], 4, seed=1)
    assert workload.counts == [251, 250, 250, 250]
    assert messages_of(workload, 0, 100) == messages_of(workload, 0)[100:]
    assert [batch.stop for batch in workload.batches(1, 240, lambda n: 256)] == [250]


def test_last_hundredth_of_each_producer_is_rare() -> None:
    kinds = [(message.headers or {})["kind"] for message in messages_of(Generated(1000, [64], 1, seed=1))]
    assert kinds == ["plain"] * 990 + ["rare"] * 10


@pytest.mark.parametrize("stuck_every", [None, 1, 7, 10_000])
def test_kinds_are_counted_as_they_are_sent(stuck_every: int | None) -> None:
    workload = Generated(2001, [64], 2, seed=1, stuck_every=stuck_every)
    sent = [(message.headers or {})["kind"] for producer in (0, 1) for message in messages_of(workload, producer)]
    assert workload.kinds == {kind: sent.count(kind) for kind in ("plain", "rare", "stuck")}


def test_each_producer_sends_to_one_destination_after_the_other() -> None:
    workload = Generated(10, [64], 1, seed=1, destinations=3)
    [batch] = workload.batches(0, 0, lambda n: 256)
    sent = {name: [(message.headers or {})["n"] for message in messages] for name, messages in batch.messages.items()}
    assert sent == {"load.0": [0, 3, 6, 9], "load.1": [1, 4, 7], "load.2": [2, 5, 8]}
    assert [workload.lane(0, n) for n in (0, 3, 1)] == [0, 0, 1]


MIXED = (MIN_SIZE_BYTES, KIB, 64 * KIB)


def test_each_message_has_the_size_whose_turn_it_is() -> None:
    sizes = [len(message.body) for message in messages_of(Generated(100, MIXED, 1, seed=1))]
    assert sizes == [MIXED[n % 3] for n in range(100)]


@pytest.mark.parametrize("destinations", [2, 3, 6, 7])
def test_each_destination_gets_each_size(destinations: int) -> None:
    workload = Generated(200, MIXED, 1, seed=1, destinations=destinations)
    got: dict[str, list[int]] = {name: [] for name in workload.destinations}
    for batch in workload.batches(0, 0, lambda n: 256):
        for name, messages in batch.messages.items():
            got[name] += [len(message.body) for message in messages]
    for sizes in got.values():
        assert sizes == [MIXED[turn % 3] for turn in range(len(sizes))]


@pytest.mark.parametrize("destinations", [1, 3, 4])
def test_bytes_of_mixed_bodies_are_counted_as_they_are_sent(destinations: int) -> None:
    workload = Generated(1001, MIXED, 4, seed=1, destinations=destinations)
    sent = [message for producer in range(4) for message in messages_of(workload, producer)]
    assert sum(len(message.body) for message in sent) == workload.total_bytes
    assert (len(workload.check(sent)[0]), workload.check(sent)[1]) == (1001, [])


@pytest.mark.parametrize("sizes", [MIXED, (100,), (200 * KIB,), (MIN_SIZE_BYTES, 2 * BATCH_BYTES)])
def test_batch_is_full_with_its_bytes_whatever_their_sizes(sizes: tuple[int, ...]) -> None:
    workload = Generated(1000, sizes, 1, seed=1, destinations=2)
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
    workload, shifted = Generated(3, (64, 100, 100), 1, seed=1), Generated(3, (100, 64, 100), 1, seed=1)
    assert workload.check(messages_of(shifted)) == (
        keys(2),
        ["producer 0, n 0, 100 bytes", "producer 0, n 1, 64 bytes"],
    )


@pytest.mark.parametrize("size_bytes", [MIN_SIZE_BYTES, 1000])
def test_check_sees_each_flipped_bit_of_a_body(size_bytes: int) -> None:
    workload = Generated(3, [size_bytes], 1, seed=1)
    message = messages_of(workload)[2]
    assert workload.check([message]) == (keys(2), [])
    for bit in range(8 * size_bytes):
        body = bytearray(message.body)
        body[bit // 8] ^= 1 << bit % 8
        found, damaged = workload.check([Message(bytes(body), message.headers)])
        assert (len(found), len(damaged)) == (0, 1), f"bit {bit}"


def test_check_sees_a_body_under_the_headers_of_another() -> None:
    workload = Generated(4, [64], 2, seed=1)
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
    workload = Generated(10, [64], 4, seed=1)
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
