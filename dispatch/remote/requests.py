"""Requests to an open store as lines of JSON: the words are those of the Python interface.

{"do": "explain"}, with "queue": NAME or "data_log": ID
{"do": "data_logs"}, with "after": ID
{"do": "browse", "queue": NAME}, with "skip": N and "bodies": true
{"do": "resize", "memory_limit": "16MiB"}
{"do": "pause" | "resume" | "purge", "queue": NAME}
{"do": "move", "queue": NAME, "to": NAME}, with "selector": TEXT and "limit": N

An answer is {"ok": true, "result": {...}}, or {"ok": false, "error": NAME, "problem": TEXT}. Whoever asks is the owner
of the directory, or root; what they send is checked as if they were not.
"""

from __future__ import annotations

import codecs
import dataclasses
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Final, Protocol

from ...store.environment.late_log import LateLogger
from ...store.errors import ForebayError, SettingsError
from ...store.message import HeaderValue, Message
from .admin_socket import ANSWER_BYTES_MAX

logger = LateLogger("forebay.dispatch")

CAUSES_MAX: Final = 100
TEXT_MAX: Final = 4_000
"""The most characters of a text in an answer."""
DATA_LOGS_MAX: Final = 100
SENTENCE_MAX: Final = 600
"""The most characters of the sentence about each data log."""
BROWSE_MAX: Final = 50
"""The messages of a page. With the rest of the answer, a page takes at most two thirds of it, however it is escaped."""
SKIP_MAX: Final = 1_000
"""The most messages before a page, all of which are read for it."""
HEADERS_MAX: Final = 10
"""The most headers of a message that are in an answer. It also has the number of all headers."""
HEADER_MAX: Final = 100
NAME_MAX: Final = 60
BODY_MAX: Final = 512
"""The most bytes of a body that are in an answer, from its beginning."""


class RemoteQueue(Protocol):
    """The part of a queue that requests use."""

    def browse(self) -> Generator[Message, None, None]: ...
    def purge(self) -> int: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def move(self, to: Any, selector: Any = None, limit: Any = None) -> int: ...


class RemoteStore(Protocol):
    """The part of an open store that requests use. Forebay has it."""

    def destinations(self) -> Sequence[str]: ...
    def queue(self, name: Any) -> RemoteQueue: ...
    def resize(self, memory_limit: Any) -> Any: ...
    def explain(self, subject: Any = None) -> Any: ...
    def data_logs(self) -> Sequence[Any]: ...


_Fields = Mapping[str, Any]


def answer(store: RemoteStore, line: bytes) -> bytes:
    """Do what a line asks for, and return the line that answers, also where the work raises.

    AssertionError: an answer is longer than ANSWER_BYTES_MAX, which the bounds of its parts rule out.
    """
    try:
        told: dict[str, Any] = {"ok": True, "result": _perform(store, _request(line))}
    except ForebayError as error:
        told = _problem(type(error).__name__, error)
    except Exception as error:
        logger.exception("a request of the admin socket failed", event="admin_request_failed")
        told = _problem("Exception", f"{type(error).__name__}: {error}")
    said = json.dumps(told, ensure_ascii=False).encode(
        errors="backslashreplace"
    )  # half a surrogate pair as JSON has it
    assert len(said) < ANSWER_BYTES_MAX, "its parts are bounded"
    return said


def _problem(name: str, problem: object) -> dict[str, Any]:
    return {"ok": False, "error": name, "problem": str(problem)[:TEXT_MAX]}


