"""A selector's scan passes over blocks in which nothing matches, and reads each block at most once to learn that."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random
from typing import Any

import pytest
from compiled import interpreted
from inside import inside
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut

import forebay
from forebay import Closed, Message, Queue, StoreFailed
from forebay.store.index.fingerprint import BlockSurvey
from forebay.store.metadata.metadata_store import MetadataFull
from forebay.store.numbering import BLOCK_MESSAGES

BLOCKS = 24
MESSAGES = BLOCKS * BLOCK_MESSAGES
RARE = 13 * BLOCK_MESSAGES + 77


@pytest.fixture
def simulated() -> SimulatedBay:
    """A queue of which RAM has next to nothing, so that what is examined is read."""
    simulated = SimulatedBay(memory_limit="4MiB")
    send(simulated.queue(), range(MESSAGES))
    simulated.reopen()
    return simulated


def send(queue: Queue, numbers: range, region: str = "us") -> None:
    for first in numbers[::256]:
        chosen = range(first, min(first + 256, numbers.stop))
        queue.send_many([Message(b"%d" % n, headers={"n": n, "region": "eu" if n == RARE else region}) for n in chosen])


def found(queue: Queue, selector: str, *, acknowledges: bool = False) -> list[int]:
    """Return the numbers of all messages that a selector finds."""
    numbers: list[int] = []
    with queue.subscribe(selector=selector, prefetch=0) as consumer:
        while (deliveries := consumer.take(500)) or inside(queue).loader.step():
            numbers += [int(delivery.body) for delivery in deliveries]
            if acknowledges and deliveries:
                consumer.ack(deliveries)
    return numbers


def reads_of(simulated: SimulatedBay, selector: str, expected: list[int]) -> int:
    before = simulated.reads
    assert found(simulated.queue(), selector) == expected
    return simulated.reads - before


def test_the_second_scan_reads_the_block_of_the_match_alone(simulated: SimulatedBay) -> None:
    assert reads_of(simulated, "region = 'eu'", [RARE]) >= BLOCKS
    assert reads_of(simulated, "region = 'eu'", [RARE]) <= 2
    assert reads_of(simulated, "region = 'nowhere'", []) <= 1


def test_another_selector_over_the_same_header_passes_over_as_well(simulated: SimulatedBay) -> None:
    found(simulated.queue(), "n < 0")
    for selector in (f"n = {RARE}", f"n BETWEEN {RARE} AND {RARE}", f"NOT (n <> {RARE})"):
        assert reads_of(simulated, selector, [RARE]) <= 4


def test_headers_of_two_selectors_serve_a_third_one(simulated: SimulatedBay) -> None:
    found(simulated.queue(), "n < 0")
    found(simulated.queue(), "region = 'x'")
    assert reads_of(simulated, f"region = 'eu' AND n > {RARE}", []) <= 2


def test_a_browser_passes_over_blocks_that_a_consumer_has_examined_and_the_other_way_round(
    simulated: SimulatedBay,
) -> None:
    queue = simulated.queue()
    found(queue, "region = 'eu'")
    before = simulated.reads
    assert [message.body for message in queue.browse("region = 'eu'")] == [b"%d" % RARE]
    assert list(queue.browse("region = 'nowhere'")) == []
    assert simulated.reads - before <= 2
    assert [message.body for message in queue.browse(f"n = {RARE}")] == [b"%d" % RARE]
    assert reads_of(simulated, f"n = {RARE}", [RARE]) <= 4


def test_a_browser_reads_each_block_once_to_learn_what_is_in_it(simulated: SimulatedBay) -> None:
    reads: list[int] = []
    for _ in range(2):
        before = simulated.reads
        assert [message.body for message in simulated.queue().browse("region = 'eu'")] == [b"%d" % RARE]
        reads.append(simulated.reads - before)
        simulated.reopen()
    assert reads[0] >= BLOCKS and reads[1] <= 3


def test_a_move_by_a_selector_passes_over_blocks(simulated: SimulatedBay) -> None:
    queue, to = simulated.queue(), simulated.queue("moved")
    assert list(queue.browse("region = 'nowhere'")) == []
    before = simulated.reads
    assert queue.move(to, selector="region = 'eu'") == 1
    assert queue.move(to, selector="region = 'eu'") == 0
    assert simulated.reads - before <= 4
    assert [message.body for message in to.browse()] == [b"%d" % RARE]
    assert queue.depth == MESSAGES - 1


def test_a_browser_that_stops_early_leaves_no_fingerprint_of_a_block_that_it_left(simulated: SimulatedBay) -> None:
    browser = simulated.queue().browse("region = 'us'")
    assert next(iter(browser)).body == b"0"
    del browser
    assert found(simulated.queue(), "region = 'eu'") == [RARE]


def test_fingerprints_outlive_the_process(simulated: SimulatedBay) -> None:
    found(simulated.queue(), "region = 'eu'")
    simulated.reopen()
    assert reads_of(simulated, "region = 'eu'", [RARE]) <= 3


@pytest.fixture
def crowded() -> SimulatedBay:
    """A queue with headers whose fingerprints take several times the share that RAM has for them."""
    simulated = SimulatedBay(memory_limit="4MiB")
    queue = simulated.queue()
    for first in range(0, MESSAGES, 256):
        queue.send_many(
            [Message(b"%d" % n, headers={name: f"{name}{n}" for name in "abcd"}) for n in range(first, first + 256)]
        )
    simulated.reopen()
    return simulated


# Four headers of which no two messages have the same value, so a block's fingerprints are as large as they can be.
SCATTERED = f"a = 'a{RARE}' AND (b = 'x' OR c = 'x' OR d = 'd{RARE}')"


def checkpoints(simulated: SimulatedBay) -> int:
    return simulated.store.checkpointer.durations.count


@pytest.mark.parametrize("is_browsing", [False, True])
def test_one_scan_leaves_all_fingerprints_although_ram_holds_those_of_few_blocks(
    crowded: SimulatedBay, is_browsing: bool
) -> None:
    before = checkpoints(crowded)
    if is_browsing:
        assert [message.body for message in crowded.queue().browse(SCATTERED)] == [b"%d" % RARE]
    else:
        assert found(crowded.queue(), SCATTERED) == [RARE]
    assert 2 <= checkpoints(crowded) - before <= BLOCKS // 6
    crowded.reopen()
    assert reads_of(crowded, SCATTERED, [RARE]) <= 4


def test_a_scan_waits_between_two_checkpoints_for_as_long_as_one_takes(
    crowded: SimulatedBay, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, took_seconds = crowded.metadata.commit, 100.0

    def commit_slowly(*args: Any, **fields: Any) -> None:
        crowded.clock.advance(took_seconds)
        commit(*args, **fields)

    monkeypatch.setattr(crowded.metadata, "commit", commit_slowly)
    began, before = crowded.clock.monotonic(), checkpoints(crowded)
    for nth in (1, 2):
        assert found(crowded.queue(), SCATTERED) == [RARE]
        assert checkpoints(crowded) - before == nth, "the share of RAM is full several times"
        assert crowded.clock.monotonic() - began == nth * took_seconds + (nth - 1) * took_seconds
        crowded.clock.advance(took_seconds)
    monkeypatch.undo()
    assert found(crowded.queue(), SCATTERED) == [RARE]
    crowded.reopen()
    assert reads_of(crowded, SCATTERED, [RARE]) <= 4


def test_a_take_that_must_not_wait_leaves_the_checkpoint_to_others(crowded: SimulatedBay) -> None:
    before = checkpoints(crowded)
    with crowded.queue().subscribe(selector="a = 'nowhere' OR b = 'x' OR c = 'x' OR d = 'x'") as consumer:
        for _ in range(BLOCKS):
            assert consumer.take() == []
        assert checkpoints(crowded) == before
        while crowded.loader.step():
            pass
    send(crowded.queue(), range(BLOCK_MESSAGES))
    assert found(crowded.queue(), SCATTERED) == [RARE]
    assert checkpoints(crowded) > before


def test_without_an_index_on_disk_no_scan_checkpoints(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"memory_limit": "4MiB", "sync": "never", "background": False}
    with forebay.open(tmp_path, persistent_index=False, **settings) as bay:
        queue = bay.queue("orders")
        for first in range(0, MESSAGES // 2, 256):
            queue.send_many(
                [Message(b"%d" % n, headers={name: f"{name}{n}" for name in "abcd"}) for n in range(first, first + 256)]
            )
        durations = inside(bay).store.checkpointer.durations
        before = durations.count
        for _ in range(2):
            assert found(queue, SCATTERED.replace(str(RARE), "7")) == [7]
        assert durations.count == before


def test_a_scan_asks_a_full_disk_once_for_a_checkpoint_and_goes_on(
    crowded: SimulatedBay, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[int] = []

    def refuse(*_: Any, **__: Any) -> None:
        refused.append(1)
        raise MetadataFull("no room")

    with monkeypatch.context() as patched:
        patched.setattr(crowded.metadata, "commit", refuse)
        assert found(crowded.queue(), SCATTERED) == [RARE]
        assert len(refused) == 2, "one checkpoint, which tries again in the lent reserve"
    crowded.check()
    crowded.bay.checkpoint()
    assert found(crowded.queue(), SCATTERED) == [RARE]
    crowded.reopen()
    assert reads_of(crowded, SCATTERED, [RARE]) <= 4


@pytest.mark.parametrize(
    "is_failing", [False, pytest.param(True, marks=interpreted("it replaces a method of a class of machine code"))]
)
def test_a_scan_that_outlives_the_store_leaves_its_closed_index_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_failing: bool
) -> None:
    bay = forebay.open(tmp_path, background=False, memory_limit="4MiB", sync="never")
    send(bay.queue("orders"), range(MESSAGES))
    bay.checkpoint()
    store, lane = inside(bay).store, inside(bay).lane(inside(bay).queue_state(), 4)
    if is_failing:
        monkeypatch.setattr(type(store.journal.files), "sync_names", fail_with_an_input_error)
        with pytest.raises(StoreFailed):
            bay.close()
    else:
        bay.close()
    survey = BlockSurvey(frozenset("n"), 0)
    for index in range(BLOCK_MESSAGES):
        survey.add(index, {"n": index})
    lane.scan().note_survey(survey)
    assert store.index.fingerprints.is_stale
    lane.scan().make_survey_room()
    with pytest.raises(Closed):
        store.checkpointer.checkpoint()
    monkeypatch.undo()
    with forebay.open(tmp_path, background=False) as bay:
        assert not bay.recovery.index_rebuilt


def fail_with_an_input_error(*_: object) -> None:
    raise OSError(errno.EIO, "the disk fails")


def test_a_cleanup_that_outlives_the_store_ends(tmp_path: Path) -> None:
    bay = forebay.open(tmp_path, background=False, sync="never")
    store = inside(bay).store
    bay.close()
    with pytest.raises(Closed):
        store.cleanup.delete_data_logs()


def test_a_lost_index_costs_one_more_scan_and_no_message(simulated: SimulatedBay) -> None:
    found(simulated.queue(), "region = 'eu'")
    simulated.crash(is_index_lost=True)
    assert reads_of(simulated, "region = 'eu'", [RARE]) >= BLOCKS - 1
    assert reads_of(simulated, "region = 'eu'", [RARE]) <= 3


def test_messages_that_come_into_a_partly_filled_block_are_found() -> None:
    simulated = SimulatedBay(memory_limit="4MiB")
    send(simulated.queue(), range(BLOCK_MESSAGES + 100))
    assert found(simulated.queue(), "region = 'de'") == []
    send(simulated.queue(), range(BLOCK_MESSAGES + 100, BLOCK_MESSAGES + 200), "de")
    assert found(simulated.queue(), "region = 'de'") == list(range(BLOCK_MESSAGES + 100, BLOCK_MESSAGES + 200))


def test_delayed_messages_are_found_by_a_scan_that_comes_when_they_are_due() -> None:
    simulated = SimulatedBay(memory_limit="4MiB")
    queue = simulated.queue()
    queue.send_many([Message(b"%d" % n, headers={"region": "us"}) for n in range(200)])
    queue.send(b"200", headers={"region": "eu"}, delay=60)
    send(queue, range(201, BLOCK_MESSAGES + 10))
    assert found(queue, "region = 'eu'") == []
    simulated.clock.advance(61)
    simulated.housekeep()
    assert found(queue, "region = 'eu'") == [200]


def test_acks_leave_fingerprints_right_and_what_came_back_is_found(simulated: SimulatedBay) -> None:
    queue = simulated.queue()
    selector = f"n >= {RARE - 3} AND n <= {RARE + 3}"
    with queue.subscribe(selector=selector) as consumer:
        while not (deliveries := consumer.take(10)):
            assert simulated.loader.step()
        consumer.ack(deliveries[:2])
    assert found(queue, selector, acknowledges=True) == list(range(RARE - 1, RARE + 4))
    assert found(queue, selector) == []
    assert queue.depth == MESSAGES - 7


def test_priorities_have_fingerprints_of_their_own() -> None:
    simulated = SimulatedBay(memory_limit="4MiB")
    queue = simulated.queue()
    for priority in (2, 7):
        for first in range(0, 2 * BLOCK_MESSAGES, 256):
            queue.send_many(
                [Message(b"%d" % n, headers={"p": priority}, priority=priority) for n in range(first, first + 256)]
            )
    assert len(found(queue, "p = 7")) == 2 * BLOCK_MESSAGES
    assert len(found(queue, "p = 2")) == 2 * BLOCK_MESSAGES
    assert found(queue, "p = 3") == []


def test_random_selectors_find_what_a_look_at_each_message_finds(simulated: SimulatedBay) -> None:
    random = Random(11)
    queue = simulated.queue()
    pending = set(range(MESSAGES))
    tests: list[tuple[str, list[int]]] = []
    for _ in range(12):
        low = random.randrange(MESSAGES)
        high = low + random.randrange(700)
        tests.append((f"n BETWEEN {low} AND {high}", list(range(low, min(high + 1, MESSAGES)))))
        tests.append((f"n IN ('{low}') OR region = 'eu'", [RARE]))
    for turn, (selector, wanted) in enumerate(tests):
        acknowledges = turn % 3 == 0
        expected = [n for n in wanted if n in pending]
        assert found(queue, selector, acknowledges=acknowledges) == expected
        if acknowledges:
            pending -= set(expected)
        if turn % 5 == 4:
            simulated.crash(is_index_lost=turn % 10 == 9)
            queue = simulated.queue()
        inside(simulated.bay).index._check()


def test_after_a_power_cut_no_fingerprint_speaks_of_messages_that_were_lost() -> None:
    for seed in range(8):
        simulated = SimulatedBay(seed, memory_limit="4MiB", sync="interval")
        send(simulated.queue(), range(3 * BLOCK_MESSAGES))
        assert found(simulated.queue(), "region = 'de'") == []
        if seed % 2:
            inside(simulated.bay).store.checkpointer.checkpoint()
        simulated.power_cut(Random(seed), PowerCut.SYNCED)
        queue = simulated.queue()
        depth = queue.depth
        send(queue, range(depth, 4 * BLOCK_MESSAGES), "de")
        assert found(queue, "region = 'de'") == list(range(depth, 4 * BLOCK_MESSAGES))


def test_a_send_whose_checkpoint_comes_behind_the_closing_one_succeeds() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    simulated.store.checkpointer.close()
    simulated.store.index.checkpoint_need.due_adds = 0
    assert queue.send(b"stored")
    assert queue.depth == 1
