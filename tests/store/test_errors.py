"""Errors: one tree, numbers as attributes, a text that says what to do and never holds content."""

from __future__ import annotations

import copy
import inspect
import pickle
import queue
from collections.abc import Callable

import pytest

import forebay
from forebay.store import errors
from forebay.store.checkpoint.checkpointer import INDEX_LIMIT
from forebay.store.errors import (
    AckTooLate,
    ArgumentError,
    Closed,
    DecodeError,
    Empty,
    ForebayError,
    JournalCorrupt,
    MessagesUnreadable,
    MessageTooLarge,
    NestedCall,
    NotAwaited,
    PropertiesFull,
    SelectorError,
    SettingsError,
    SpillFailed,
    StateError,
    StoreFailed,
    StoreFull,
    StoreLocked,
    SubscriptionInUse,
    TooManyFiles,
    TransactionError,
    argument_error,
)

SAMPLES: list[tuple[ForebayError, dict[str, object], str]] = [
    (
        StoreLocked("bay/localhost", "pid 7 on host", 0.5),
        {"directory": "bay/localhost", "holder": "pid 7 on host", "waited_seconds": 0.5},
        "close that one, or open with a larger lock_wait_seconds",
    ),
    (StoreFailed("a journal sync failed"), {"reason": "a journal sync failed"}, "close and open again"),
    (
        StoreFull(4096, 17, "store_limit", stored=3),
        {"needed_bytes": 4096, "available_bytes": 17, "limit": "store_limit", "stored": 3},
        "consume or clean up, or raise store_limit",
    ),
    (
        TooManyFiles(),
        {"limit": "RLIMIT_NOFILE", "stored": 0},
        "close files or connections",
    ),
    (
        PropertiesFull(300, 1000, 900),
        {"needed_bytes": 300, "limit_bytes": 1000},
        "delete some, or keep large values elsewhere",
    ),
    (Empty("orders", 0.25), {"queue": "orders", "waited_seconds": 0.25}, "call get again later"),
    (StateError("the delivery is settled already"), {}, "settled already"),
    (
        SpillFailed(4096, "Input/output error"),
        {"needed_bytes": 4096, "problem": "Input/output error"},
        "cure the disk, then send again",
    ),
    (
        JournalCorrupt(86, 4711, "zeros where records were"),
        {"data_log": 86, "offset": 4711, "problem": "zeros where records were"},
        "forebay verify",
    ),
    (
        MessageTooLarge(2048, 1024, "memory_limit"),
        {"message_bytes": 2048, "limit_bytes": 1024, "limit": "memory_limit", "stored": 0},
        "raise memory_limit or split it",
    ),
    (
        MessagesUnreadable("orders", "id 7", 2),
        {"queue": "orders", "message_id": "id 7", "unreadable": 2},
        "to have them set aside",
    ),
    (
        DecodeError("orders", "id 7", "ValueError"),
        {"destination": "orders", "message_id": "id 7", "problem": "ValueError"},
        "reject it",
    ),
    (DecodeError("orders", "id 7", "ValueError", is_rejected=True), {"problem": "ValueError"}, "dead-letter queue"),
    (SelectorError("unknown operator", 5), {"problem": "unknown operator", "position": 5}, "character 5"),
    (SubscriptionInUse("prices", "audit"), {"topic": "prices", "name": "audit"}, "close that one first"),
    (
        NotAwaited("bay.queue(name)", "write `await bay.queue(name)`"),
        {"what": "bay.queue(name)", "remedy": "write `await bay.queue(name)`"},
        "write `await bay",
    ),
    (
        AckTooLate("orders", 7, 2, 30),
        {"destination": "orders", "sequence": 7, "deadline_seconds": 30},
        "extend it in time",
    ),
    (NestedCall(), {}, "set an event there"),
    (Closed("the store"), {"what": "the store"}, "open or subscribe again"),
]


