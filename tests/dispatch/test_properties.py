"""Properties: what the host keeps in the store is a MutableMapping, bounded, charged, and there after a crash."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import pytest
from closed_stores import verdict_of
from simulated_bay import SimulatedBay

from forebay import ArgumentError, Closed, PropertiesFull, SettingsError, StoreFull, TransactionError
from forebay.store.inspect.dump import dump


@pytest.fixture
def bay() -> SimulatedBay:
    return SimulatedBay(max_file_length="64KiB", memory_limit="8MiB")


def held_bytes(bay: SimulatedBay) -> int:
    return bay.bay.statistics().memory.holders["properties"]


def test_properties_are_a_mutable_mapping(bay: SimulatedBay) -> None:
    properties = bay.bay.properties
    assert isinstance(properties, MutableMapping) and not properties
    properties["b"] = b"1"
    properties.update({"a": bytearray(b"2")}, c=memoryview(b"3"))
    assert list(properties) == ["b", "a", "c"] and len(properties) == 3
    assert properties == {"a": b"2", "b": b"1", "c": b"3"} == dict(properties.items())
    assert properties.pop("b") == b"1" and properties.pop("b", None) is None
    assert properties.setdefault("a", b"other") == b"2" and properties.setdefault("new", b"4") == b"4"
    assert properties.popitem() == ("new", b"4")
    del properties["c"]
    assert "c" not in properties and properties.get("c", b"none") == b"none"
    properties.clear()
    assert dict(properties) == {}
    for missing in (lambda: properties["a"], lambda: properties.pop("a"), properties.popitem):
        with pytest.raises(KeyError):
            missing()


def test_iteration_goes_over_a_snapshot(bay: SimulatedBay) -> None:
    properties = bay.bay.properties
    properties.update(a=b"1", b=b"2")
    for name, value in properties.items():
        del properties[name]
        properties[f"{name}{value.decode()}"] = value
    assert dict(properties) == {"a1": b"1", "b2": b"2"}


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_properties_survive_a_close_and_a_kill(bay: SimulatedBay, is_index_lost: bool) -> None:
    bay.bay.properties.update(a=b"1", gone=b"soon")
    bay.reopen()
    bay.bay.properties.update({"ß/ü": bytes(1000)})
    del bay.bay.properties["gone"]
    bay.crash(is_index_lost=is_index_lost)
    assert dict(bay.bay.properties) == {"a": b"1", "ß/ü": bytes(1000)}
    bay.audit()


def test_properties_outlive_the_data_log_that_they_were_written_to(bay: SimulatedBay) -> None:
    bay.bay.properties["cursor"] = b"1"
    for _ in range(20):
        bay.queue().send(bytes(10_000))
    bay.queue().purge()
    assert 1 in bay.bay.cleanup().deleted
    bay.crash(is_index_lost=True)
    assert dict(bay.bay.properties) == {"cursor": b"1"}


def test_change_of_properties_is_durable_when_it_returns_as_acks_are() -> None:
    bay = SimulatedBay(sync="always")
    syncs = bay.disk.calls["sync"]
    bay.bay.properties.update(a=b"1", b=b"2")
    assert bay.disk.calls["sync"] == syncs + 1
    del bay.bay.properties["a"]
    assert bay.disk.calls["sync"] == syncs + 2


def test_properties_may_take_a_quarter_of_a_data_log_and_the_error_says_so(bay: SimulatedBay) -> None:
    properties = bay.bay.properties
    properties["a"] = bytes(10_000)
    with pytest.raises(PropertiesFull, match="hold 10260 of the 16384 bytes.*delete some") as full:
        properties["b"] = bytes(7_000)
    assert isinstance(full.value, StoreFull)
    assert (full.value.needed_bytes, full.value.available_bytes, full.value.limit_bytes) == (7_260, 6_124, 16_384)
    assert dict(properties) == {"a": bytes(10_000)}
    properties["a"] = bytes(12_000)  # what it replaces makes room
    bay.audit()
    properties.clear()
    assert held_bytes(bay) == 0
    bay.audit()


def test_properties_count_under_the_memory_limit_and_are_named_where_memory_is_explained(bay: SimulatedBay) -> None:
    before = bay.bay.statistics().memory.held_bytes
    bay.bay.properties["name"] = bytes(500)
    assert held_bytes(bay) == 500 + 4 * len("name") + 256
    assert bay.bay.statistics().memory.held_bytes == before + held_bytes(bay)
    [cause] = [cause for cause in bay.bay.explain().causes if cause.holder == "properties"]
    assert cause.bytes == held_bytes(bay) and "del bay.properties[name]" in cause.frees
    bay.reopen()
    bay.audit()
    assert held_bytes(bay) == 772


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        (5, b"", ArgumentError),
        ("", b"", SettingsError),
        ("\ud800", b"", SettingsError),
        ("x" * 1025, b"", SettingsError),
        ("a", "text", ArgumentError),
        ("a", None, ArgumentError),
    ],
)
def test_wrong_name_or_value_is_refused_and_changes_nothing(
    bay: SimulatedBay, name: Any, value: Any, error: type[Exception]
) -> None:
    end = bay.journal_end()
    with pytest.raises(error):
        bay.bay.properties[name] = value
    with pytest.raises(ArgumentError):
        bay.bay.properties.update(7)
    assert bay.journal_end() == end and not bay.bay.properties


def test_properties_of_a_closed_store_raise_closed(bay: SimulatedBay) -> None:
    properties = bay.bay.properties
    bay.bay.close()
    for call in (lambda: properties["a"], lambda: list(properties), lambda: properties.update(a=b"")):
        with pytest.raises(Closed):
            call()


# In a transaction


def test_what_a_transaction_sets_is_seen_with_the_commit_and_not_before(bay: SimulatedBay) -> None:
    properties = bay.bay.properties
    properties.update(a=b"1", b=b"2")
    with bay.bay.transaction() as transaction:
        transaction.properties["c"] = b"3"
        del transaction.properties["a"]
        assert dict(transaction.properties) == {"b": b"2", "c": b"3"} and "a" not in transaction.properties
        assert dict(properties) == {"a": b"1", "b": b"2"}
    assert dict(properties) == {"b": b"2", "c": b"3"}
    bay.audit()
    bay.crash(is_index_lost=True)
    assert dict(bay.bay.properties) == {"b": b"2", "c": b"3"}


def test_rolled_back_transaction_leaves_properties_and_memory_as_they_were(bay: SimulatedBay) -> None:
    bay.bay.properties["a"] = b"1"
    before = held_bytes(bay)
    transaction = bay.bay.transaction()
    transaction.properties.update(a=b"2", b=bytes(500))
    assert held_bytes(bay) > before
    transaction.rollback()
    assert dict(bay.bay.properties) == {"a": b"1"} and held_bytes(bay) == before
    with pytest.raises(TransactionError):
        transaction.properties["a"] = b"3"
    bay.audit()


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("is_index_lost", [False, True])
def test_prepared_changes_survive_a_kill_and_count_with_the_commit(
    bay: SimulatedBay, commits: bool, is_index_lost: bool
) -> None:
    bay.bay.properties.update(a=b"1", b=b"2")
    transaction = bay.bay.transaction()
    bay.queue().send(b"message", transaction=transaction)
    del transaction.properties["a"]
    transaction.properties["c"] = b"3"
    transaction.prepare(b"xid")
    bay.crash(is_index_lost=is_index_lost)
    bay.audit()
    assert dict(bay.bay.properties) == {"a": b"1", "b": b"2"}
    [prepared] = bay.bay.prepared()
    (prepared.commit if commits else prepared.rollback)()
    expected = {"b": b"2", "c": b"3"} if commits else {"a": b"1", "b": b"2"}
    assert dict(bay.bay.properties) == expected
    bay.audit()
    bay.crash(is_index_lost=True)
    assert dict(bay.bay.properties) == expected and bay.queue().depth == int(commits)


def test_what_transactions_without_an_outcome_set_counts_so_that_no_commit_finds_the_table_full(
    bay: SimulatedBay,
) -> None:
    transaction = bay.bay.transaction()
    transaction.properties["a"] = bytes(10_000)
    with pytest.raises(PropertiesFull):
        bay.bay.properties["b"] = bytes(10_000)
    with pytest.raises(PropertiesFull):
        transaction.properties["b"] = bytes(10_000)
    transaction.commit()
    assert dict(bay.bay.properties) == {"a": bytes(10_000)}
    bay.audit()


# Offline


def test_dump_names_properties_and_their_sizes_and_verify_finds_nothing(bay: SimulatedBay) -> None:
    bay.bay.properties.update(a=b"secret", b=b"")
    with bay.bay.transaction() as transaction:
        del transaction.properties["b"]
    bay.bay.close()
    rows = list(dump(bay.disk))
    assert [row["properties"] for row in rows if row["kind"] == "properties"] == [{"a": 6, "b": 0}]
    assert [row["properties"] for row in rows if row["kind"] == "commit"] == [{"b": None}]
    assert "secret" not in str(rows)
    assert not verdict_of(bay.disk).findings
