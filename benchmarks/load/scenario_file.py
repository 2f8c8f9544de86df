"""ScenarioFile: read a scenario from TOML, one of this package or one of a user.

Nothing is guessed or skipped: an unknown key, or an invalid value, raises SettingsError with its place and the allowed
values.
"""

from __future__ import annotations

import re
import reprlib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from forebay.dispatch.config.settings import MEMORY_LIMIT_BYTES_MIN
from forebay.dispatch.config.sizes import GIB, MIB, is_number
from forebay.store.disk.user_file import read_user_file
from forebay.store.errors import SettingsError

from .scenario import DEEDS, KINDS, Act, ConsumerPlan, DestinationPlan, Scenario
from .schedule import FORM, Schedule
from .sizes import BODY_SIZES_MAX, body_sizes, size_bytes
from .workload import SIZE_BYTES_MIN

SUFFIX: Final = ".toml"
SHIPPED: Final = Path(__file__).parent / "scenarios"
MESSAGES_MAX: Final = 10**9
_FILE_BYTES_MAX: Final = MIB
_CONSUMERS_MAX: Final = 10_000

_Word = Callable[[object], Any]
"""Converts a value. ValueError says what is allowed."""


@cache
def shipped() -> Mapping[str, Scenario]:
    """Return the scenarios of this package by name, the default one first."""
    found = [read_scenario(str(path)) for path in sorted(SHIPPED.glob(f"*{SUFFIX}"))]
    return {scenario.name: scenario for scenario in sorted(found, key=lambda scenario: scenario.name != "tour")}


def read_scenario(path: str) -> Scenario:
    """Return the scenario of a file, named after it. SettingsError names the problem."""
    try:
        table = tomllib.loads(read_user_file(path, _FILE_BYTES_MAX).decode())
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: not UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise SettingsError(f"{path}: not TOML ({problem})") from None
    try:
        return _scenario(Path(path).stem, table)
    except ValueError as problem:
        raise SettingsError(f"{path}: {problem}") from None


def _scenario(name: str, table: Mapping[str, object]) -> Scenario:
    fields = _read("", table, _SCENARIO, required=("purpose",))
    consumers = []
    for place, entry in _tables(table, "consumers"):
        consumer = _read(place, entry, _CONSUMER, required=("name",))
        count = consumer.pop("count", 1)
        consumers += [ConsumerPlan(number=number, **consumer) for number in range(count)]
    acts = [Act(**_read(place, entry, _ACT, required=("at", "do"))) for place, entry in _tables(table, "acts")]
    rate = fields.get("rate")
    if rate is not None and rate.messages is not None:
        fields.setdefault("messages", rate.messages)
    fields |= {"destinations": _destinations(table, fields), "consumers": tuple(consumers), "acts": tuple(acts)}
    fields.pop("producers", None)
    scenario = Scenario(name, **fields)
    _check_together(scenario)
    _check_destinations(scenario)
    return scenario


def _destinations(table: Mapping[str, object], fields: Mapping[str, Any]) -> tuple[DestinationPlan, ...]:
    """Return the destinations: those that tables describe, or a number of queues to which all producers send."""
    given = fields.get("destinations", 1)
    if isinstance(given, int):
        return (DestinationPlan(count=given, producers=fields.get("producers", 4)),)
    if "producers" in fields:
        raise ValueError("producers: belongs to each of destinations where these are tables")
    return tuple(
        DestinationPlan(**_read(place, entry, _DESTINATION, required=("name",)))
        for place, entry in _tables(table, "destinations")
    )


