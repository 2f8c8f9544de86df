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

<<<<<<< HEAD
import forebay
from forebay.cache.accounting.charge import OVERHEAD_BYTES, charge_of

ROOT = Path(forebay.__file__).parent

PLACES = {
    "cache/spill/overflow.py:Overflow.take_in",
    "store/index/fingerprint.py:_filter",
    "store/index/block_cache.py:BlockCache.touch",
    "store/index/destination_lane.py:DestinationLane.add_one",
    "store/index/destination_lane.py:DestinationLane.add_slice",
    "store/index/destination_lane.py:DestinationLane.remove_one",  # test_index.py compares both with one model
    "dispatch/aio/loop.py:LoopConfirmer.confirm",
    "dispatch/consumer/consumer.py:Consumer.take",
    "dispatch/consumer/waiting_consumer.py:WaitingConsumer.allowance",
    "dispatch/core/areas/dispatch_area.py:DispatchArea._take_what_fits",
    "dispatch/core/areas/dispatch_area.py:DispatchArea.dispatch_one",
    "dispatch/core/areas/dispatch_area.py:DispatchArea._transfer_charges",
    "dispatch/core/areas/dispatch_area.py:DispatchArea.settle",
    "dispatch/core/areas/dispatch_area.py:DispatchArea.settle_run",
    "dispatch/core/areas/target_area.py:TargetArea._offer_to_lists",
    "dispatch/core/lanes/non_persistent_lane_state.py:NonPersistentLaneState.add",
    "dispatch/core/lanes/persistent_lane_state.py:PersistentLaneState.arrive",
    "dispatch/core/monitor.py:Monitor.__init__",  # tests/house/test_sections.py compares these four sections
    "dispatch/core/confirmer.py:ThreadConfirmer.confirm",
    "dispatch/core/publisher.py:Publisher.hold_until_durable",
    "dispatch/distribution/precedence.py:Precedence._above",
    "store/message_store.py:MessageStore.add_expiring",
    "store/journal/journal.py:Journal.append_ack",
    "store/journal/journal.py:Journal.append_one",
    "dispatch/topics/state/subscription_state.py:SubscribedTopicState.fronts",
    "dispatch/producer/sender.py:Sender._store_persistent",  # beside the rest one call in place of four
    "dispatch/producer/sender.py:Sender._store_non_persistent",
    "dispatch/producer/sender.py:Sender._add_to_transaction",
}
||||||| 1bf62822
import forebay
from forebay.cache.accounting.charge import OVERHEAD_BYTES, charge_of

ROOT = Path(forebay.__file__).parent

PLACES = {
    "cache/spill/overflow.py:Overflow.take_in",
    "store/index/fingerprint.py:_filter",
    "store/index/block_cache.py:BlockCache.touch",
    "store/index/destination_lane.py:DestinationLane.add_one",
    "store/index/destination_lane.py:DestinationLane.add_slice",
    "store/index/destination_lane.py:DestinationLane.remove_one",  # test_index.py compares both with one model
    "dispatch/aio/loop.py:LoopConfirmer.confirm",
    "dispatch/consumer/consumer.py:Consumer.take",
    "dispatch/consumer/consumer.py:Consumer.allowance",
    "dispatch/core/areas/dispatch_area.py:DispatchArea._take_what_fits",
    "dispatch/core/areas/dispatch_area.py:DispatchArea.dispatch_one",
    "dispatch/core/areas/dispatch_area.py:DispatchArea._hand_over",
    "dispatch/core/areas/dispatch_area.py:DispatchArea.settle",
    "dispatch/core/areas/dispatch_area.py:DispatchArea.settle_run",
    "dispatch/core/areas/target_area.py:TargetArea._offer_to_lists",
    "dispatch/core/lanes/non_persistent_lane_state.py:NonPersistentLaneState.add",
    "dispatch/core/lanes/persistent_lane_state.py:PersistentLaneState.arrive",
    "dispatch/core/monitor.py:Monitor.__init__",  # tests/house/test_sections.py compares these four sections
    "dispatch/core/confirmer.py:ThreadConfirmer.confirm",
    "dispatch/core/publisher.py:Publisher.hold_until_durable",
    "dispatch/distribution/precedence.py:Precedence._above",
    "store/message_store.py:MessageStore.add_expiring",
    "store/journal/journal.py:Journal.append_ack",
    "store/journal/journal.py:Journal.append_one",
    "dispatch/topics/state/subscription_state.py:SubscribedTopicState.fronts",
    "dispatch/producer/sender.py:Sender._store_persistent",  # beside the rest one call in place of four
    "dispatch/producer/sender.py:Sender._store_non_persistent",
    "dispatch/producer/sender.py:Sender._add_to_transaction",
}
=======
>>>>>>> t6
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
    Copy("PersistentLaneState.arrive", "SelectorGroupConsumers.wake_for", WAKE_ONE),
    Copy("NonPersistentLaneState.add", "charge.charge_of_size", {"content_bytes": "length"}),
    Copy("NonPersistentLaneState.add", "ListSupply.admit", ADMIT_ONE),
    Copy("NonPersistentLaneState.add", "SelectorGroupConsumers.wake_for", WAKE_ONE),
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
        "Holder.hand_over",
        {"self": "self.lists_holder", "charge_bytes": "charge"},
        ("self.held_bytes -= ",),
    ),
    Copy("DispatchArea.dispatch_one", "Holder.take_over", {"self": "dispatch", "charge_bytes": "charge"}),
    Copy("DispatchArea._take_what_fits", "charge.charge_of", {"message[1]": "properties"}, ("len(message[1]) + ",)),
    Copy("DispatchArea._hand_over", "ListContents.drop_first", TAKEN, ("self.direct_bytes -= ",)),
    Copy("DispatchArea._hand_over", "ListSupply.pass_first", TAKEN, ("self.taken_bytes += ",)),
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