def _request(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise SettingsError("a request is a line of JSON") from None
    if not isinstance(request, dict):
        raise SettingsError('a request is an object such as {"do": "explain"}')
    return request


def _perform(store: RemoteStore, request: dict[str, Any]) -> dict[str, Any]:
    name = request.pop("do", None)
    verb = _VERBS.get(name) if isinstance(name, str) else None
    if verb is None:
        raise SettingsError(f"do must be one of {', '.join(_VERBS)}")
    required, allowed, work = verb
    for field in required:
        if field not in request:
            raise SettingsError(f"{name} needs {field}")
    for field in request:
        if field not in (*required, *allowed):
            raise SettingsError(
                f"{name} takes {', '.join((*required, *allowed)) or 'nothing else'}, not {field[:100]!r}"
            )
    result = work(store, request)
    if name not in _LOOKS:
        logger.info("admin socket: %s %s", name, request.get("queue", ""), event="admin_request")
    return result


def _queue(store: RemoteStore, fields: _Fields) -> RemoteQueue:
    """Return an existing queue. A mistaken name makes none."""
    name = fields["queue"]
    if not isinstance(name, str) or name not in store.destinations():
        raise SettingsError(f"there is no queue {str(name)[:300]!r}")
    return store.queue(name)


def _explain(store: RemoteStore, fields: _Fields) -> dict[str, Any]:
    if len(fields) > 1:
        raise SettingsError("explain takes a queue or a data_log, not both")
    explanation = store.explain(_queue(store, fields) if "queue" in fields else fields.get("data_log"))
    causes = [dataclasses.asdict(cause) for cause in explanation.causes[:CAUSES_MAX]]
    cut = [
        {name: value[:TEXT_MAX] if isinstance(value, str) else value for name, value in each.items()} for each in causes
    ]
    return {"sentence": explanation.sentence[:TEXT_MAX], "causes": cut}


def _data_logs(store: RemoteStore, fields: _Fields) -> dict[str, Any]:
    after = _whole_number(fields, "after", 0, 1 << 62)
    found = [one for one in store.data_logs() if one.data_log > after]
    rows = [
        {
            "data_log": one.data_log,
            "bytes": one.bytes,
            "live_bytes": one.live_bytes,
            "sentence": one.explanation.sentence[:SENTENCE_MAX],
        }
        for one in found[:DATA_LOGS_MAX]
    ]
    return {"data_logs": rows, "more": len(found) - len(rows)}


def _browse(store: RemoteStore, fields: _Fields) -> dict[str, Any]:
    """Return a page of a queue. O(skipped messages and the page), so `skip` is bounded."""
    skip = _whole_number(fields, "skip", 0, SKIP_MAX)
    bodies = fields.get("bodies", False)
    if not isinstance(bodies, bool):
        raise SettingsError("bodies must be true or false")
    with closing(_queue(store, fields).browse()) as messages:
        # One message after the other, so that no more than one load of bodies is in RAM.
        rows = [_message(one, bodies) for one in islice(messages, skip, skip + BROWSE_MAX)]
        is_more = next(messages, None) is not None
    return {"messages": rows, "is_more": is_more}


def _message(message: Message, with_body: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": (message.message_id or "")[:NAME_MAX],
        "bytes": len(message.body),
        "priority": message.priority,
        "persistent": message.persistent,
        "group": message.group[:NAME_MAX] if message.group is not None else None,
        "headers": [[name[:NAME_MAX], _header(value)] for name, value in islice(_headers(message), HEADERS_MAX)],
        "header_count": len(message.headers or ()),
    }
    if with_body:
        row["body"] = _beginning(message.body, BODY_MAX)
    return row


def _headers(message: Message) -> Iterator[tuple[str, HeaderValue]]:
    return iter((message.headers or {}).items())


def _header(value: HeaderValue) -> str:
    if isinstance(value, str):
        return value[:HEADER_MAX]
    return (_beginning(value, HEADER_MAX) if isinstance(value, bytes) else repr(value))[:HEADER_MAX]


def _beginning(content: bytes, most: int) -> str:
    """Return the beginning of bytes as the text that they are, or else as hexadecimal digits."""
    is_whole = len(content) <= most
    try:
        return codecs.utf_8_decode(content[:most], "strict", is_whole)[0]  # the end may cut a character in two
    except UnicodeDecodeError:
        return content[:most].hex(" ")


def _whole_number(fields: _Fields, name: str, least: int, most: int) -> int:
    found = fields.get(name, least)
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        raise SettingsError(f"{name} must be an int from {least} to {most:,}")
    return found


def _resize(store: RemoteStore, fields: _Fields) -> dict[str, Any]:
    limit = fields["memory_limit"]
    if isinstance(limit, bool) or not isinstance(limit, int | str):
        raise SettingsError('memory_limit must be bytes, or a size such as "16MiB"')
    return dataclasses.asdict(store.resize(limit))


def _pause(store: RemoteStore, fields: _Fields) -> dict[str, Any]:
    _queue(store, fields).pause()
    return {}


def _resume(store: RemoteStore, fields: _Fields) -> dict[str, Any]:
    _queue(store, fields).resume()
    return {}


def _purge(store: RemoteStore, fields: _Fields) -> dict[str, Any]:
    return {"messages": _queue(store, fields).purge()}


def _move(store: RemoteStore, fields: _Fields) -> dict[str, Any]:
    to = fields["to"]
    if not isinstance(to, str):
        raise SettingsError("to must be the name of a queue")
    return {"messages": _queue(store, fields).move(to, fields.get("selector"), fields.get("limit"))}


_Verb = tuple[tuple[str, ...], tuple[str, ...], Callable[[RemoteStore, _Fields], dict[str, Any]]]
_VERBS: Final[Mapping[str, _Verb]] = {
    "explain": ((), ("queue", "data_log"), _explain),
    "data_logs": ((), ("after",), _data_logs),
    "browse": (("queue",), ("skip", "bodies"), _browse),
    "resize": (("memory_limit",), (), _resize),
    "pause": (("queue",), (), _pause),
    "resume": (("queue",), (), _resume),
    "purge": (("queue",), (), _purge),
    "move": (("queue", "to"), ("selector", "limit"), _move),
}
"""By name: the fields that a request must have, those that it may have, and what does it."""
_LOOKS: Final = frozenset(("explain", "data_logs", "browse"))
"""Requests that change nothing, and are not logged."""