def _check_destinations(scenario: Scenario) -> None:
    """Check that destinations and consumers fit each other. SettingsError."""
    destinations, consumers = scenario.destinations, scenario.consumers
    names = [destination.name for destination in destinations]
    if not names or len(set(names)) < len(names):
        raise ValueError("destinations: one at least, each with a name of its own")
    for consumer in consumers:
        if consumer.at is not None and consumer.at not in names:
            raise ValueError(f"consumers: at={consumer.at!r} is none of the destinations {', '.join(names)}")
        if consumer.selector is not None and (len(names) > 1 or destinations[0].kind == "topic"):
            raise ValueError("consumers: kinds and own_key only where all destinations are one queue, or queues alike")
    if consumers and any(consumer.at is not None for consumer in consumers):
        consumed = {each.name for consumer in consumers for each in scenario.consumed_by(consumer)}
        if unread := set(names) - consumed:
            raise ValueError(f"consumers: nobody consumes {min(unread)!r}")
    own_keys = sum(consumer.own_key for consumer in consumers)
    if own_keys and sorted(consumer.number for consumer in consumers) != list(range(scenario.keys)):
        raise ValueError(f"consumers: with own_key there must be keys = {scenario.keys} of one name, and no others")
    if any(destination.kind == "topic" for destination in destinations):
        if any(act.do == "purge" for act in scenario.acts):
            raise ValueError("acts: a purge is for queues")
        if len({consumer.title for consumer in consumers}) < len(consumers):
            raise ValueError("consumers: where there are topics, each needs a name of its own")
        if any(len({each.kind for each in scenario.consumed_by(consumer)}) > 1 for consumer in consumers):
            raise ValueError("consumers: where there are queues and topics, each must say which, by at")
        if not consumers or not scenario.persistent:
            raise ValueError("destinations: a topic needs consumers, and persistent messages, to account for them")
    if scenario.rate is not None and len(destinations) > 1:
        raise ValueError("rate: only where all destinations are one queue, or queues alike")
    for each in destinations:
        if each.backlog is not None and (each.count > 1 or each.producers > 1 or each.kind == "topic"):
            raise ValueError("destinations: a backlog belongs to one queue with one producer")


def _check_together(scenario: Scenario) -> None:
    """Check values that are valid alone but not together. SettingsError."""
    if len(scenario.consumers) > _CONSUMERS_MAX:
        raise ValueError(f"consumers: at most {_CONSUMERS_MAX:,}")
    if [act.at for act in scenario.acts] != sorted(act.at for act in scenario.acts):
        raise ValueError("acts: must stand in the order of their `at`")
    for act in scenario.acts:
        if (act.memory is not None) != (act.do == "resize"):
            raise ValueError('acts: memory belongs to do = "resize", and to nothing else')
    if scenario.kills and not scenario.persistent:
        raise ValueError("acts: a kill loses messages that are not persistent, so nothing could be said of them")
    if scenario.stuck_every is not None and sum(destination.count for destination in scenario.destinations) > 1:
        raise ValueError("stuck_every: only with destinations = 1")


def _read(place: str, table: object, words: Mapping[str, _Word], required: Sequence[str]) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ValueError(f"{place} must be a table")
    prefix = f"{place}." if place else ""
    if unknown := set(table) - set(words):
        raise ValueError(f"there is no {prefix}{min(unknown)} (known: {', '.join(words)})")
    for key in required:
        if key not in table:
            raise ValueError(f"{prefix}{key} is missing")
    fields = {}
    for key, value in table.items():
        try:
            fields[key] = words[key](value)
        except (ValueError, SettingsError) as allowed:
            raise ValueError(f"{prefix}{key}={reprlib.repr(value)} must be {allowed}") from None
    return fields


def _tables(table: Mapping[str, object], key: str) -> list[tuple[str, object]]:
    """Return each table with its place, counted from 1."""
    entries = table.get(key, [])
    assert isinstance(entries, list), "it was checked"
    return [(f"{key}[{number}]", entry) for number, entry in enumerate(entries, start=1)]


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("a line of text")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _list(value: object) -> object:
    if not isinstance(value, list):
        raise ValueError("a list of tables")
    return value


def _how_many_or_tables(value: object) -> object:
    if isinstance(value, list):
        return value
    try:
        return _whole(1, 1_000_000)(value)
    except ValueError as allowed:
        raise ValueError(f"{allowed}, or a list of tables") from None


def _name(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-z][a-z0-9_-]{0,63}", value):
        raise ValueError("a small letter, and up to 63 small letters, digits, _ and -")
    return value


