"""Sends requests of another process to an open store through its admin socket, and checks the answers.

It opens no store. The answer is data of another process, so its shape is checked before anything in it is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ...store.errors import SettingsError, StateError
from .admin_socket import ask

ANSWER_SECONDS: Final = 600.0
COUNT_MAX: Final = 1 << 63
USAGE: Final = ("SettingsError", "ArgumentError", "SelectorError")

Result = dict[str, Any]


def ask_store(root: str, request: Mapping[str, Any], seconds: float = ANSWER_SECONDS) -> Result | None:
    """Return the answer of the process that has a store open, or None if no process listens.

    SettingsError or StateError: the process answered with it, or its answer makes no sense.

    seconds: how long to wait for the answer. After that, the process may still do what it was asked for.
    """
    try:
        said = ask(root, json.dumps(request).encode(), seconds)
    except TimeoutError:
        raise StateError(f"the process that has {root} open did not answer within {seconds:.0f} s") from None
    return result_of(said, root) if said is not None else None


def result_of(said: bytes, root: str) -> Result:
    """Return the result in an answer. SettingsError or StateError: the answer says so.

    root: the directory of the store that answered.
    """
    try:
        answer = json.loads(said)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict) and answer.get("ok") is True and isinstance(answer.get("result"), dict):
        result: Result = answer["result"]
        return result
    if isinstance(answer, dict) and answer.get("ok") is False:
        problem = "".join(one if one.isprintable() else "?" for one in str(answer.get("problem", "")))
        raise SettingsError(problem) if answer.get("error") in USAGE else StateError(problem)
    raise StateError(f"what listens in {root} is none of ours")


def count_in(result: Mapping[str, Any], name: str) -> int:
    """Return a count in an answer, or 0 where there is none that makes sense."""
    found = result.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < COUNT_MAX else 0