<<<<<<< HEAD
def texts(node: ast.AST) -> list[str]:
    """Return the source of each statement and expression in a function, in one form."""
    return [ast.unparse(part) for part in ast.walk(node) if isinstance(part, ast.stmt | ast.expr)]


def value(expression: ast.expr | str, **names: object) -> Any:
    """Return the value of an expression in which `self.x` stands for the name x."""
    text = (expression if isinstance(expression, str) else ast.unparse(expression)).replace("self.", "")
    return eval(text, {}, names)


def credit() -> str:
    """The credit of a consumer that does not drain."""
    *_, last = function("dispatch/consumer/waiting_consumer.py:WaitingConsumer.credit").body
    assert isinstance(last, ast.Return) and last.value is not None
    return ast.unparse(last.value)


def consumers() -> Iterator[dict[str, int]]:
    for most, limit, held in product(range(1, 4), range(4), range(5)):
        yield {"max_messages": most, "most": most, "prefetch_limit": limit, "in_flight": held, "UNLIMITED": UNLIMITED}


def test_each_place_that_says_inline_is_compared() -> None:
    found = set()
    for layer in ("store", "cache", "dispatch"):
        for path in (ROOT / layer).rglob("*.py"):
            text = path.read_text("utf-8")
            for at, line in enumerate(text.splitlines(), 1):
                if re.search(r"#.*\binlined?\b", line):
                    around = [
                        name for name, node in functions(ast.parse(text)) if node.lineno <= at <= (node.end_lineno or 0)
                    ]
                    found.add(f"{path.relative_to(ROOT)}:{around[-1]}")
    assert found == PLACES


def test_durable_messages_ask_for_the_end_of_the_journal() -> None:
    (end,) = function("store/journal/journal.py:Journal.end").body
    assert isinstance(end, ast.Return) and end.value is not None
    asked = ast.unparse(end.value)
    assert asked.replace("self.", "journal.") in texts(
        function("dispatch/core/publisher.py:Publisher.hold_until_durable")
    )


def test_an_arrival_is_charged_as_every_message_is() -> None:
    arrive = texts(function("dispatch/core/lanes/persistent_lane_state.py:PersistentLaneState.arrive"))
    taken, charged = function("cache/accounting/charge.py:charge_of").body
    assert isinstance(charged, ast.Return) and charged.value is not None
    assert ast.unparse(taken) in arrive
    assert f"charge = {ast.unparse(charged.value)}" in arrive


