"""The commands for the messages of a store that no process has open: `forebay browse`, `send` and `take`.

They open the store themselves, and their effects are durable when they end. If a process has the store open, only that
process can hand out its messages.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any, Final

from ...store.disk.disk import OsDisk
from ...store.errors import SettingsError, StateError, StoreLocked
from ...store.inspect.facts import plain_value
from ...store.message import DEFAULT_PRIORITY, HeaderValue, Message
from ..consumer.consumer import Consumer, delivered_message
from ..core.model.delivery import Delivery
from ..explain.texts import plural, size_text
from ..forebay import Forebay
from ..store_directories import NoStore, only_store
from ..store_status import printable
from .opened_store import add_settings, chosen_settings, known_queue, opened
from .shared_arguments import add_directory, add_json
from .streams import Streams, escaped

BROWSED: Final = 20
TAKEN_MAX: Final = 100_000
BATCH: Final = 256
_COLUMNS: Final = ("message", "priority", "size", "headers")
_HEADER_CHARACTERS: Final = 60


def add_browse(parser: ArgumentParser) -> None:
    """Define `forebay browse`."""
    parser.description = "Show the pending messages of a queue in order, and change nothing in it."
    _add_queue(parser)
    parser.add_argument("-n", dest="limit", metavar="N", type=int, default=BROWSED, help="so many (%(default)s)")
    parser.add_argument("--selector", metavar="TEXT", help="only what it matches")
    parser.add_argument("--bodies", action="store_true", help="with bodies, which are not shown otherwise")
    add_json(parser, "an object a message")
    add_settings(parser)
    parser.set_defaults(run=run_browse)


def run_browse(arguments: Namespace, streams: Streams) -> int:
    """Show the pending messages of a queue."""
    limit = _at_least_one("n", arguments.limit)
    with _opened(only_store(arguments.directory), arguments, streams) as bay:
        queue = known_queue(bay, arguments.queue)
        depth = queue.depth
        with closing(queue.browse(arguments.selector)) as messages:
            chosen = islice(messages, min(limit, depth))
            if arguments.json:
                for message in chosen:  # one after the other, however many
                    streams.print_json(_row(message, with_body=arguments.bodies))
                return 0
            found = list(chosen)
    if found:
        streams.print_table(_COLUMNS, [_cells(message) for message in found], numbers=_COLUMNS[1:3])
    for message in found if arguments.bodies else ():
        streams.print(f"{printable(message.message_id)}: {_body_text(message.body)}")
    streams.print(f"{len(found):,} of {depth:,} message{plural(depth)}")
    return 0


def add_send(parser: ArgumentParser) -> None:
    """Define `forebay send`."""
    parser.description = (
        "Send one message, from --body or else from standard input, and print its id when it is durable. "
        "A queue that is not there begins to exist."
    )
    _add_queue(parser)
    parser.add_argument("--body", metavar="TEXT", help="the body, as UTF-8 (standard input, as it is)")
    parser.add_argument(
        "--header",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a number, true, false or null is one, anything else is text; may be given again",
    )
    parser.add_argument(
        "--priority", metavar="N", type=int, default=DEFAULT_PRIORITY, help="0, the lowest, to 9 (%(default)s)"
    )
    parser.add_argument("--create", action="store_true", help="make the store where DIR has none")
    add_json(parser, "one object with the id")
    add_settings(parser)
    parser.set_defaults(run=run_send)


def run_send(arguments: Namespace, streams: Streams) -> int:
    """Send one message."""
    headers = dict(map(_header, arguments.header))
    with _opened(_store_to_send_to(arguments), arguments, streams) as bay:
        body = _body(arguments.body, bay.settings.max_message_size_bytes, streams)
        message_id = bay.queue(arguments.queue).send(body, headers=headers or None, priority=arguments.priority)
    if arguments.json:
        streams.print_json({"queue": arguments.queue, "message_id": message_id})
    else:
        streams.print(message_id)
    return 0


def add_take(parser: ArgumentParser) -> None:
    """Define `forebay take`."""
    parser.description = (
        "Print the next messages of a queue, as a consumer would get them. They stay in the queue, as if nobody had "
        "had them, unless --ack says that they are done with: then each is removed after it was printed."
    )
    _add_queue(parser)
    parser.add_argument("-n", dest="limit", metavar="N", type=int, default=1, help="so many at most (%(default)s)")
    parser.add_argument("--ack", action="store_true", help="remove them, once they are printed")
    parser.add_argument("--selector", metavar="TEXT", help="only what it matches")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print JSON: an object a message, its body in it")
    how.add_argument("--raw", action="store_true", help="print bodies alone, byte for byte, nothing between them")
    add_settings(parser)
    parser.set_defaults(run=run_take)


def run_take(arguments: Namespace, streams: Streams) -> int:
    """Print the next messages, and acknowledge them if asked to. Return 1 where there was none."""
    limit = _at_least_one("n", arguments.limit)
    if limit > TAKEN_MAX:
        raise SettingsError(f"n={limit} must be at most {TAKEN_MAX:,}")
    with _opened(only_store(arguments.directory), arguments, streams) as bay:
        queue = known_queue(bay, arguments.queue)
        with queue.subscribe(selector=arguments.selector, prefetch=limit) as consumer:
            taken = _take_and_print(bay, consumer, limit, arguments, streams)
    if not taken:
        streams.remark(f"nothing to take in {printable(arguments.queue)}")
    return 0 if taken else 1


def _take_and_print(bay: Forebay, consumer: Consumer, limit: int, arguments: Namespace, streams: Streams) -> int:
    """Print up to so many messages; return how many. Messages that were not acknowledged go back to the queue."""
    taken = 0
    held: list[Delivery] = []
    try:
        while taken < limit and (deliveries := _next(bay, consumer, min(limit - taken, BATCH))):
            taken += len(deliveries)
            held += deliveries
            for delivery in deliveries:
                _print_delivery(delivered_message(delivery), arguments, streams)
            if arguments.ack:
                streams.flush()  # a message that nobody could read is not acknowledged
                consumer.ack(deliveries)
                held.clear()
    finally:
        if held:
            consumer.release(held)
    return taken


def _next(bay: Forebay, consumer: Consumer, most: int) -> list[Delivery]:
    """Return the next deliveries; [] where there are none. The store has no threads, so its work is done here."""
    while True:
        deliveries = consumer.take(most)
        if deliveries or not bay.step():
            return deliveries


# ---------------------------------------------------------------------- words


def _add_queue(parser: ArgumentParser) -> None:
    add_directory(parser)
    parser.add_argument("queue", metavar="QUEUE", help="its name")


def _at_least_one(name: str, number: int) -> int:
    if number < 1:
        raise SettingsError(f"{name}={number} must be at least 1")
    return number


@contextmanager
def _opened(disk: OsDisk, arguments: Namespace, streams: Streams) -> Iterator[Forebay]:
    try:
        with opened(disk, arguments.settings, streams) as bay:
            yield bay
    except StoreLocked as locked:
        raise StateError(
            f"{locked}. A process that has the store open hands out and takes in its messages alone: call the Python "
            "interface there, or close it first. `forebay queues`, `explain` and `dump` work beside it"
        ) from locked


def _store_to_send_to(arguments: Namespace) -> OsDisk:
    """Return the store in a directory, or with --create the place where it will be."""
    try:
        return only_store(arguments.directory)
    except NoStore as error:
        if arguments.create:
            return OsDisk(f"{arguments.directory}/{chosen_settings(arguments.settings).broker_name}")
        raise SettingsError(f"{error}; --create makes a store there") from error


def _body(text: str | None, most_bytes: int, streams: Streams) -> bytes:
    return streams.read_at_most(most_bytes) if text is None else text.encode(errors="surrogateescape")


def _header(text: str) -> tuple[str, HeaderValue]:
    """Return name and value of --header."""
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise SettingsError(f"--header {printable(text[:100])}: give NAME=VALUE")
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return name, value
    return name, found if found is None or isinstance(found, bool | int | float) else value


def _row(message: Message, *, with_body: bool) -> dict[str, Any]:
    """Return a message as plain data that JSON can hold. A body that is no UTF-8 is given as body_base64."""
    row: dict[str, Any] = {
        "message_id": message.message_id,
        "priority": message.priority,
        "persistent": message.persistent,
        "group": message.group,
        "bytes": len(message.body),
        "headers": plain_value(dict(message.headers or {})),
    }
    if with_body:
        try:
            row["body"] = message.body.decode()
        except UnicodeDecodeError:
            row["body_base64"] = b64encode(message.body).decode()
    return row


def _cells(message: Message) -> list[str]:
    headers = printable(json.dumps(plain_value(dict(message.headers or {})), ensure_ascii=False))
    if len(headers) > _HEADER_CHARACTERS:
        headers = f"{headers[: _HEADER_CHARACTERS - 3]}..."
    id_text = printable(message.message_id)
    return [id_text, str(message.priority), size_text(len(message.body)), headers if message.headers else ""]


def _body_text(body: bytes) -> str:
    """Return a body as text. Bytes that are no UTF-8 are escaped."""
    return escaped(body.decode(errors="backslashreplace"))


def _print_delivery(message: Message, arguments: Namespace, streams: Streams) -> None:
    if arguments.raw:
        streams.print_bytes(message.body)
    elif arguments.json:
        streams.print_json(_row(message, with_body=True))
    else:
        streams.print(_body_text(message.body))
