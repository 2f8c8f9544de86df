"""Code that is written inline on a hot path does what the function does that it replaces.

A comment at each such place has the word *inline* and names the function. COPIES says what of a function stands where,
and with which changes; their sources are compared. A copy in another form is run beside its function, on the same
values: `does_as` marks these tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import product
from operator import mul
from types import SimpleNamespace
from typing import Any

import pytest
from inlined_copies import (
    Copy,
    assignments_from_outside,
    function,
    functions,
    inline_comments,
    missing_code,
    runnable,
    sources,
)

UNLIMITED = 1 << 62
LISTS = ("ListContents", "ListSupply")

ADMIT_ONE = {
    "self": "sole",
    "sole.memory": "self.memory",
    "if sole.direct is NO_MESSAGES: sole.own_direct()": "",  # a list on the fast path has a deque of its own
    "sole.direct.extend(messages)": "sole.direct.append(message)",
    "messages[-1][0] + 1": "behind",
    "return True": "",
    "return False": "",
}
WAKE_ONE = {
    "self": "selector_group",
    "selector_group.arrived.notify(messages)": "selector_group.arrived.notify()",
    "ready": "self.destination.monitor.deferred",
}
WITH_BODY = {"message[1]": "properties", "len(body) if body is not None else 0": "len(body)"}
TAKEN = {"self": "target", "charge": "taken_bytes"}

COPIES = [
    # a send
    *(
        Copy(f"Sender.{name}", "send_pipeline.checked_priority", {}, ("type(priority) is not int or ",))
        for name in ("_store_persistent", "_store_non_persistent", "_add_to_transaction")
    ),
    Copy("Sender._store_persistent", "charge.charge_of", WITH_BODY, ("len(message[1]) + ",)),
    Copy(
        "Sender._store_persistent",
        "Publisher.publish_when_durable",
        {"self.syncs_always": "parts.syncs_always", "self": "parts.publisher", "messages": "(message,)"},
        ("self.syncs_always", "self.hold_until_durable("),
    ),
    Copy(
        "Sender._store_persistent",
        "TargetArea.publish",
        {"lane.arrive_many(messages, charge)": "lane.arrive(message)"},
        ("lane.arrive_many(",),
    ),
    Copy("Publisher.hold_until_durable", "Journal.end", {"self": "journal"}),
    Copy("ThreadConfirmer.confirm", "CheckpointNeed.is_due", {"self": "need"}),
    Copy("LoopConfirmer.confirm", "CheckpointNeed.is_due", {"self": "need"}),
    Copy("Overflow.take_in", "Overflow.ensure_room", {}, ("if self.buffer.is_batch(",)),
    Copy(
        "message_properties.encode_headers_of_each",
        "message_properties._headers",
        {"break": "return None"},
        ("kind = type(value)", "if type(name) is not str", "if kind is not str"),
    ),
    # a record, and its place in the index
    Copy(
        "Journal.append_one",
        "Journal._append",
        {
            "offset = self.offset": "",
            "len(data)": "size",
            "self._write(data)": "self._write_message(data)\nif len(data) != size: self._write(body)",
        },
    ),
    Copy(
        "Journal.append_ack",
        "Journal._append",
        {"offset = self.offset": "", "len(data)": "ACK_BYTES", "return offset": ""},
    ),
    Copy("MessageStore.add_expiring", "Index.note_time", {"self": "self._index", "now_ms": "timestamp"}),
    Copy("DestinationLane.add_one", "DestinationLane._touched", {"return block": ""}),
    Copy("DestinationLane.add_one", "DestinationLane._count_added", {"count": "1", "total": "length"}),
    Copy("DestinationLane.add_slice", "DestinationLane._touched", {"return block": ""}),
    Copy("DestinationLane.add_slice", "DestinationLane._count_added"),
    Copy("DestinationLane.remove_one", "DestinationLane._touched", {"return block": ""}),
    Copy(
        "DestinationLane.remove_one",
        "DestinationLane._remove_in",
        {"removed": "1", "freed_bytes": "length"},
        ("self.pending_messages -= ", "self.removed_bytes += "),
    ),
    Copy(
        "DestinationLane.remove_one",
        "DestinationLane._discount",
        {"messages": "1", "size": "length", "uses": "self.data_log_uses", "by_data_log": "ack_data_log"},
        ("use.pending_messages -= ", "use.pending_bytes -= ", "uses[by_data_log].acked_data_logs.add("),
    ),
    Copy("BlockCache.touch", "BlockCache._note_filling"),
    # an arrival
    Copy("PersistentLaneState.arrive", "charge.charge_of", {}, ("body = ", "len(message[1]) + ")),
    Copy("PersistentLaneState.arrive", "ListSupply.admit", ADMIT_ONE),
    Copy("PersistentLaneState.arrive", "SelectorGroup.wake_for", WAKE_ONE),
    Copy("NonPersistentLaneState.add", "charge.charge_of_size", {"content_bytes": "length"}),
    Copy("NonPersistentLaneState.add", "ListSupply.admit", ADMIT_ONE),
    Copy("NonPersistentLaneState.add", "SelectorGroup.wake_for", WAKE_ONE),
    Copy(
        "TargetArea._offer_to_lists",
        "ListContents.advance_frontier",
        {"self": "target", "end": "sequence + 1"},
        ("self.frontier = ",),
    ),
    # a take
    Copy("DispatchArea.dispatch_one", "charge.charge_of", WITH_BODY, ("len(message[1]) + ",)),
    Copy("DispatchArea.dispatch_one", "ListContents.drop_first", {"self": "target"}, ("self.direct_bytes -= ",)),
    Copy("DispatchArea.dispatch_one", "ListSupply.pass_first", {"self": "target"}, ("self.taken_bytes += ",)),
    Copy(
        "DispatchArea.dispatch_one",
        "Holder.transfer",
        {"self": "self.lists_holder", "charge_bytes": "charge"},
        ("self.held_bytes -= ",),
    ),
    Copy("DispatchArea.dispatch_one", "Holder.take_over", {"self": "dispatch", "charge_bytes": "charge"}),
    Copy("DispatchArea._take_what_fits", "charge.charge_of", {"message[1]": "properties"}, ("len(message[1]) + ",)),
    Copy("DispatchArea._transfer_charges", "ListContents.drop_first", TAKEN, ("self.direct_bytes -= ",)),
    Copy("DispatchArea._transfer_charges", "ListSupply.pass_first", TAKEN, ("self.taken_bytes += ",)),
    # an ack
    Copy(
        "DispatchArea.settle",
        "delivery.content_bytes",
        {
            "delivery.held_body": "body",
            "0": "OVERHEAD_BYTES",
            "len(delivery.held_properties) + len(body)": "OVERHEAD_BYTES + len(delivery.held_properties) + len(body)",
        },
    ),
    Copy(
        "DispatchArea.settle",
        "Holder.release",
        {"self": "self.dispatch_holder", "budget": "self.budget", "charge_bytes": "charge"},
        ("self.held_bytes -= ", "budget.held_bytes -= "),
    ),
    Copy(
        "DispatchArea.settle_run",
        "delivery.content_bytes",
        {"delivery.held_body": "body"},
        ("len(delivery.held_properties) + ",),
    ),
]

RUN_BESIDE: set[tuple[str, str]] = set()


def does_as(place: str, original: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Note that a test runs a place beside the function that is written inline there."""
    assert place in functions() and original in functions()
    RUN_BESIDE.add((place, original))
    return lambda test: test


