"""The commands that change or ask a running store: through the admin socket of its process.

They open nothing themselves. What the process answers is data of others: it is
printed without what steers a terminal.
"""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any, Final

from ..store.disk.admin_socket import ask
from ..store.errors import SettingsError, StateError
from .explain.disk import plural, size_text
from .live import printable
from .offline import Print, explain_command, stores_in

ANSWER_SECONDS: Final = 600.0
USAGE: Final = ("SettingsError", "ArgumentError", "SelectorError")


def resize_command(arguments: Namespace, print_line: Print) -> int:
    """Run `forebay resize DIR LIMIT`."""
    result = _asked(arguments.directory, {"do": "resize", "memory_limit": arguments.memory_limit})
    held, limit = (size_text(_count(result, name)) for name in ("held_bytes", "limit_bytes"))
    settled = "" if result.get("is_settled") is True else "; it falls as consumers settle what is in flight"
    print_line(f"the memory limit is {limit}, {held} are held{settled}")
    return 0


def pause_command(arguments: Namespace, print_line: Print) -> int:
    """Run `forebay pause DIR QUEUE` or `forebay resume DIR QUEUE`."""
    _asked(arguments.directory, {"do": arguments.do, "queue": arguments.queue})
    print_line(f"{printable(arguments.queue)} {'hands out nothing' if arguments.do == 'pause' else 'hands out again'}")
    return 0


def purge_command(arguments: Namespace, print_line: Print) -> int:
    """Run `forebay purge DIR QUEUE`."""
    messages = _count(_asked(arguments.directory, {"do": "purge", "queue": arguments.queue}), "messages")
    print_line(f"{messages:,} message{plural(messages)} removed")
    return 0


def move_command(arguments: Namespace, print_line: Print) -> int:
    """Run `forebay move DIR QUEUE TO`."""
    request: dict[str, Any] = {"do": "move", "queue": arguments.queue, "to": arguments.to}
    request |= {
        name: getattr(arguments, name) for name in ("selector", "limit") if getattr(arguments, name) is not None
    }
    messages = _count(_asked(arguments.directory, request), "messages")
    print_line(f"{messages:,} message{plural(messages)} moved to {printable(arguments.to)}")
    return 0


def explain_live_command(arguments: Namespace, print_line: Print) -> int:
    """Run `forebay explain DIR`: ask the process that has it open, or else look at the journal.

    With --queue only the process can tell.
    """
    if arguments.queue is not None:
        if arguments.data_log is not None:
            raise SettingsError("explain a data log or a queue, not both")
        _print_explanation(_asked(arguments.directory, {"do": "explain", "queue": arguments.queue}), print_line)
        return 0
    stores = stores_in(arguments.directory)
    if len(stores) == 1 and arguments.data_log is None:
        result = ask_store(stores[0].root, {"do": "explain"}, ANSWER_SECONDS)
        if result is not None:
            _print_explanation(result, print_line)
            return 0
    return explain_command(arguments, print_line)


def _print_explanation(result: dict[str, Any], print_line: Print) -> None:
    print_line(printable(result.get("sentence", "")))
    causes = result.get("causes")
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict):
            what = f"{_count(cause, 'messages'):,} messages, {size_text(_count(cause, 'bytes'))}"
            reason, holder, frees = (printable(cause.get(name, "")) for name in ("reason", "holder", "frees"))
            print_line(f"  {reason:<16} {holder}: {what}; freed by {frees}")


def _asked(directory: str, request: dict[str, Any]) -> dict[str, Any]:
    stores = stores_in(directory)
    if len(stores) > 1:
        names = ", ".join(printable(disk.root.rpartition("/")[2]) for disk in stores[:5])
        raise SettingsError(f"{directory} has {len(stores):,} brokers ({names}): name the directory of one")
    result = ask_store(stores[0].root, request, ANSWER_SECONDS)
    if result is None:
        raise StateError(
            f"nobody listens in {stores[0].root}: start the process that has it open with admin=True, "
            "or call the Python interface there"
        )
    return result


def ask_store(root: str, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
    """Return the result of a request; None: nobody listens. SettingsError or StateError as the process says.

    seconds: to wait for the answer. Behind that it may still be doing what it was asked for.
    """
    try:
        said = ask(root, json.dumps(request).encode(), seconds)
    except TimeoutError:
        raise StateError(f"the process that has {root} open did not answer within {seconds:.0f} s") from None
    return result_of(said, root) if said is not None else None


def result_of(said: bytes, root: str) -> dict[str, Any]:
    """Return the result in an answer. SettingsError or StateError as it says; root: who answered."""
    try:
        answer = json.loads(said)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict) and answer.get("ok") is True and isinstance(answer.get("result"), dict):
        result: dict[str, Any] = answer["result"]
        return result
    if isinstance(answer, dict) and answer.get("ok") is False:
        problem = printable(answer.get("problem", ""))
        raise SettingsError(problem) if answer.get("error") in USAGE else StateError(problem)
    raise StateError(f"what listens in {root} is none of ours")


def _count(result: dict[str, Any], name: str) -> int:
    found = result.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 1 << 63 else 0