@pytest.mark.parametrize(
    "place, may_be_lazy",
    [
        ("dispatch/core/areas/dispatch_area.py:DispatchArea.dispatch_one", False),
        ("dispatch/core/areas/dispatch_area.py:DispatchArea._take_what_fits", True),
        ("dispatch/core/areas/dispatch_area.py:DispatchArea.settle", True),
        ("dispatch/producer/sender.py:Sender._store_persistent", False),
    ],
)
def test_a_message_is_charged_alike_wherever_it_is(place: str, may_be_lazy: bool) -> None:
    charged = [
        part.value
        for part in ast.walk(function(place))
        if isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == "charge" and "len(" in ast.unparse(part)
||||||| 1bf62822
def texts(node: ast.AST) -> list[str]:
    """Return the source of each statement and expression in a function, in one form."""
    return [ast.unparse(part) for part in ast.walk(node) if isinstance(part, ast.stmt | ast.expr)]


def value(expression: ast.expr | str, **names: object) -> Any:
    """Return the value of an expression in which `self.x` stands for the name x."""
    text = (expression if isinstance(expression, str) else ast.unparse(expression)).replace("self.", "")
    return eval(text, {}, names)


def credit() -> str:
    """The credit of a consumer that does not drain."""
    *_, last = function("dispatch/consumer/consumer.py:Consumer.credit").body
    assert isinstance(last, ast.Return) and last.value is not None
    return ast.unparse(last.value)


def consumers() -> Iterator[dict[str, int]]:
    for most, limit, held in product(range(1, 4), range(4), range(5)):
        yield {"max_messages": most, "most": most, "prefetch_limit": limit, "in_flight": held, "UNLIMITED": UNLIMITED}


def test_each_place_that_says_inline_is_compared() -> None:
    found = set()
    for layer in ("store", "cache", "dispatch"):
        for path in (ROOT / layer).rglob("*.py"):
            text = path.read_text("utf-8")
            for at, line in enumerate(text.splitlines(), 1):
                if re.search(r"#.*\binlined?\b", line):
                    around = [
                        name for name, node in functions(ast.parse(text)) if node.lineno <= at <= (node.end_lineno or 0)
                    ]
                    found.add(f"{path.relative_to(ROOT)}:{around[-1]}")
    assert found == PLACES


def test_durable_messages_ask_for_the_end_of_the_journal() -> None:
    (end,) = function("store/journal/journal.py:Journal.end").body
    assert isinstance(end, ast.Return) and end.value is not None
    asked = ast.unparse(end.value)
    assert asked.replace("self.", "journal.") in texts(
        function("dispatch/core/publisher.py:Publisher.hold_until_durable")
    )


def test_an_arrival_is_charged_as_every_message_is() -> None:
    arrive = texts(function("dispatch/core/lanes/persistent_lane_state.py:PersistentLaneState.arrive"))
    taken, charged = function("cache/accounting/charge.py:charge_of").body
    assert isinstance(charged, ast.Return) and charged.value is not None
    assert ast.unparse(taken) in arrive
    assert f"charge = {ast.unparse(charged.value)}" in arrive


@pytest.mark.parametrize(
    "place, may_be_lazy",
    [
        ("dispatch/core/areas/dispatch_area.py:DispatchArea.dispatch_one", False),
        ("dispatch/core/areas/dispatch_area.py:DispatchArea._take_what_fits", True),
        ("dispatch/core/areas/dispatch_area.py:DispatchArea.settle", True),
        ("dispatch/producer/sender.py:Sender._store_persistent", False),
    ],
)
def test_a_message_is_charged_alike_wherever_it_is(place: str, may_be_lazy: bool) -> None:
    charged = [
        part.value
        for part in ast.walk(function(place))
        if isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == "charge" and "len(" in ast.unparse(part)
=======
def test_a_copy_that_lacks_something_is_found() -> None:
    assert missing_code(Copy("DestinationLane.add_one", "DestinationLane._count_added")) != []
    assert missing_code(Copy("BlockCache.touch", "CheckpointNeed.is_due")) == [
        "self.adds >= self.due_adds or self.is_index_filling"
>>>>>>> t6
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


<<<<<<< HEAD
def test_a_run_is_settled_with_the_contents_that_its_deliveries_hold() -> None:
    [held] = [
        part
        for part in ast.walk(function("dispatch/core/areas/dispatch_area.py:DispatchArea.settle_run"))
        if isinstance(part, ast.If) and "body" in ast.unparse(part.test)
    ]
    *_, contents = function("dispatch/core/model/delivery.py:content_bytes").body
    assert isinstance(contents, ast.Return) and isinstance(contents.value, ast.IfExp)
    assert ast.unparse(contents.value.test) == "delivery.held_body is None"
    assert ast.unparse(held.test) == "body is not None"
    expected = ast.unparse(contents.value.orelse).replace("delivery.held_body", "body")
    assert [ast.unparse(each) for each in held.body] == [f"charge += {expected}"]


def test_a_take_of_one_hands_its_charge_over_as_a_holder_does() -> None:
    gives, _ = function("cache/accounting/budget.py:Holder.transfer").body
    [takes] = function("cache/accounting/budget.py:Holder.take_over").body
    inlined = texts(function("dispatch/core/areas/dispatch_area.py:DispatchArea.dispatch_one"))
    at = inlined.index(ast.unparse(gives).replace("self.", "self.lists_holder.").replace("charge_bytes", "charge"))
    assert ast.unparse(takes).replace("self.", "dispatch.").replace("charge_bytes", "charge") == inlined[at + 1]


@pytest.mark.parametrize(
    "place",
    [
        "dispatch/core/lanes/persistent_lane_state.py:PersistentLaneState.arrive",
        "dispatch/core/lanes/non_persistent_lane_state.py:NonPersistentLaneState.add",
    ],
)
def test_an_arrival_is_admitted_as_a_slice_of_one_is(place: str) -> None:
    refused, own, extend, charge, frontier, _ = function("dispatch/core/lists/list_supply.py:ListSupply.admit").body
    assert isinstance(refused, ast.If) and isinstance(refused.test, ast.BoolOp)
    above, unreserved = refused.test.values
    assert isinstance(unreserved, ast.UnaryOp)
    fits = ast.unparse(above).replace(" > ", " <= ")
    reserved = ast.unparse(unreserved.operand)
    admitted = [
        ast.unparse(extend).replace("extend(messages)", "append(message)"),
        ast.unparse(charge),
        ast.unparse(frontier).replace("messages[-1][0] + 1", "behind"),
    ]
    [inlined] = [
        part
        for part in ast.walk(function(place))
        if isinstance(part, ast.If) and "lists_holder.reserve" in ast.unparse(part.test)
    ]
    assert ast.unparse(inlined.test) == f"{fits.replace('self', 'sole')} and {reserved}"
    assert [ast.unparse(each) for each in inlined.body[:3]] == [each.replace("self.", "sole.") for each in admitted]
    assert "own_direct" in ast.unparse(own)  # a list on the fast path has its deque: `admit` alone may meet one without


@pytest.mark.parametrize(
    "place",
    [
        "dispatch/core/lanes/persistent_lane_state.py:PersistentLaneState.arrive",
        "dispatch/core/lanes/non_persistent_lane_state.py:NonPersistentLaneState.add",
    ],
)
def test_an_arrival_wakes_as_one_message_of_a_slice_does(place: str) -> None:
    wakes = function("dispatch/core/model/destination.py:SelectorGroup.wake_for").body
    expected = [
        ast.unparse(each)
        .replace("self.", "selector_group.")
        .replace("notify(messages)", "notify()")
        .replace("ready", "self.destination.monitor.deferred")
        for each in wakes
    ]
    assert len(expected) == 2
    inlined = texts(function(place))
    assert all(each in inlined for each in expected), expected


@pytest.mark.parametrize(
    "place",
    [
        "dispatch/core/confirmer.py:ThreadConfirmer.confirm",
        "dispatch/aio/loop.py:LoopConfirmer.confirm",
    ],
)
def test_a_confirmed_call_asks_whether_a_checkpoint_is_due(place: str) -> None:
    [due] = function("store/index/checkpoint_need.py:CheckpointNeed.is_due").body
    assert isinstance(due, ast.Return) and due.value is not None
    asked = ast.unparse(due.value).replace("self.", "need.")
    assert asked in texts(function(place))


def test_an_expiring_message_notes_its_time_as_every_record_does() -> None:
    [noted] = map(ast.unparse, function("store/index/index.py:Index.note_time").body)
    inlined = noted.replace("self.", "self._index.").replace("now_ms", "timestamp")
    assert inlined in texts(function("store/message_store.py:MessageStore.add_expiring"))


def test_a_single_removal_counts_what_a_run_counts() -> None:
    lane = "store/index/destination_lane.py:DestinationLane"
    one = texts(function(f"{lane}.remove_one"))
    run = [text for name in ("_remove_in", "_discount", "_touched") for text in texts(function(f"{lane}.{name}"))]
    for counted, alone in (
        ("self.pending_messages -= removed", "self.pending_messages -= 1"),
        ("self.removed_bytes += freed_bytes", "self.removed_bytes += length"),
        ("use.pending_messages -= messages", "use.pending_messages -= 1"),
        ("use.pending_bytes -= size", "use.pending_bytes -= length"),
        (
            "uses[by_data_log].acked_data_logs.add(data_log)",
            "self.data_log_uses[ack_data_log].acked_data_logs.add(data_log)",
        ),
        ("if not block.is_dirty:\n    self.cache.touch(self, block)",) * 2,
    ):
        assert counted in run and alone in one, (counted, alone)


@pytest.mark.parametrize("name, values", [("add_one", {"count": "1", "total": "length"}), ("add_slice", {})])
def test_what_is_added_is_counted_and_makes_its_block_dirty(name: str, values: dict[str, str]) -> None:
    lane = "store/index/destination_lane.py:DestinationLane"
    counted = function(f"{lane}._count_added").body
    touched, _ = function(f"{lane}._touched").body
    inlined = texts(function(f"{lane}.{name}"))
    for each in map(ast.unparse, (*counted, touched)):
        for word, value in values.items():
            each = each.replace(f"= {word}", f"= {value}")
        assert each in inlined, each


def test_a_block_that_becomes_dirty_is_counted_as_every_other_change_of_the_cache_is() -> None:
    [noted] = function("store/index/block_cache.py:BlockCache._note_filling").body
    assert ast.unparse(function("store/index/block_cache.py:BlockCache.touch").body[-1]) == ast.unparse(noted)


@pytest.mark.parametrize(
    "name, size, written",
    [
        ("append_ack", "ACK_BYTES", "self._write(data)"),
        ("append_one", "size", "self._write_message(data)\nif len(data) != size:\n    self._write(body)"),
    ],
)
def test_single_records_are_appended_as_every_record_is(name: str, size: str, written: str) -> None:
    journal = "store/journal/journal.py:Journal"
    offset, write, *counted, _ = map(ast.unparse, function(f"{journal}._append").body)
    inlined = [*map(ast.unparse, function(f"{journal}.{name}").body)]
    assert offset in inlined
    at = next(at for at, each in enumerate(inlined) if each.startswith("try:"))
    write, *counted = (each.replace("len(data)", size) for each in (write, *counted))
    write = write.replace("    self._write(data)", textwrap.indent(written, "    "))
    assert inlined[at : at + 1 + len(counted)] == [write, *counted]


def test_an_arrival_without_a_place_relieves_the_buffer_as_ensuring_room_does() -> None:
    overflow = "cache/spill/overflow.py:Overflow"
    relieved, *_ = function(f"{overflow}.ensure_room").body
    assert ast.unparse(relieved) == ast.unparse(function(f"{overflow}.take_in").body[1])


def test_a_dispatched_message_leaves_its_list_as_the_first_message_does() -> None:
    _, left, _ = function("dispatch/core/lists/list_contents.py:ListContents.drop_first").body
    _, taken, _ = function("dispatch/core/lists/list_supply.py:ListSupply.pass_first").body
    passed = [ast.unparse(each).replace("self.", "target.") for each in (left, taken)]
    area = "dispatch/core/areas/dispatch_area.py:DispatchArea"
    one = [*map(ast.unparse, function(f"{area}.dispatch_one").body)]
    at = one.index("target.direct.popleft()")
    assert one[at + 1 : at + 3] == passed
    many = [*map(ast.unparse, function(f"{area}._transfer_charges").body)]
    assert many[1:3] == [each.replace("charge", "taken_bytes") for each in passed]


def test_a_list_passes_an_arrival_that_it_does_not_want_as_its_frontier_advances() -> None:
    [advances] = function("dispatch/core/lists/list_contents.py:ListContents.advance_frontier").body
    assert isinstance(advances, ast.If) and ast.unparse(advances.test) == "end > self.frontier"
    [advanced] = map(ast.unparse, advances.body)
    [passed] = [
        part
        for part in ast.walk(function("dispatch/core/areas/target_area.py:TargetArea._offer_to_lists"))
        if isinstance(part, ast.If) and ast.unparse(part.test) == "is_wanted is False"
    ]
    assert ast.unparse(passed.body[0]) == advanced.replace("self.", "target.").replace("end", "sequence + 1")


def test_only_what_is_written_inline_changes_the_fields_of_a_list_from_outside() -> None:
||||||| 1bf62822
def test_a_run_is_settled_with_the_contents_that_its_deliveries_hold() -> None:
    [held] = [
        part
        for part in ast.walk(function("dispatch/core/areas/dispatch_area.py:DispatchArea.settle_run"))
        if isinstance(part, ast.If) and "body" in ast.unparse(part.test)
    ]
    *_, contents = function("dispatch/core/model/delivery.py:content_bytes").body
    assert isinstance(contents, ast.Return) and isinstance(contents.value, ast.IfExp)
    assert ast.unparse(contents.value.test) == "delivery.held_body is None"
    assert ast.unparse(held.test) == "body is not None"
    expected = ast.unparse(contents.value.orelse).replace("delivery.held_body", "body")
    assert [ast.unparse(each) for each in held.body] == [f"charge += {expected}"]


def test_a_take_of_one_hands_its_charge_over_as_a_holder_does() -> None:
    gives, _ = function("cache/accounting/budget.py:Holder.hand_over").body
    [takes] = function("cache/accounting/budget.py:Holder.take_over").body
    inlined = texts(function("dispatch/core/areas/dispatch_area.py:DispatchArea.dispatch_one"))
    at = inlined.index(ast.unparse(gives).replace("self.", "self.lists_holder.").replace("charge_bytes", "charge"))
    assert ast.unparse(takes).replace("self.", "dispatch.").replace("charge_bytes", "charge") == inlined[at + 1]


@pytest.mark.parametrize(
    "place",
    [
        "dispatch/core/lanes/persistent_lane_state.py:PersistentLaneState.arrive",
        "dispatch/core/lanes/non_persistent_lane_state.py:NonPersistentLaneState.add",
    ],
)
def test_an_arrival_is_admitted_as_a_slice_of_one_is(place: str) -> None:
    refused, own, extend, charge, frontier, _ = function("dispatch/core/lists/list_supply.py:ListSupply.admit").body
    assert isinstance(refused, ast.If) and isinstance(refused.test, ast.BoolOp)
    above, unreserved = refused.test.values
    assert isinstance(unreserved, ast.UnaryOp)
    fits = ast.unparse(above).replace(" > ", " <= ")
    reserved = ast.unparse(unreserved.operand)
    admitted = [
        ast.unparse(extend).replace("extend(messages)", "append(message)"),
        ast.unparse(charge),
        ast.unparse(frontier).replace("messages[-1][0] + 1", "behind"),
    ]
    [inlined] = [
        part
        for part in ast.walk(function(place))
        if isinstance(part, ast.If) and "lists_holder.reserve" in ast.unparse(part.test)
    ]
    assert ast.unparse(inlined.test) == f"{fits.replace('self', 'sole')} and {reserved}"
    assert [ast.unparse(each) for each in inlined.body[:3]] == [each.replace("self.", "sole.") for each in admitted]
    assert "own_direct" in ast.unparse(own)  # a list on the fast path has its deque: `admit` alone may meet one without


@pytest.mark.parametrize(
    "place",
    [
        "dispatch/core/lanes/persistent_lane_state.py:PersistentLaneState.arrive",
        "dispatch/core/lanes/non_persistent_lane_state.py:NonPersistentLaneState.add",
    ],
)
def test_an_arrival_wakes_as_one_message_of_a_slice_does(place: str) -> None:
    wakes = function("dispatch/core/model/selector_group_consumers.py:SelectorGroupConsumers.wake_for").body
    expected = [
        ast.unparse(each)
        .replace("self.", "selector_group.")
        .replace("notify(messages)", "notify()")
        .replace("ready", "self.destination.monitor.deferred")
        for each in wakes
    ]
    assert len(expected) == 2
    inlined = texts(function(place))
    assert all(each in inlined for each in expected), expected


@pytest.mark.parametrize(
    "place",
    [
        "dispatch/core/confirmer.py:ThreadConfirmer.confirm",
        "dispatch/aio/loop.py:LoopConfirmer.confirm",
    ],
)
def test_a_confirmed_call_asks_whether_a_checkpoint_is_due(place: str) -> None:
    [due] = function("store/index/checkpoint_need.py:CheckpointNeed.is_due").body
    assert isinstance(due, ast.Return) and due.value is not None
    asked = ast.unparse(due.value).replace("self.", "need.")
    assert asked in texts(function(place))


def test_an_expiring_message_notes_its_time_as_every_record_does() -> None:
    [noted] = map(ast.unparse, function("store/index/index.py:Index.note_time").body)
    inlined = noted.replace("self.", "self._index.").replace("now_ms", "timestamp")
    assert inlined in texts(function("store/message_store.py:MessageStore.add_expiring"))


def test_a_single_removal_counts_what_a_run_counts() -> None:
    lane = "store/index/destination_lane.py:DestinationLane"
    one = texts(function(f"{lane}.remove_one"))
    run = [text for name in ("_remove_in", "_discount", "_touched") for text in texts(function(f"{lane}.{name}"))]
    for counted, alone in (
        ("self.pending_messages -= removed", "self.pending_messages -= 1"),
        ("self.removed_bytes += freed_bytes", "self.removed_bytes += length"),
        ("use.pending_messages -= messages", "use.pending_messages -= 1"),
        ("use.pending_bytes -= size", "use.pending_bytes -= length"),
        (
            "uses[by_data_log].acked_data_logs.add(data_log)",
            "self.data_log_uses[ack_data_log].acked_data_logs.add(data_log)",
        ),
        ("if not block.is_dirty:\n    self.cache.touch(self, block)",) * 2,
    ):
        assert counted in run and alone in one, (counted, alone)


@pytest.mark.parametrize("name, values", [("add_one", {"count": "1", "total": "length"}), ("add_slice", {})])
def test_what_is_added_is_counted_and_makes_its_block_dirty(name: str, values: dict[str, str]) -> None:
    lane = "store/index/destination_lane.py:DestinationLane"
    counted = function(f"{lane}._count_added").body
    touched, _ = function(f"{lane}._touched").body
    inlined = texts(function(f"{lane}.{name}"))
    for each in map(ast.unparse, (*counted, touched)):
        for word, value in values.items():
            each = each.replace(f"= {word}", f"= {value}")
        assert each in inlined, each


def test_a_block_that_becomes_dirty_is_counted_as_every_other_change_of_the_cache_is() -> None:
    [noted] = function("store/index/block_cache.py:BlockCache._note_filling").body
    assert ast.unparse(function("store/index/block_cache.py:BlockCache.touch").body[-1]) == ast.unparse(noted)


@pytest.mark.parametrize(
    "name, size, written",
    [
        ("append_ack", "ACK_BYTES", "self._write(data)"),
        ("append_one", "size", "self._write_message(data)\nif len(data) != size:\n    self._write(body)"),
    ],
)
def test_single_records_are_appended_as_every_record_is(name: str, size: str, written: str) -> None:
    journal = "store/journal/journal.py:Journal"
    offset, write, *counted, _ = map(ast.unparse, function(f"{journal}._append").body)
    inlined = [*map(ast.unparse, function(f"{journal}.{name}").body)]
    assert offset in inlined
    at = next(at for at, each in enumerate(inlined) if each.startswith("try:"))
    write, *counted = (each.replace("len(data)", size) for each in (write, *counted))
    write = write.replace("    self._write(data)", textwrap.indent(written, "    "))
    assert inlined[at : at + 1 + len(counted)] == [write, *counted]


def test_an_arrival_without_a_place_relieves_the_buffer_as_ensuring_room_does() -> None:
    overflow = "cache/spill/overflow.py:Overflow"
    relieved, *_ = function(f"{overflow}.ensure_room").body
    assert ast.unparse(relieved) == ast.unparse(function(f"{overflow}.take_in").body[1])


def test_a_hand_out_leaves_its_list_as_the_first_message_does() -> None:
    _, left, _ = function("dispatch/core/lists/list_contents.py:ListContents.drop_first").body
    _, taken, _ = function("dispatch/core/lists/list_supply.py:ListSupply.pass_first").body
    passed = [ast.unparse(each).replace("self.", "target.") for each in (left, taken)]
    area = "dispatch/core/areas/dispatch_area.py:DispatchArea"
    one = [*map(ast.unparse, function(f"{area}.dispatch_one").body)]
    at = one.index("target.direct.popleft()")
    assert one[at + 1 : at + 3] == passed
    many = [*map(ast.unparse, function(f"{area}._hand_over").body)]
    assert many[1:3] == [each.replace("charge", "taken_bytes") for each in passed]


def test_a_list_passes_an_arrival_that_it_does_not_want_as_its_frontier_advances() -> None:
    [advances] = function("dispatch/core/lists/list_contents.py:ListContents.advance_frontier").body
    assert isinstance(advances, ast.If) and ast.unparse(advances.test) == "end > self.frontier"
    [advanced] = map(ast.unparse, advances.body)
    [passed] = [
        part
        for part in ast.walk(function("dispatch/core/areas/target_area.py:TargetArea._offer_to_lists"))
        if isinstance(part, ast.If) and ast.unparse(part.test) == "is_wanted is False"
    ]
    assert ast.unparse(passed.body[0]) == advanced.replace("self.", "target.").replace("end", "sequence + 1")


def test_only_what_is_written_inline_changes_the_fields_of_a_list_from_outside() -> None:
=======
def test_only_copies_of_its_methods_change_the_fields_of_a_list_from_outside() -> None:
>>>>>>> t6
    fields = {
        node.attr
        for name in LISTS
        for node in ast.walk(function(f"{name}.__init__"))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
<<<<<<< HEAD
    writers = {
        f"{path.relative_to(ROOT).as_posix()}:{name}"
        for path in (ROOT / "dispatch").rglob("*.py")
        for name, node in functions(ast.parse(path.read_text("utf-8")))
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
        if part.attr in fields and ast.unparse(part.value) != "self"
    }
    assert writers == {
        "dispatch/core/areas/dispatch_area.py:DispatchArea._transfer_charges",
        "dispatch/core/areas/dispatch_area.py:DispatchArea.dispatch_one",
        "dispatch/core/areas/target_area.py:TargetArea._offer_to_lists",
        "dispatch/core/lanes/non_persistent_lane_state.py:NonPersistentLaneState.add",
        "dispatch/core/lanes/persistent_lane_state.py:PersistentLaneState.arrive",
    }


def test_a_single_ack_releases_as_a_holder_without_a_guarantee_does() -> None:
    held, _, budget, released, guarantee = function("cache/accounting/budget.py:Holder.release").body
    assert ast.unparse(budget) == "budget = self._budget"
    assert isinstance(guarantee, ast.If) and ast.unparse(guarantee.test) == "self._guaranteed_bytes"
    [inlined] = [
        part
        for part in ast.walk(function("dispatch/core/areas/dispatch_area.py:DispatchArea.settle"))
        if isinstance(part, ast.If) and ast.unparse(part.test) == "lane.memory.is_common"
    ]
    expected = [
        ast.unparse(held).replace("self.", "self.dispatch_holder."),
        ast.unparse(released).replace("budget.", "self.budget."),
    ]
    assert [ast.unparse(each).replace("charge", "charge_bytes") for each in inlined.body] == expected


def test_a_filter_has_the_bits_that_a_search_looks_for() -> None:
    scope: dict[str, Any] = {"Final": Final}
    source = (ROOT / "store/index/fingerprint.py").read_text("utf-8")
    wanted = ("_STEP", "_MASK", "_HALF_MASK", "_ZERO", "_ONE")
    for node in ast.parse(source).body:
        target = getattr(node, "target", None) or getattr(node, "targets", [None])[0]
        if isinstance(target, ast.Name) and target.id in wanted:
            exec(ast.unparse(node), scope)
    exec("from operator import mul\nfrom typing import cast", scope)
    for name in ("_filter", "_filter_bits"):
        exec(textwrap.dedent(ast.unparse(function(f"store/index/fingerprint.py:{name}"))), scope)
    for hashed, count, size in product((0, 1, 12345, 0xFFFFFFFF), (1, 3, 7), (1, 2, 5, 64)):
        made = int.from_bytes(scope["_filter"]([hashed], count, size), "little")
        bits = scope["_filter_bits"](hashed, count, 8 * size)
        assert made == sum(1 << bit for bit in set(bits))


@pytest.mark.parametrize("name", ["_store_persistent", "_store_non_persistent", "_add_to_transaction"])
def test_a_send_refuses_the_priorities_that_checked_priority_refuses(name: str) -> None:
    refused, _ = function("dispatch/producer/send_pipeline.py:checked_priority").body
    assert isinstance(refused, ast.If) and isinstance(refused.test, ast.BoolOp)
    [asked] = [
        part.test
        for part in ast.walk(function(f"dispatch/producer/sender.py:Sender.{name}"))
        if isinstance(part, ast.If) and "type(priority)" in ast.unparse(part.test)
    ]
    assert isinstance(asked, ast.BoolOp) and isinstance(asked.op, ast.Or)
    assert list(map(ast.unparse, asked.values[:3])) == list(map(ast.unparse, refused.test.values))


def test_a_take_of_one_asks_for_the_credit_of_one() -> None:
    [asked] = [
        part.test
        for part in ast.walk(function("dispatch/consumer/consumer.py:Consumer.take"))
        if isinstance(part, ast.If) and "self.in_flight" in ast.unparse(part.test)
    ]
    for consumer in consumers():
        assert bool(value(asked, **consumer)) == (min(consumer["most"], value(credit(), **consumer)) == 1), consumer


def test_room_is_the_credit_up_to_what_is_asked() -> None:
    *_, unlimited, last = function("dispatch/consumer/waiting_consumer.py:WaitingConsumer.allowance").body
    assert isinstance(unlimited, ast.If) and isinstance(last, ast.Return) and last.value is not None
    for consumer in consumers():
        if value(unlimited.test, **consumer):
            assert ast.unparse(unlimited.body[0]) == "return most" and value(credit(), **consumer) == UNLIMITED
        else:
            assert value(last.value, **consumer) == min(consumer["most"], value(credit(), **consumer)), consumer


def test_precedence_passes_over_a_consumer_without_credit() -> None:
    [asked] = [
        part.test
        for part in ast.walk(function("dispatch/distribution/precedence.py:Precedence._above"))
        if isinstance(part, ast.If) and "in_flight" in ast.unparse(part.test)
    ]
    assert isinstance(asked, ast.BoolOp)
    is_used_up = ast.unparse(asked.values[-1]).replace("other.", "")
    for consumer in consumers():
        assert bool(value(is_used_up, **consumer)) == (value(credit(), **consumer) <= 0), consumer
||||||| 1bf62822
    writers = {
        f"{path.relative_to(ROOT).as_posix()}:{name}"
        for path in (ROOT / "dispatch").rglob("*.py")
        for name, node in functions(ast.parse(path.read_text("utf-8")))
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
        if part.attr in fields and ast.unparse(part.value) != "self"
    }
    assert writers == {
        "dispatch/core/areas/dispatch_area.py:DispatchArea._hand_over",
        "dispatch/core/areas/dispatch_area.py:DispatchArea.dispatch_one",
        "dispatch/core/areas/target_area.py:TargetArea._offer_to_lists",
        "dispatch/core/lanes/non_persistent_lane_state.py:NonPersistentLaneState.add",
        "dispatch/core/lanes/persistent_lane_state.py:PersistentLaneState.arrive",
    }


def test_a_single_ack_releases_as_a_holder_without_a_guarantee_does() -> None:
    held, _, budget, released, guarantee = function("cache/accounting/budget.py:Holder.release").body
    assert ast.unparse(budget) == "budget = self._budget"
    assert isinstance(guarantee, ast.If) and ast.unparse(guarantee.test) == "self._guaranteed_bytes"
    [inlined] = [
        part
        for part in ast.walk(function("dispatch/core/areas/dispatch_area.py:DispatchArea.settle"))
        if isinstance(part, ast.If) and ast.unparse(part.test) == "lane.memory.is_common"
    ]
    expected = [
        ast.unparse(held).replace("self.", "self.dispatch_holder."),
        ast.unparse(released).replace("budget.", "self.budget."),
    ]
    assert [ast.unparse(each).replace("charge", "charge_bytes") for each in inlined.body] == expected


def test_a_filter_has_the_bits_that_a_search_looks_for() -> None:
    scope: dict[str, Any] = {"Final": Final}
    source = (ROOT / "store/index/fingerprint.py").read_text("utf-8")
    wanted = ("_STEP", "_MASK", "_HALF_MASK", "_ZERO", "_ONE")
    for node in ast.parse(source).body:
        target = getattr(node, "target", None) or getattr(node, "targets", [None])[0]
        if isinstance(target, ast.Name) and target.id in wanted:
            exec(ast.unparse(node), scope)
    exec("from operator import mul\nfrom typing import cast", scope)
    for name in ("_filter", "_filter_bits"):
        exec(textwrap.dedent(ast.unparse(function(f"store/index/fingerprint.py:{name}"))), scope)
    for hashed, count, size in product((0, 1, 12345, 0xFFFFFFFF), (1, 3, 7), (1, 2, 5, 64)):
        made = int.from_bytes(scope["_filter"]([hashed], count, size), "little")
        bits = scope["_filter_bits"](hashed, count, 8 * size)
        assert made == sum(1 << bit for bit in set(bits))


@pytest.mark.parametrize("name", ["_store_persistent", "_store_non_persistent", "_add_to_transaction"])
def test_a_send_refuses_the_priorities_that_checked_priority_refuses(name: str) -> None:
    refused, _ = function("dispatch/producer/send_pipeline.py:checked_priority").body
    assert isinstance(refused, ast.If) and isinstance(refused.test, ast.BoolOp)
    [asked] = [
        part.test
        for part in ast.walk(function(f"dispatch/producer/sender.py:Sender.{name}"))
        if isinstance(part, ast.If) and "type(priority)" in ast.unparse(part.test)
    ]
    assert isinstance(asked, ast.BoolOp) and isinstance(asked.op, ast.Or)
    assert list(map(ast.unparse, asked.values[:3])) == list(map(ast.unparse, refused.test.values))


def test_a_take_of_one_asks_for_the_credit_of_one() -> None:
    [asked] = [
        part.test
        for part in ast.walk(function("dispatch/consumer/consumer.py:Consumer.take"))
        if isinstance(part, ast.If) and "self.in_flight" in ast.unparse(part.test)
    ]
    for consumer in consumers():
        assert bool(value(asked, **consumer)) == (min(consumer["most"], value(credit(), **consumer)) == 1), consumer


def test_room_is_the_credit_up_to_what_is_asked() -> None:
    *_, unlimited, last = function("dispatch/consumer/consumer.py:Consumer.allowance").body
    assert isinstance(unlimited, ast.If) and isinstance(last, ast.Return) and last.value is not None
    for consumer in consumers():
        if value(unlimited.test, **consumer):
            assert ast.unparse(unlimited.body[0]) == "return most" and value(credit(), **consumer) == UNLIMITED
        else:
            assert value(last.value, **consumer) == min(consumer["most"], value(credit(), **consumer)), consumer


def test_precedence_passes_over_a_consumer_without_credit() -> None:
    [asked] = [
        part.test
        for part in ast.walk(function("dispatch/distribution/precedence.py:Precedence._above"))
        if isinstance(part, ast.If) and "in_flight" in ast.unparse(part.test)
    ]
    assert isinstance(asked, ast.BoolOp)
    is_used_up = ast.unparse(asked.values[-1]).replace("other.", "")
    for consumer in consumers():
        assert bool(value(is_used_up, **consumer)) == (value(credit(), **consumer) <= 0), consumer
=======
    writers = {place for place, _, attribute in assignments_from_outside() if attribute in fields}
    assert writers == {copy.place for copy in COPIES if copy.original.startswith(LISTS)}
>>>>>>> t6


def test_the_dispatch_area_alone_changes_what_a_consumer_has_been_handed() -> None:
    handed = ("in_flight", "delivered")
    writers = {place for place, owner, name in assignments_from_outside() if name in handed and "consumer" in owner}
    assert {functions()[place][0].stem for place in writers} == {"dispatch_area"}


# ------------------------------------------------------------------ copies in another form

credit = runnable("Consumer.credit", UNLIMITED=UNLIMITED)


def consumers(**fields: object) -> Iterator[Any]:
    """Yield consumers with prefetch limits around what they hold, for which memory has room."""
    stage = SimpleNamespace(is_draining=False, is_over=False, is_passed_over=False)
    fields |= {"stage": stage, "_dispatch_area": SimpleNamespace(is_short_for=lambda memory: False), "_memory": None}
    for limit, held in product(range(4), range(5)):
        yield SimpleNamespace(prefetch_limit=limit, in_flight=held, **fields)


@does_as("Consumer.allowance", "Consumer.credit")
def test_a_consumer_may_take_its_credit_up_to_what_is_asked() -> None:
    allowance = runnable("Consumer.allowance")
    for consumer, most in product(consumers(), range(1, 4)):
        assert allowance(consumer, most) == min(most, credit(consumer)), (consumer, most)


@does_as("Consumer.take", "Consumer.credit")
def test_a_take_that_may_return_one_message_only_is_a_take_of_one() -> None:
    take, allowance = runnable("Consumer.take", AT_ONCE=None), runnable("Consumer.allowance")
    lock = SimpleNamespace(failure=None)
    monitor = SimpleNamespace(is_inside=bool, bare_lock=nullcontext(), lock=lock, entries=0, deferred=[])
    dispatcher = SimpleNamespace(dispatch_one=lambda consumer: "one", dispatch=lambda *_: ["several"])
    for consumer, most in product(consumers(monitor=monitor, dispatcher=dispatcher, _is_of_a_loop=True), range(1, 4)):
        consumer.allowance = lambda most, consumer=consumer: allowance(consumer, most)
        allowed = min(most, credit(consumer))
        assert take(consumer, most) == (["one"] if allowed == 1 else ["several"] if allowed > 1 else []), consumer


@does_as("Precedence._above", "Consumer.credit")
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
