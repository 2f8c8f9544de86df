"""Whatever changes something under the state lock says that it is done whole: docs/decisions/0019-interruptions.md."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import forebay

ROOT = Path(forebay.__file__).parent
WHOLE = ("all_or_broken", "while_open")

LOOKS_ONLY = {
    "MemoryForebay.advance",
    "AsyncConsumer._settle_all",
    "Confirmer.confirm_written",
    "ConsumerEnding.drain",
    "Settlements.ack_up_to",
    "Settlements.reject",
    "Consumer.statistics",
    "Forebay.destinations",
    "Forebay.prepared",
    "Forebay.topics",
    "IdleDestinations.step",
    "LaneReader._read",
    "LedgerAudit.run",
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
    "Search._run_until",  # it waits there, and an exception in a wait breaks nothing
    "ThreadConfirmer._wait",
}
OTHERWISE = {
    "AsyncQueue.browse.close",  # a lock of its own
    "AsyncQueue.browse.read",
    "Consumer.fileno",  # each step leaves it whole
    "DestinationRegistry._release",  # one that is broken into leaves a queue, or a topic, open
    "MessageGroupTurns.begin",  # a lock of its own; what it interrupts is in flight until its consumer closes
    "MessageGroupTurns.finish",
    "MessageGroupTurns.go_back",
    "Engine._restore",  # an open that is interrupted has no store
    "Engine.close",  # behind an error, to stop the journal
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


COMMENT = "  # from here on it has the form that core/monitor.py describes"


def form() -> tuple[ast.stmt, ast.Try]:
    """The form of a section of the bare lock, as core/monitor.py shows it: the statements before it and those in it."""
    text = ast.get_docstring(ast.parse((ROOT / "dispatch/core/monitor.py").read_text("utf-8"))) or ""
    shown = re.search(r"(?ms)^    entries = monitor\.entries$.*?^            raise$", text)
    assert shown is not None
    _, asked, section = ast.parse(textwrap.dedent(shown.group())).body
    assert isinstance(section, ast.With) and ast.unparse(section.items[0]) == "monitor.bare_lock"
    [inner] = section.body
    assert isinstance(inner, ast.Try)
    return asked, inner


class BareSection(NamedTuple):
    place: str
    before: list[ast.stmt]
    """The statements before the section in its block."""
    section: ast.With
    line: str
    """The line of the statement just before it."""


def bare_sections(path: Path) -> Iterator[BareSection]:
    text = path.read_text("utf-8")
    for node in ast.walk(ast.parse(text)):
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(node, block, [])
            for at, one in enumerate(statements if isinstance(statements, list) else []):
                if isinstance(one, ast.With) and ast.unparse(one.items[0].context_expr).endswith("bare_lock"):
                    line = text.splitlines()[statements[at - 1].lineno - 1] if at else ""
                    yield BareSection(f"{path.name}:{one.lineno}", statements[:at], one, line)


def test_each_section_of_the_bare_lock_has_the_form_that_the_text_of_the_monitor_shows() -> None:
    asked, shown = form()
    fails, has_waited, counts, _ = map(ast.unparse, shown.body)
    counting_only = []
    found = [section for path in (ROOT / "dispatch").rglob("*.py") for section in bare_sections(path)]
    for place, before, section, line in found:
        assert [ast.unparse(each) for each in before[-1:]] == [ast.unparse(asked)], f"{place}: ask is_inside before it"
        assert line.endswith(COMMENT), f"{place}: say where its form is described"
        assert ast.unparse(section.items[0]) == "monitor.bare_lock", f"{place}: call the monitor `monitor`"
        [inner] = section.body
        assert isinstance(inner, ast.Try), f"{place}: it has a `try` that calls break_by"
        handlers = [*map(ast.unparse, inner.handlers)]
        assert handlers == [*map(ast.unparse, shown.handlers)], f"{place}: call break_by, and raise"
        assert not inner.orelse and not inner.finalbody, f"{place}: all of it stands in the `try`"
        first, second, third, *_ = map(ast.unparse, inner.body)
        assert first == fails, f"{place}: look at `failure` first"
        if second == counts:
            counting_only.append(section)
        else:
            assert (second, third) == (has_waited, counts), f"{place}: look at `entries`, then count"
    assert len(found) == 4
    assert ["dispatch_one" in ast.unparse(section) for section in counting_only] == [True], "a take only counts"