@pytest.mark.parametrize("error, attributes, advice", SAMPLES, ids=lambda value: type(value).__name__)
def test_error_carries_its_numbers_and_says_what_to_do(
    error: ForebayError, attributes: dict[str, object], advice: str
) -> None:
    assert {name: getattr(error, name) for name in attributes} == attributes
    assert advice in str(error)
    assert all(str(value) in str(error) for name, value in attributes.items() if name != "stored")


@pytest.mark.parametrize(
    "limit, advice",
    [
        ("memory_limit", "raise memory_limit"),
        ("temp_limit", "raise temp_limit"),
        ("max_messages=2 of the queue 'orders'", "raise max_messages"),
        ("max_bytes=1MiB of the topic 'prices'", "raise max_bytes"),
        (INDEX_LIMIT, "raise memory_limit"),
        ("the disk's free space", "free disk space, or lower max_file_length"),
    ],
)
def test_what_is_full_says_what_makes_room_there(limit: str, advice: str) -> None:
    assert f"consume or clean up, or {advice}, then send again" in str(StoreFull(1, 0, limit))


def test_every_error_is_in_the_one_tree_and_has_a_docstring_of_its_own() -> None:
    found = [thing for thing in vars(errors).values() if inspect.isclass(thing) and issubclass(thing, Exception)]
    assert len(found) == 22
    for error in found:
        assert issubclass(error, ForebayError) and error.__doc__ != ForebayError.__doc__ or error is ForebayError


def test_errors_of_arguments_are_value_errors_too() -> None:
    assert issubclass(SettingsError, ValueError) and issubclass(SelectorError, ValueError)


def test_error_of_a_wrong_type_is_a_type_error_too() -> None:
    assert issubclass(ArgumentError, SettingsError) and issubclass(ArgumentError, TypeError)


@pytest.mark.parametrize(
    "value, types, is_of_them",
    [(7, (int,), True), (True, (int,), False), (True, (bool,), True), (7, (int, float), True), ("7", (int,), False)],
)
def test_argument_of_no_such_type_is_told_from_one_that_cannot_be(
    value: object, types: tuple[type, ...], is_of_them: bool
) -> None:
    assert type(argument_error("no", value, *types)) is (SettingsError if is_of_them else ArgumentError)


def test_every_error_is_to_be_had_from_the_front_door() -> None:
    public = {type(sample) for sample, _, _ in SAMPLES} - {SpillFailed}  # nothing public spills yet
    for error in (*public, ForebayError, SettingsError, TransactionError):
        assert getattr(forebay, error.__name__) is error


@pytest.mark.parametrize("error", [*(sample[0] for sample in SAMPLES), SettingsError("no"), ArgumentError("no")])
@pytest.mark.parametrize("again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_error_survives_pickle_and_copy_with_its_text_and_numbers(
    error: ForebayError, again: Callable[[ForebayError], ForebayError]
) -> None:
    found = again(error)
    assert type(found) is type(error) and found is not error
    assert (str(found), found.args, vars(found)) == (str(error), error.args, vars(error))


def test_every_error_of_the_tree_is_among_those_that_are_pickled() -> None:
    kinds = {kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, ForebayError)}
    assert kinds - {ForebayError, TransactionError} == {type(sample[0]) for sample in SAMPLES} | {
        SettingsError,
        ArgumentError,
    }


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (StoreFull(1, 0, "store_limit"), queue.Full),
        (TooManyFiles(), queue.Full),
        (Empty("orders", 0.0), queue.Empty),
        (StateError("settled"), RuntimeError),
    ],
)
def test_who_knows_only_the_standard_library_catches_the_error(error: ForebayError, builtin: type) -> None:
    assert isinstance(error, builtin) and isinstance(error, ForebayError)


def test_an_error_about_state_is_no_error_about_settings() -> None:
    assert not issubclass(StateError, SettingsError | ValueError)
