"""Settings: what is accepted, what is refused and in which words, and the table made of them."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest
from reference import defaults_table

from forebay.cache.process.process_memory import share_of_memory_bytes
from forebay.dispatch.config.policy import DestinationPolicy
from forebay.dispatch.config.settings import Settings, settings_from
from forebay.dispatch.config.sizes import GIB, KIB, MIB, format_size, parse_size
from forebay.store.errors import SettingsError


@pytest.mark.parametrize(
    ("given", "size_bytes"),
    [
        (0, 0),
        (4096, 4096),
        ("0B", 0),
        ("1500B", 1500),
        ("2kB", 2_000),
        ("2KB", 2_000),
        ("2KiB", 2_048),
        ("10 MB", 10_000_000),
        ("64MiB", 64 * 2**20),
        ("1.5 GB", 1_500_000_000),
        ("0.5GiB", 2**29),
        ("2.01MB", 2_010_000),  # by way of a float it would be 2,009,999
        ("1.0001KiB", 1_024),
        ("64M", 64 * 2**20),
        ("64m", 64 * 2**20),
        ("512k", 512 * 2**10),
        ("1G", 2**30),
        ("64 mb", 64_000_000),
        ("64mib", 64 * 2**20),
    ],
)
def test_a_size_is_bytes_or_a_number_with_a_unit(given: object, size_bytes: int) -> None:
    assert parse_size("field", given) == size_bytes


def test_a_formatted_size_is_read_back_exactly() -> None:
    seed = 20
    chosen = random.Random(seed)
    sizes = [chosen.randrange(2 ** chosen.randrange(1, 43)) << chosen.choice((0, 10, 20)) for _ in range(1000)]
    for size_bytes in [0, 1, KIB, MIB, GIB, GIB + KIB, *sizes]:
        written = format_size(size_bytes)
        assert parse_size("field", written) == size_bytes, f"seed {seed}: {written}"


@pytest.mark.parametrize(
    "given",
    [
        *(
            "",
            "64",
            "64T",
            "64m b",
            "64 megabytes",
            "1TiB",
            "-1MiB",
            "+1MiB",
            "1e3B",
            "1,5GiB",
            ".5GiB",
            "1.GiB",
        ),
        *(" 1MiB", "1MiB ", "1  MiB", "1MiB\n", "0x10B", "nanB", "\u0663MiB", "9" * 5000 + "B", b"64MiB"),
        *(1.5, float("nan"), float("inf"), True, False, [], object()),
    ],
    ids=lambda given: repr(given)[:20],
)
def test_what_is_not_certainly_a_size_is_refused_with_an_example(given: object) -> None:
    with pytest.raises(SettingsError, match='^memory_limit=.* is not a size: .*"64MiB"') as refusal:
        settings_from(None, {"memory_limit": given})
    assert len(str(refusal.value)) < 250


def test_a_size_field_keeps_what_was_given_beside_the_number_it_stands_for() -> None:
    settings = Settings(
        memory_limit="64MiB", max_message_bytes="1 MB", max_file_length=KIB * 64, index_page_size="4KiB"
    )
    assert (settings.memory_limit, settings.memory_limit_bytes) == ("64MiB", 64 * 2**20)
    assert (settings.max_message_bytes, settings.max_message_size_bytes) == ("1 MB", 10**6)
    assert (settings.max_file_length, settings.max_file_length_bytes) == (2**16, 2**16)
    assert (settings.index_page_size, settings.index_page_size_bytes) == ("4KiB", 4096)


def test_the_memory_limit_is_a_quarter_of_the_memory_where_none_is_given() -> None:
    assert Settings().memory_limit_bytes == share_of_memory_bytes(0.25)


@pytest.mark.parametrize("percent", [1, 25, 70, 100])
def test_a_memory_limit_may_be_a_share_of_the_memory(percent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.dispatch.config.settings.share_of_memory_bytes", lambda share: int(2**40 * share))
    settings = Settings(memory_limit=f"{percent}%")
    assert (settings.memory_limit, settings.memory_limit_bytes) == (f"{percent}%", 2**40 * percent // 100)


@pytest.mark.parametrize(
    ("memory_limit", "cache"), [("4MiB", 512 * KIB), ("64MiB", 8 * MIB), ("256MiB", 32 * MIB), ("10GiB", 32 * MIB)]
)
def test_the_index_cache_is_an_eighth_of_the_memory_limit_and_at_most_32_mib(memory_limit: str, cache: int) -> None:
    assert Settings(memory_limit=memory_limit).index_cache_size_bytes == cache


SWITCHES = ("background", "use_vectored_io", "map_journal", "verify_on_open", "persistent_index")

ACCEPTED: list[tuple[str, object]] = [
    *(("broker_name", name) for name in ("b", "...", "broker-1.eu", "n" * 64)),
    *(("sync", mode) for mode in ("always", "interval", "never")),
    *((name, flag) for name in SWITCHES for flag in (True, False)),
    *(("policies", {pattern: DestinationPolicy()}) for pattern in (">", "*", "a.*.>", "a..b", "a b", "\u00e9.>")),
    *(("memory_limit", size) for size in ("4MiB", 4 * MIB, 2**50)),
    *(("max_message_bytes", size) for size in ("1KiB", "1GiB", GIB)),
    *(("max_file_length", size) for size in ("64KiB", "1GiB")),
    *(("max_checkpoint_adds", count) for count in (1, 10**9)),
    *(("index_transaction_adds", count) for count in (512, 10**9)),
    *(("sync_interval_seconds", seconds) for seconds in (0.001, 1, 1_000_000)),
    *(("lock_wait_seconds", seconds) for seconds in (0, 0.5, 1_000_000.0)),
    *(("index_page_size", 2**power) for power in range(9, 17)),
    *(("index_cache_size", size) for size in ("256KiB", "32MiB")),
]


@pytest.mark.parametrize(("name", "value"), ACCEPTED, ids=lambda part: repr(part)[:20])
def test_the_bounds_themselves_are_accepted(name: str, value: object) -> None:
    assert getattr(settings_from(None, {"memory_limit": "64MiB", name: value}), name) == value


REFUSED: list[tuple[str, object, str]] = [
    ("broker_name", "", "cannot be a directory"),
    ("broker_name", ".", "cannot be a directory"),
    ("broker_name", "..", "cannot be a directory"),
    ("broker_name", "a/b", "cannot be a directory"),
    ("broker_name", "a\\b", "cannot be a directory"),
    ("broker_name", "a\0b", "cannot be a directory"),
    ("broker_name", "a\nb", "cannot be a directory"),
    ("broker_name", "\ud800", "cannot be a directory"),
    ("broker_name", "n" * 65, "the most is 64"),
    ("broker_name", b"localhost", "must be a str"),
    ("broker_name", None, "must be a str"),
    ("sync", "sometimes", '"always" or "interval" or "never"'),
    ("sync", "ALWAYS", '"always" or "interval" or "never"'),
    ("sync", True, '"always" or "interval" or "never"'),
    ("sync", None, '"always" or "interval" or "never"'),
    ("on_missing_data_log", "ignore", '"refuse" or "report"'),
    ("on_missing_data_log", None, '"refuse" or "report"'),
    ("store_limit", "0%", "from 1% to 100%"),
    ("store_limit", "101%", "from 1% to 100%"),
    ("store_limit", "-1%", "is not a size"),
    ("store_limit", "80 %", "is not a size"),
    ("store_limit", 0.5, "is not a size"),
    ("store_limit", True, "is not a size"),
    ("store_limit", "1000KiB", "at least 1MiB"),
    *((name, value, "True or False") for name in SWITCHES for value in (1, "false", None)),
    ("policies", [], "must map patterns"),
    ("policies", None, "must map patterns"),
    ("policies", {"a": {}}, "'a' must have a DestinationPolicy, not dict"),
    ("policies", {"": DestinationPolicy()}, "a pattern must be a str"),
    ("policies", {1: DestinationPolicy()}, "a pattern must be a str"),
    ("policies", {"a.>.b": DestinationPolicy()}, "goes on behind"),
    ("policies", {"a*": DestinationPolicy()}, "must be whole words"),
    ("policies", {"a.b>": DestinationPolicy()}, "must be whole words"),
    ("admin", 1, "True or False"),
    ("archive_data_logs", 1, "True or False"),
    ("archive_data_logs", "true", "True or False"),
    ("archive_directory", "", "a non-empty path"),
    ("archive_directory", "a\0b", "a non-empty path"),
    ("archive_directory", b"archive", "a non-empty path"),
    ("record_trace", "", "a non-empty path"),
    ("background", 1, "True or False"),
    ("background", "false", "True or False"),
    ("background", None, "True or False"),
    ("memory_limit", 4 * MIB - 1, "at least 4MiB"),
    ("memory_limit", "1KiB", "at least 4MiB"),
    ("memory_limit", "0%", "from 1% to 100%"),
    ("memory_limit", "101%", "from 1% to 100%"),
    ("memory_limit", "2.5%", "is not a size"),
    ("memory_limit", 1 << 63, "at least 4MiB and at most 9223372036854775807B"),
    ("memory_limit", 0, "at least 4MiB"),
    ("memory_limit", -1, "at least 4MiB"),
    ("memory_limit", True, "is not a size"),
    ("memory_limit", 64.0 * MIB, "is not a size"),
    ("temp_limit", MIB - 1, "at least 1MiB"),
    ("temp_limit", "0%", "must be from 1% to 100%"),
    ("temp_limit", "101%", "must be from 1% to 100%"),
    ("temp_limit", None, "is not a size"),
    ("max_message_bytes", KIB - 1, "at least 1KiB and at most 1GiB"),
    ("max_message_bytes", GIB + 1, "at least 1KiB and at most 1GiB"),
    ("max_message_bytes", "2GiB", "at least 1KiB and at most 1GiB"),
    ("max_message_bytes", None, "is not a size"),
    ("max_file_length", 64 * KIB - 1, "at least 64KiB and at most 1GiB"),
    ("max_file_length", GIB + 1, "at least 64KiB and at most 1GiB"),
    ("max_file_length", None, "is not a size"),
    *(("index_transaction_adds", value, "at least 512") for value in (511, 0, -1, 4096.0, True, "4096", None)),
    ("max_checkpoint_adds", 0, "at least 1"),
    ("max_checkpoint_adds", -1, "at least 1"),
    ("max_checkpoint_adds", 1.0, "a whole number"),
    ("max_checkpoint_adds", True, "a whole number"),
    ("max_checkpoint_adds", "1000", "a whole number"),
    *(
        (name, value, "must be seconds as a number such as 2.5, from 0.001 to 1,000,000")
        for name in ("sync_interval_seconds", "checkpoint_interval_seconds", "cleanup_interval_seconds")
        for value in (0, 0.0001, -1, 1_000_001, float("nan"), float("inf"), True, "5", None)
    ),
    *(
        ("status_interval_seconds", value, "must be seconds as a number such as 2.5, from 1 to 1,000,000, or None")
        for value in (0, 0.999, -1, 1_000_001, float("nan"), True, "5")
    ),
    *(
        ("lock_wait_seconds", value, "must be seconds as a number such as 2.5, from 0 to 1,000,000")
        for value in (-0.1, 1_000_001, float("nan"), True, "5", None)
    ),
    ("index_page_size", 256, "at least 512B and at most 64KiB"),
    ("index_page_size", "128KiB", "at least 512B and at most 64KiB"),
    ("index_page_size", 5000, "a power of two"),
    ("index_page_size", "10 kB", "a power of two"),
    ("index_page_size", None, "is not a size"),
    ("index_cache_size", 256 * KIB - 1, "at least 256KiB"),
    ("index_cache_size", "32.1MiB", "at most half of memory_limit (64MiB): lower it, or raise memory_limit"),
    ("index_cache_size", True, "is not a size"),
]


@pytest.mark.parametrize(("name", "value", "reason"), REFUSED, ids=lambda part: repr(part)[:20])
def test_what_cannot_be_honoured_is_refused_by_name_value_and_reason(name: str, value: object, reason: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        settings_from(None, {"memory_limit": "64MiB", name: value})
    said = str(refusal.value)
    assert said.startswith(f"{name}={repr(value)[:10]}"), said
    assert reason in said
    assert "\n" not in said


def test_every_field_has_a_value_that_is_refused() -> None:
    assert {name for name, _, _ in REFUSED} == {entry.name for entry in dataclasses.fields(Settings) if entry.init}


def test_a_container_too_small_for_the_default_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.dispatch.config.settings.share_of_memory_bytes", lambda _: 3 * MIB)
    with pytest.raises(SettingsError, match="^memory_limit=3145728 must be at least 4MiB$"):
        Settings()


def test_fields_replace_those_of_the_given_settings_and_leave_them_unchanged() -> None:
    given = Settings(memory_limit="64MiB", sync="never")
    replaced = settings_from(given, {"memory_limit": "16MiB"})
    assert (replaced.memory_limit_bytes, replaced.index_cache_size_bytes, replaced.sync) == (16 * MIB, 2 * MIB, "never")
    assert (given.memory_limit_bytes, given.index_cache_size_bytes) == (64 * MIB, 8 * MIB)
    assert settings_from(given, {}) == given


def test_a_pair_of_fields_is_checked_together_when_one_is_replaced() -> None:
    given = Settings(memory_limit="64MiB", index_cache_size="16MiB")
    with pytest.raises(SettingsError, match="^index_cache_size='16MiB' must be at most half of memory_limit"):
        settings_from(given, {"memory_limit": "16MiB"})


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("memory_limits", "did you mean 'memory_limit'?"),
        ("memory_limit_bytes", "did you mean 'memory_limit'?"),
        ("max_file_size", "did you mean 'max_file_length'?"),
        ("brokerName", "did you mean 'broker_name'?"),
        ("zzz", "there are broker_name, sync, memory_limit,"),
    ],
)
def test_an_unknown_name_is_refused_with_the_closest_known_one(name: str, advice: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        settings_from(None, {name: 1})
    assert str(refusal.value).startswith(f"there is no setting {name!r}: {advice}")


def test_settings_of_another_type_are_refused() -> None:
    with pytest.raises(SettingsError, match="must be a Settings object, not dict"):
        settings_from({"memory_limit": "64MiB"}, {})  # type: ignore[arg-type]


def test_settings_cannot_be_changed_after_construction() -> None:
    settings = Settings(memory_limit="64MiB")
    change: Callable[[str, object], None] = settings.__setattr__
    for name in ("memory_limit", "memory_limit_bytes"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change(name, 1)


def test_settings_print_what_was_given() -> None:
    printed = repr(Settings(memory_limit="64MiB", sync="interval"))
    assert printed.startswith("Settings(broker_name='localhost', sync='interval', memory_limit='64MiB', ")
    assert printed.endswith(", index_page_size='16KiB', index_cache_size=None)")


def test_the_table_of_defaults_has_each_field_with_default_meaning_and_price() -> None:
    head, rule, *rows = defaults_table().splitlines()
    assert (head, rule) == ("| setting | default | meaning | the price |", "|---|---|---|---|")
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[0] for row in cells] == [f"`{entry.name}`" for entry in dataclasses.fields(Settings) if entry.init]
    for row in cells:
        assert len(row) == 4
        assert all(text.endswith(".") and len(text) > 20 for text in row[2:]), row
    defaults = {row[0]: row[1] for row in cells}
    assert defaults["`sync`"] == '`"always"`'
    assert defaults["`memory_limit`"] == "`None`"
    assert defaults["`max_checkpoint_adds`"] == "`131_072`"
    assert defaults["`background`"] == "`True`"


@pytest.mark.parametrize("again", [lambda settings: pickle.loads(pickle.dumps(settings)), copy.copy, copy.deepcopy])
def test_settings_survive_pickle_and_copy(again: Callable[[Settings], Settings]) -> None:
    settings = Settings(memory_limit="8MiB", policies={"orders.*": DestinationPolicy(max_messages=5)})
    found = again(settings)
    assert found == settings and found is not settings
    assert found.memory_limit_bytes == 8 * MIB and found.policies["orders.*"].max_messages == 5


def test_settings_become_a_dict_that_json_writes_and_their_policies_stay_frozen() -> None:
    settings = Settings(memory_limit="8MiB", policies={"orders.*": DestinationPolicy(prefetch=7)})
    as_dict = json.loads(json.dumps(dataclasses.asdict(settings)))
    assert as_dict["memory_limit"] == "8MiB" and as_dict["policies"]["orders.*"]["prefetch"] == 7
    policies: Any = settings.policies
    for change in (
        lambda: policies.update(a=1),
        lambda: policies.pop("orders.*"),
        lambda: policies.__setitem__("a", 1),
        lambda: policies.__delitem__("orders.*"),
        lambda: policies.__ior__({}),
        policies.clear,
        policies.popitem,
    ):
        with pytest.raises(TypeError, match="frozen"):
            change()
    assert list(settings.policies) == ["orders.*"]
