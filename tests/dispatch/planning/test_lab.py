"""`forebay plan --policies` plays other rules about memory, and says what the library's own costs beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
from lab_traffic import LAB_TRAFFICS, played
from recorded_bays import RecordedBay, burst, send, take
from simulated_disk import SimulatedDisk

from forebay.__main__ import main
from forebay.cache.accounting.charge import OVERHEAD_BYTES
from forebay.dispatch.planning.clairvoyant import Clairvoyant
from forebay.dispatch.planning.lab import PlayedRule, PlayedRules, RuleComparison, play_rules
from forebay.dispatch.planning.report import rules_table
from forebay.dispatch.planning.rules import RULES
from forebay.store.disk.disk import File
from forebay.store.format.trace import (
    ACK,
    ARRIVE,
    GONE,
    LIST,
    OFFER,
    RELEASED,
    TAKE,
    WAITING,
    Encoder,
    Event,
    TraceHeader,
)

MIB = 1 << 20
REGRET_MAX = 0.05
"""The most that another rule may read less, as a part of what is delivered. See docs/decisions/0023-regret.md."""


def clairvoyant(available_bytes: int, events: Sequence[Event]) -> Clairvoyant:
    found = Clairvoyant(available_bytes)
    for event in events:
        found.play(event)
    found.finish()
    return found


def stretches(events: Sequence[Event]) -> list[tuple[int, int, int]]:
    """When each message of single arrivals and acks came, its charge, and when it was settled."""
    came: dict[tuple[int, int], tuple[int, int]] = {}
    found: list[tuple[int, int, int]] = []
    for at, (kind, lane, sequence, _, length) in enumerate(events):
        if kind == ARRIVE:
            came[lane, sequence] = at, length + OVERHEAD_BYTES
        elif kind == ACK:
            found.append((*came[lane, sequence], at))
    return found


def most_kept_bytes(events: Sequence[Event], available_bytes: int) -> int:
    """The best of all choices of whole messages."""
    found = stretches(events)
    best = 0
    for count in range(len(found) + 1):
        for chosen in combinations(found, count):
            kept = sum(charge for _, charge, _ in chosen)
            fits = all(
                sum(charge for came, charge, gone in chosen if came <= at < gone) <= available_bytes
                for at in range(len(events))
            )
            best = max(best, kept if fits else 0)
    return best


def random_events(random: Random, lengths: Sequence[int], messages: int = 7) -> list[Event]:
    """Messages of two lanes, each taken and acknowledged in the order of its lane."""
    sent, taken = [0, 0], [0, 0]
    events: list[Event] = []
    while sum(taken) < messages:
        lane = random.randrange(2)
        if sum(sent) < messages and (random.random() < 0.6 or sent == taken):
            events.append((ARRIVE, lane, sent[lane], 1, random.choice(lengths)))
            sent[lane] += 1
        elif taken[lane] < sent[lane]:
            events += [(TAKE, lane, taken[lane], 1, lane), (ACK, lane, taken[lane], 1, 0)]
            taken[lane] += 1
    return events


@pytest.mark.parametrize("seed", range(12))
def test_clairvoyant_keeps_as_many_of_equal_messages_as_the_best_of_all_choices(seed: int) -> None:
    events = random_events(Random(seed), [1000])
    for kept in (1, 2, 3):
        available_bytes = kept * (1000 + OVERHEAD_BYTES)
        assert clairvoyant(available_bytes, events).kept_bytes == most_kept_bytes(events, available_bytes)


@pytest.mark.parametrize("seed", range(12))
def test_no_choice_of_messages_of_any_size_keeps_more_bytes_than_the_clairvoyant(seed: int) -> None:
    events = random_events(Random(seed), [100, 1500, 4000])
    for available_bytes in (2000, 5000, 9000):
        assert clairvoyant(available_bytes, events).kept_bytes >= most_kept_bytes(events, available_bytes)


def test_clairvoyant_reads_what_was_not_in_memory_when_it_came() -> None:
    events: list[Event] = [
        (WAITING, 0, 0, 4, 400),
        (ARRIVE, 0, 4, 4, 100),
        (TAKE, 0, 0, 8, 0),
        (RELEASED, 0, 6, 2, 0),
        (OFFER, 0, 6, 1, 1),
        (OFFER, 0, 7, 1, 0),
        (TAKE, 0, 6, 2, 0),
        (ACK, 0, 0, 8, 0),
    ]
    found = clairvoyant(1 << 30, events)
    charge = 100 + OVERHEAD_BYTES
    assert found.deliveries == 10
    assert found.delivered_bytes == 10 * charge
    assert found.read_back_bytes == 5 * charge, "four that waited, and the one that was offered without its body"


def test_clairvoyant_counts_nothing_for_messages_that_nobody_took() -> None:
    found = clairvoyant(1 << 30, [(ARRIVE, 0, 0, 9, 100), (GONE, 0, 3, 6, 0), (TAKE, 0, 0, 2, 0), (ACK, 0, 0, 3, 0)])
    assert (found.deliveries, found.read_back_bytes) == (2, 0)
    assert found.kept_bytes == 2 * (100 + OVERHEAD_BYTES)


def test_clairvoyant_settles_what_is_in_flight_at_the_end() -> None:
    found = clairvoyant(1 << 30, [(ARRIVE, 0, 0, 9, 100), (TAKE, 0, 0, 2, 0)])
    assert (found.deliveries, found.read_back_bytes) == (2, 0)


def test_memory_of_the_clairvoyant_follows_what_is_pending_not_the_length_of_the_trace() -> None:
    def sizes() -> Iterator[int]:
        found = Clairvoyant(8 * MIB)
        for sequence in range(30_000):
            length = 100 + sequence % 50
            found.play((ARRIVE, 0, sequence, 1, length))
            if sequence >= 20:
                found.play((TAKE, 0, sequence - 20, 1, 0))
                found.play((ACK, 0, sequence - 20, 1, 0))
            if sequence in (1000, 29_999):
                yield found.pieces

    early, late = sizes()
    assert late <= early + 100


@pytest.fixture
def trace() -> File:
    bay = RecordedBay(memory_limit="4MiB")
    burst(bay, Random(1), 3000)
    bay.bay.close()
    return bay.trace


def test_each_rule_plays_the_whole_trace(trace: File) -> None:
    found = play_rules(trace)
    [limit] = found.limits
    assert limit.limit_bytes == found.recorded_limit_bytes == 4 * MIB
    assert [rule.name for rule in limit.rules] == list(RULES)
    assert limit.ours.name == "ours"
    assert limit.delivered_bytes == limit.deliveries * (1000 + OVERHEAD_BYTES) > 2 * MIB
    assert all(rule.strays == rule.held_back == 0 for rule in limit.rules)
    assert all(
        rule.read_back_bytes >= round((1 - rule.hit_ratio) * limit.delivered_bytes) - 1 for rule in limit.rules
    ), "what is no hit was read at least once"
    assert len({rule.read_back_bytes for rule in limit.rules}) > 5, "the rules differ"


def test_lab_is_deterministic_and_plays_the_limits_asked_for(trace: File) -> None:
    found = play_rules(trace, [8 * MIB, 4 * MIB, 8 * MIB])
    assert [limit.limit_bytes for limit in found.limits] == [4 * MIB, 8 * MIB]
    assert found == play_rules(trace, [4 * MIB, 8 * MIB])
    assert found.limits[0] == play_rules(trace).limits[0]


def test_progress_goes_forward_to_the_end(trace: File) -> None:
    bay = RecordedBay(memory_limit="4MiB")
    queue = bay.queue()
    with queue.subscribe() as consumer:
        for _ in range(6000):
            send(queue, 1, 100)
            take(consumer, 1)
    bay.bay.close()
    told: list[tuple[int, int]] = []
    play_rules(bay.trace, on_progress=lambda done, total: told.append((done, total)))
    done = [at for at, _ in told]
    [total] = {of for _, of in told}
    assert done == sorted(done) and len(done) > len(RULES)
    assert 0.9 * total < done[-1] <= total == (2 + len(RULES)) * bay.trace.size()


def test_regret_is_what_ours_reads_more_as_a_part_of_what_is_delivered() -> None:
    rules = tuple(PlayedRule(name, 0.5, size, 0, 0, 0) for name, size in (("ours", 500), ("a", 450), ("b", 450)))
    found = PlayedRules(4 * MIB, 10, 1000, rules, 0.9, 100)
    assert found.best.name == "a"
    assert (found.regret, found.clairvoyant_regret) == (0.05, 0.4)
    assert "regret of ours: 5.0 % beside the best rule (a)," in rules_table(
        RuleComparison(4 * MIB, 1.0, 5, 0, (found,))
    )


def written(events: Sequence[Event]) -> File:
    file = SimulatedDisk().open("trace", create=True)
    encoder = Encoder()
    for event in events:
        encoder.put(*event)
    file.append(TraceHeader(4 * MIB, 0, False).encode() + encoder.block())
    return file


def test_what_is_too_large_for_the_limit_is_said() -> None:
    arrivals: list[Event] = [(ARRIVE, 0, 500 * at, 500, 2048) for at in range(12)]
    events: list[Event] = [(LIST, 0, 0, 0, 0), *arrivals, (TAKE, 0, 0, 6000, 0), (ACK, 0, 0, 6000, 0)]
    [found] = play_rules(written(events)).limits
    assert found.ours.held_back > 0
    lines = rules_table(play_rules(written(events)))
    assert any("memory_limit=4MiB is too small for what was in flight" in line for line in lines)


def test_nothing_delivered_compares_nothing() -> None:
    found = play_rules(written([(ARRIVE, 0, 0, 10, 100)]))
    assert rules_table(found)[-1] == "nothing was delivered: there is nothing to compare"
    assert found.limits[0].regret == found.limits[0].clairvoyant_regret == 0.0


@pytest.fixture
def path(trace: File, tmp_path: Path) -> str:
    target = tmp_path / "traffic"
    target.write_bytes(trace.read(0, trace.size()))
    return str(target)


def test_command_prints_a_table_of_rules_within_eighty_columns(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--policies", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "memory_limit=4MiB" in lines[0]
    names = [line[:32].rstrip() for line in lines[3:]]
    assert names[: len(RULES) + 1] == [*RULES, "clairvoyant"]
    assert lines[-2].startswith("regret of ours: ") and lines[-1].endswith(" beside one that knows the future")


def test_command_prints_one_json_object_a_trace(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--policies", "--json", "--limits", "4MiB,8MiB", path]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["trace"] == path
    assert [limit["limit_bytes"] for limit in found["limits"]] == [4 * MIB, 8 * MIB]
    first = found["limits"][0]
    assert [rule["name"] for rule in first["rules"]] == list(RULES)
    best = next(rule for rule in first["rules"] if rule["name"] == first["best"])
    assert first["regret"] == best["regret"] == max(rule["regret"] for rule in first["rules"])
    assert first["clairvoyant_regret"] >= first["regret"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{missing}"], "can't be read (No such file or directory)"),
        (["{other}"], "it is not a trace that record_trace wrote"),
        (["{path}", "--limits", "1MiB"], "must be at least 4MiB"),
        (["{path}", "--svg", "curve.svg"], "--policies prints tables"),
        (["{path}", "--engine", "spark"], "--policies prints tables"),
    ],
)
def test_bad_input_is_one_clear_line(
    arguments: list[str], words: str, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.write_bytes(bytes(1000))
    places = {"missing": str(tmp_path / "missing"), "other": str(other), "path": path}
    assert main(["plan", "--policies", *(argument.format(**places) for argument in arguments)]) == 2
    captured = capsys.readouterr()
    assert words in captured.err and captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize("name", LAB_TRAFFICS)
def test_regret_of_ours_is_no_more_than_the_decision_says(name: str) -> None:
    found = played(name)
    assert found.regret <= REGRET_MAX, f"{found.best.name} reads {found.regret:.1%} less"
    assert found.ours.strays == 0
    assert found.clairvoyant_bytes <= found.best.read_back_bytes, "no rule reads less than one that knows the future"
    assert 0 < found.ours.read_back_bytes < found.delivered_bytes, "the limit is too small for all, and not for any"
