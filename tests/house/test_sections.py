"""Whatever changes something under the state lock says that it is done whole: docs/decisions/0019-interruptions.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import forebay

ROOT = Path(forebay.__file__).parent
WHOLE = ("all_or_broken", "while_open")

LOOKS_ONLY = {
    "MemoryForebay.advance",
    "AsyncConsumer._settle_all",
    "Consumer.ack_up_to",
    "ConsumerEnding.drain",
    "Settlements.reject",
    "Consumer.statistics",
    "Forebay.destinations",
    "Forebay.prepared",
    "Forebay.topics",
    "IdleDestinations.step",
    "LaneReader._read",
    "LedgerAudit.run",
    "ThreadConfirmer.position",
    "Queue.depth",
    "Queue.depth_bytes",
    "Queue.is_paused",
    "Queue.join",
    "Queue.statistics",
    "Reports.of_the_whole",
    "SyncTask._sync",
    "MemoryReports.observe_lists",  # what it changes is done whole
    "Reports.statistics",
    "StagedProperties.find",
    "StagedProperties.snapshot",
    "StatusReporter._chosen",
    "StatusReporter._of_topics",
    "StatusReporter._paused",
    "StatusReporter._consumers",
    "StatusReporter.write",
    "StoreProperties.find",
    "StoreProperties.snapshot",
    "Topic.statistics",
    "Topic.subscriptions",
    "DestinationRegistry.exists",
    "HealthCheck._problems",
    "DestinationReports.statistics",
    "came_back",
    "explain",
    "explain_blocked",
    "explain_in_short",
    "explain_subject",
    "report_data_logs",
    "statistics_of_topic",
}
TRIES_ITSELF = {
    "Consumer.ack",
    "Consumer.take",
    "Publisher.publish_left",
    "Sender._store_non_persistent",
    "Sender._store_persistent",
    "Transaction.rollback",
}
"""Hot paths, and those of two sections: they call break_by or break_between."""
SAYS_IT_INSIDE = {
    "Search.run",  # it waits there, and an exception in a wait breaks nothing
    "ThreadConfirmer._wait",
}
OTHERWISE = {
    "AsyncQueue.browse.close",  # a lock of its own
    "AsyncQueue.browse.read",
    "Consumer.fileno",  # each step leaves it whole
    "DestinationRegistry._release",  # one that is broken into leaves a queue, or a topic, open
    "MessageGroupTurns.begin",  # a lock of its own; what it interrupts is in flight until its consumer closes
    "MessageGroupTurns.end",
    "MessageGroupTurns.go_back",
    "Engine._restore",  # an open that is interrupted has no store
    "Engine.close",  # behind an error, to stop the journal
    "IndexFit.step",  # the checkpoint lock; the state lock in it says it
}
PLAIN = LOOKS_ONLY | TRIES_ITSELF | SAYS_IT_INSIDE | OTHERWISE


def plain_sections(node: ast.AST, name: str = "") -> Iterator[str]:
    """Names of functions with a `with` of a lock that says neither `all_or_broken` nor `while_open`."""
    for child in ast.iter_child_nodes(node):
        inner = name
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{name}.{child.name}" if name else child.name
        if isinstance(child, ast.With):
            held = [ast.unparse(item.context_expr) for item in child.items]
            if any(text.endswith("lock") for text in held) and not any(text.endswith(WHOLE) for text in held):
                yield inner
        yield from plain_sections(child, inner)


def test_each_section_that_changes_something_is_done_whole() -> None:
    found = {
        name
        for path in (ROOT / "dispatch").rglob("*.py")
        for name in plain_sections(ast.parse(path.read_text("utf-8")))
    }
    assert found - PLAIN == set(), "add `all_or_broken` or `while_open`, or say here why it needs neither"
    assert PLAIN - found == set(), "no section any more"


def bare_sections(path: Path) -> Iterator[tuple[str, ast.stmt | None, ast.With]]:
    """Where they are, what stands before each in its block, and the section itself."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(node, block, [])
            for at, one in enumerate(statements if isinstance(statements, list) else []):
                if isinstance(one, ast.With) and ast.unparse(one.items[0].context_expr).endswith("bare_lock"):
                    yield f"{path.name}:{one.lineno}", statements[at - 1] if at else None, one


def test_each_section_of_the_bare_lock_says_what_the_entry_of_the_lock_says_else() -> None:
    found = [section for path in (ROOT / "dispatch").rglob("*.py") for section in bare_sections(path)]
    for place, before, section in found:
        asked = ast.unparse(before) if before is not None else ""
        assert re.fullmatch(r"if (\w+\.)*is_inside\(\):\n    raise NestedCall", asked), (
            f"{place}: ask is_inside before it"
        )
        [inner] = section.body
        assert isinstance(inner, ast.Try), f"{place}: it has a `try` that calls break_by"
        looked = r"if ((\w+\.)*lock)\.failure is not None:\n    raise \1\.failure\.again\(\)"
        assert re.fullmatch(looked, ast.unparse(inner.body[0])), f"{place}: look at `failure` first"
        assert ".break_by(error)" in ast.unparse(inner.handlers[0]), f"{place}: call break_by"
    assert len(found) == 4