@pytest.mark.parametrize("copy", COPIES, ids=lambda copy: f"{copy.place}-{copy.original}")
def test_a_copy_reads_as_its_function_does(copy: Copy) -> None:
    assert missing_code(copy) == []


def test_a_copy_that_lacks_something_is_found() -> None:
    assert missing_code(Copy("DestinationLane.add_one", "DestinationLane._count_added")) != []
    assert missing_code(Copy("BlockCache.touch", "CheckpointNeed.is_due")) == [
        "self.adds >= self.due_adds or self.is_index_filling"
    ]
    with pytest.raises(AssertionError, match="has no gone"):
        missing_code(Copy("BlockCache.touch", "BlockCache._note_filling", {"gone": "lost"}))


def test_each_comment_that_says_inline_names_a_function_that_is_compared_with_its_place() -> None:
    pairs = RUN_BESIDE | {(copy.place, copy.original) for copy in COPIES}
    comments = list(inline_comments())
    assert len(comments) > 25
    for place, comment in comments:
        compared = {original.rpartition(".")[2] for declared, original in pairs if declared == place}
        assert compared & set(re.findall(r"\w+", comment)), f"{place}, compared with {compared}:{comment}"


def test_only_copies_of_its_methods_change_the_fields_of_a_list_from_outside() -> None:
    fields = {
        node.attr
        for name in LISTS
        for node in ast.walk(function(f"{name}.__init__"))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    writers = {place for place, _, attribute in assignments_from_outside() if attribute in fields}
    assert writers == {copy.place for copy in COPIES if copy.original.startswith(LISTS)}


def test_the_dispatch_area_alone_changes_what_a_consumer_has_been_handed() -> None:
    handed = ("in_flight", "delivered")
    writers = {place for place, owner, name in assignments_from_outside() if name in handed and "consumer" in owner}
    assert {functions()[place][0].stem for place in writers} == {"dispatch_area"}


# ------------------------------------------------------------------ copies in another form

credit = runnable("FlowControlledConsumer.credit", UNLIMITED=UNLIMITED)


def consumers(**fields: object) -> Iterator[Any]:
    """Yield consumers with prefetch limits around what they hold, for which memory has room."""
    stage = SimpleNamespace(is_draining=False, is_over=False, is_passed_over=False)
    fields |= {"stage": stage, "_dispatch_area": SimpleNamespace(is_short_for=lambda memory: False), "_memory": None}
    for limit, held in product(range(4), range(5)):
        yield SimpleNamespace(prefetch_limit=limit, in_flight=held, **fields)


@does_as("FlowControlledConsumer.allowance", "FlowControlledConsumer.credit")
def test_a_consumer_may_take_its_credit_up_to_what_is_asked() -> None:
    allowance = runnable("FlowControlledConsumer.allowance")
    for consumer, most in product(consumers(), range(1, 4)):
        assert allowance(consumer, most) == min(most, credit(consumer)), (consumer, most)


@does_as("Consumer.take", "FlowControlledConsumer.credit")
def test_a_take_that_may_return_one_message_only_is_a_take_of_one() -> None:
    take, allowance = runnable("Consumer.take", AT_ONCE=None), runnable("FlowControlledConsumer.allowance")
    lock = SimpleNamespace(failure=None)
    monitor = SimpleNamespace(is_inside=bool, bare_lock=nullcontext(), lock=lock, entries=0, deferred=[])
    dispatcher = SimpleNamespace(dispatch_one=lambda consumer: "one", dispatch=lambda *_: ["several"])
    for consumer, most in product(consumers(monitor=monitor, dispatcher=dispatcher, _is_of_a_loop=True), range(1, 4)):
        consumer.allowance = lambda most, consumer=consumer: allowance(consumer, most)
        allowed = min(most, credit(consumer))
        assert take(consumer, most) == (["one"] if allowed == 1 else ["several"] if allowed > 1 else []), consumer


@does_as("Precedence._above", "FlowControlledConsumer.credit")
def test_precedence_passes_over_a_consumer_without_credit() -> None:
    above = runnable("Precedence._above")
    for consumer in consumers(demand=1, activity=SimpleNamespace(is_slow=False)):
        rank = SimpleNamespace(items=lambda consumer=consumer: [(consumer, None)])
        queue = SimpleNamespace(exclusive=None)
        found = list(above(SimpleNamespace(_queue=queue, _priorities=[1], _ranks={1: rank}), 0))
        assert bool(found) == (credit(consumer) > 0), consumer


@does_as("SubscribedTopicState.fronts", "ListContents.first_to_load")
def test_a_front_is_where_the_next_load_begins() -> None:
    fronts, first_to_load = runnable("SubscribedTopicState.fronts"), runnable("ListContents.first_to_load")
    runs = [None, SimpleNamespace(first=2), SimpleNamespace(first=5)]
    for returned, references in product(runs, runs):
        sole = SimpleNamespace(returned=returned, references=references, frontier=9)
        sole.first_to_load = first_to_load(sole)
        topic = SimpleNamespace(online=[SimpleNamespace(lanes=[SimpleNamespace(sole_list=sole)])])
        assert fronts(topic, 0, but=None) == [sole.first_to_load], sole


@does_as("fingerprint._filter", "fingerprint._filter_bits")
def test_a_filter_has_the_bits_that_a_search_looks_for() -> None:
    text = sources()[functions()["fingerprint._filter"][0]]
    constants = re.findall(r"^(_STEP|_MASK|_HALF_MASK|_ZERO|_ONE)\b[^=]*= (.+)$", text, re.MULTILINE)
    names = {"mul": mul, **{name: eval(value) for name, value in constants}}
    make, bits_of = runnable("fingerprint._filter", **names), runnable("fingerprint._filter_bits", **names)
    for hashed, count, size in product((0, 1, 12345, 0xFFFFFFFF), (1, 3, 7), (1, 2, 5, 64)):
        made = int.from_bytes(make([hashed], count, size), "little")
        assert made == sum(1 << bit for bit in set(bits_of(hashed, count, 8 * size)))