def _part(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[1-9][0-9]?%", value):
        raise ValueError('a share of the limit such as "25%"')
    return value


def _number(least: float, most: float) -> _Word:
    def word(value: object) -> object:
        if not is_number(value, least, most):
            raise ValueError(f"a number from {least:g} to {most:g}")
        return value

    return word


def _whole(least: int, most: int) -> _Word:
    def word(value: object) -> object:
        if not is_number(value, least, most) or not isinstance(value, int):
            raise ValueError(f"a whole number from {least:,} to {most:,}")
        return value

    return word


def _memory(value: object) -> int:
    try:
        return size_bytes("", value, minimum=MEMORY_LIMIT_BYTES_MIN, maximum=GIB)
    except SettingsError:
        raise ValueError(_size_form(MEMORY_LIMIT_BYTES_MIN)) from None


def _sizes(value: object) -> tuple[int, ...]:
    try:
        return body_sizes(value if isinstance(value, list) else [value], maximum=GIB)
    except SettingsError:
        raise ValueError(f"{_size_form(SIZE_BYTES_MIN)}, or a list of 1 to {BODY_SIZES_MAX} of them") from None


def _size_form(least: int) -> str:
    return f'bytes, or a size such as "64MiB", from {least:,} to 1GiB'


def _one_of(*allowed: str) -> _Word:
    def word(value: object) -> object:
        if value not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return value

    return word


def _kinds(value: object) -> tuple[object, ...]:
    if not isinstance(value, list) or not value or any(kind not in KINDS for kind in value):
        raise ValueError(f"a list of some of {', '.join(KINDS)}")
    return tuple(value)


def _paces(value: object) -> tuple[tuple[float, float], ...]:
    form = "a list of [share of the work, messages a second], the shares rising"
    found: list[tuple[float, float]] = []
    for step in value if isinstance(value, list) else [None]:
        if not isinstance(step, list) or len(step) != 2:
            raise ValueError(form)
        share, pace = step
        if not is_number(share, found[-1][0] if found else 0, 1) or not is_number(pace, 1, 10**9):
            raise ValueError(form)
        found.append((share, pace))
    return tuple(found)


def _rate(value: object) -> Schedule:
    if is_number(value, 0.001, 10**9):
        return Schedule.parse(f"{value}")
    if not isinstance(value, str):
        raise ValueError(FORM)
    return Schedule.parse(value)


_SCENARIO: Final[Mapping[str, _Word]] = {
    "purpose": _text,
    "messages": _whole(1, MESSAGES_MAX),
    "size": _sizes,
    "producers": _whole(1, 1000),
    "destinations": _how_many_or_tables,
    "persistent": _flag,
    "sync": _one_of("always", "interval", "never"),
    "memory": _memory,
    "rate": _rate,
    "backlog_first": _flag,
    "stuck_every": _whole(1, MESSAGES_MAX),
    "keys": _whole(1, _CONSUMERS_MAX),
    "consumers": _list,
    "acts": _list,
}
_DESTINATION: Final[Mapping[str, _Word]] = {
    "name": _name,
    "kind": _one_of("queue", "topic"),
    "count": _whole(1, 1_000_000),
    "producers": _whole(1, 1000),
    "share": _number(0.001, 1000),
    "joins_at": _number(0, 1),
    "backlog": _number(0.001, 0.5),
    "memory_share": _part,
    "memory_reserve": _part,
}
_CONSUMER: Final[Mapping[str, _Word]] = {
    "name": _text,
    "count": _whole(1, _CONSUMERS_MAX),
    "at": _name,
    "own_key": _flag,
    "kinds": _kinds,
    "pace": _number(1, 10**9),
    "paces": _paces,
    "prefetch": _whole(1, 1_000_000),
    "rests": _number(0, 60),
    "joins_at": _number(0, 1),
    "leaves_after": _whole(1, MESSAGES_MAX),
    "rollbacks": _number(0, 0.9),
    "retries": _number(0, 0.9),
    "retry_seconds": _number(0, 86_400),
}
_ACT: Final[Mapping[str, _Word]] = {
    "at": _number(0, 1),
    "do": _one_of(*DEEDS),
    "memory": _memory,
}
