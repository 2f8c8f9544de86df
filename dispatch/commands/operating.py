"""The commands that change queues and memory: `forebay resize`, `pause`, `resume`, `move` and `purge`.

They ask the process that has the store open, through its admin socket. Where no process has it open, `move` and `purge`
open it themselves. The other three change only a process, so they need one.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any, Final

from ...store.disk.disk import OsDisk
from ...store.errors import StateError, StoreLocked
from ..explain.texts import plural, size_text
from ..forebay import Forebay
from ..remote.admin_socket import lacking
from ..remote.client import Result, ask_store, count_in
from ..store_directories import only_store
from ..store_status import printable
from .opened_store import add_settings, known_queue, opened
from .shared_arguments import add_directory, add_json
from .streams import Streams

_ADMIN: Final = "Its process must have opened it with admin=True."
_EITHER: Final = "Of a store that no process has open, or whose process opened it with admin=True."


def add_resize(parser: ArgumentParser) -> None:
    """Define `forebay resize`."""
    parser.description = f"Give a running store another memory limit, until its next open. {_ADMIN}"
    add_directory(parser)
    parser.add_argument("memory_limit", metavar="SIZE", help='such as "16MiB"')
    add_json(parser, "one object, what came of it")
    parser.set_defaults(run=run_resize)


def run_resize(arguments: Namespace, streams: Streams) -> int:
    """Give a running store another memory limit."""
    result = ask(only_store(arguments.directory), {"do": "resize", "memory_limit": arguments.memory_limit})
    if arguments.json:
        streams.print_json(result)
        return 0
    held, limit = (size_text(count_in(result, name)) for name in ("held_bytes", "limit_bytes"))
    settled = "" if result.get("is_settled") is True else "; it falls as consumers settle what is in flight"
    streams.print(f"the memory limit is {limit}, {held} are held{settled}")
    return 0


def add_pause(parser: ArgumentParser) -> None:
    """Define `forebay pause`."""
    parser.description = f"Have a queue hand out nothing, until it is resumed or its process ends. {_ADMIN}"
    _add_queue(parser)
    parser.set_defaults(run=run_pause, do="pause")


def add_resume(parser: ArgumentParser) -> None:
    """Define `forebay resume`."""
    parser.description = f"Have a paused queue hand out again. {_ADMIN}"
    _add_queue(parser)
    parser.set_defaults(run=run_pause, do="resume")


def run_pause(arguments: Namespace, streams: Streams) -> int:
    """Pause or resume a queue."""
    ask(only_store(arguments.directory), {"do": arguments.do, "queue": arguments.queue})
    is_paused = arguments.do == "pause"
    if arguments.json:
        streams.print_json({"queue": arguments.queue, "paused": is_paused})
    else:
        streams.print(f"{printable(arguments.queue)} {'hands out nothing' if is_paused else 'hands out again'}")
    return 0


def add_purge(parser: ArgumentParser) -> None:
    """Define `forebay purge`."""
    parser.description = f"Remove what is pending in a queue and not in flight; it never comes again. {_EITHER}"
    _add_queue(parser)
    add_settings(parser)
    parser.set_defaults(run=run_purge)


def run_purge(arguments: Namespace, streams: Streams) -> int:
    """Remove the pending messages of a queue."""

    def work(bay: Forebay) -> int:
        return known_queue(bay, arguments.queue).purge()

    messages = _by_whom_it_may_be(arguments, {"do": "purge", "queue": arguments.queue}, work, streams)
    if arguments.json:
        streams.print_json({"queue": arguments.queue, "messages": messages})
    else:
        streams.print(f"{messages:,} message{plural(messages)} removed")
    return 0


def add_move(parser: ArgumentParser) -> None:
    """Define `forebay move`."""
    parser.description = f"Move what is pending in a queue and not in flight to another queue, in order. {_EITHER}"
    _add_queue(parser)
    parser.add_argument("to", metavar="TO", help="the other queue, which begins to exist if it is not there")
    parser.add_argument("--selector", metavar="TEXT", help="only what it matches")
    parser.add_argument("--limit", metavar="N", type=int, help="so many at most")
    add_settings(parser)
    parser.set_defaults(run=run_move)


def run_move(arguments: Namespace, streams: Streams) -> int:
    """Move the pending messages of a queue to another one."""
    options = {name: getattr(arguments, name) for name in ("selector", "limit")}
    request = {"do": "move", "queue": arguments.queue, "to": arguments.to}
    request |= {name: value for name, value in options.items() if value is not None}

    def work(bay: Forebay) -> int:
        return known_queue(bay, arguments.queue).move(arguments.to, arguments.selector, arguments.limit)

    messages = _by_whom_it_may_be(arguments, request, work, streams)
    if arguments.json:
        streams.print_json({"queue": arguments.queue, "to": arguments.to, "messages": messages})
    else:
        streams.print(f"{messages:,} message{plural(messages)} moved to {printable(arguments.to)}")
    return 0


def _add_queue(parser: ArgumentParser) -> None:
    add_directory(parser)
    parser.add_argument("queue", metavar="QUEUE", help="its name")
    add_json(parser, "one object")


def ask(disk: OsDisk, request: dict[str, Any]) -> Result:
    """Return the answer of the process that has a store open. StateError: no process listens."""
    result = ask_store(disk.root, request)
    if result is None:
        raise StateError(_nobody_listens(disk.root))
    return result


def _nobody_listens(root: str) -> str:
    missing = lacking()
    if missing:
        return (
            f"nobody listens in {root}, because that takes {missing}, which this system lacks: "
            "call the Python interface in the process that has it open"
        )
    return (
        f"nobody listens in {root}: start the process that has it open with admin=True, "
        "or call the Python interface there"
    )


def _by_whom_it_may_be(
    arguments: Namespace, request: dict[str, Any], work: Callable[[Forebay], int], streams: Streams
) -> int:
    """Ask the process that has the store open, or open the store where there is none. Return the number of messages."""
    disk = only_store(arguments.directory)
    result = ask_store(disk.root, request)
    if result is not None:
        return count_in(result, "messages")
    try:
        with opened(disk, arguments.settings, streams) as bay:
            return work(bay)
    except StoreLocked as locked:
        raise StateError(_nobody_listens(disk.root)) from locked
