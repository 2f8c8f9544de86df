"""What stops a record: a full disk, the store's limit, a write stall; and what ends each of them."""

from __future__ import annotations

import errno

import pytest
from simulated_disk import SimulatedDisk

from forebay.store.disk.layout import JOURNAL
from forebay.store.errors import StoreFailed, StoreFull
from forebay.store.format.record import ACK, DROP, MESSAGE, RELOCATED, RETURN, TRANSACTIONAL
from forebay.store.journal.fullness import Fullness
from forebay.store.journal.reserve import DROPS_BYTES, DiskReserve

FILE_BYTES = 64 * 1024
FIRST_BYTES = 100


class Held:
    """A fullness on a simulated disk, and the journal's size that it is told."""

    def __init__(self, limit_bytes: int | None = None) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_directory(JOURNAL)
        self.journal_bytes = FIRST_BYTES
        reserve = DiskReserve(self.disk, FILE_BYTES)
        self.fullness = Fullness(
            self.disk,
            reserve,
            FILE_BYTES,
            limit_bytes,
            lambda: self.journal_bytes,
            lambda reason, _: StoreFailed(reason),
        )
        self.fullness.begin_data_log(FILE_BYTES, FIRST_BYTES, is_makeshift=False)

    def refuse_if_full(self, size: int, flags: int = 0, *, resumes: bool = False) -> None:
        try:
            self.fullness.refuse_if_full(size, flags, lambda: resumes)
        finally:
            self.fullness._check()


def test_nothing_stops_a_record_while_there_is_room() -> None:
    held = Held()
    held.refuse_if_full(500)
    held.fullness.refuse_stalled(0)
    assert held.fullness.is_admitting and not held.fullness.is_out_of_space and not held.fullness.is_short_of_space
    assert held.fullness.unchecked_end(FIRST_BYTES, 1, 500) == FILE_BYTES


def test_the_limit_refuses_what_adds_until_there_is_room_for_what_it_refused() -> None:
    held = Held(limit_bytes=1000)
    held.journal_bytes = 900
    with pytest.raises(StoreFull) as caught:
        held.refuse_if_full(200)
    assert (caught.value.limit, caught.value.available_bytes) == ("store_limit", 100)
    assert held.fullness.is_at_limit and held.fullness.is_short_of_space and not held.fullness.is_out_of_space
    held.fullness.note_space()
    assert held.fullness.is_at_limit
    held.journal_bytes = 800
    held.fullness.note_space()
    assert not held.fullness.is_at_limit


@pytest.mark.parametrize(("size", "flags"), [(200, RELOCATED), (1001, 0)], ids=["a copy", "above the whole limit"])
def test_what_is_no_send_that_could_come_later_says_nothing_of_the_limit(size: int, flags: int) -> None:
    held = Held(limit_bytes=1000)
    held.journal_bytes = 900
    with pytest.raises(StoreFull):
        held.refuse_if_full(size, flags)
    assert not held.fullness.is_at_limit


def test_appends_ask_again_where_the_limit_would_be_passed() -> None:
    held = Held(limit_bytes=1000)
    held.journal_bytes = 900 + FIRST_BYTES
    assert held.fullness.unchecked_end(FIRST_BYTES, 1, 500) == FIRST_BYTES
    held.journal_bytes = 300 + FIRST_BYTES
    assert held.fullness.unchecked_end(FIRST_BYTES, 1, 500) == 1000 - 300


def test_a_full_disk_refuses_what_adds_until_the_reserve_is_whole() -> None:
    held = Held()
    assert held.fullness.lend_reserve() and not held.fullness.lend_reserve()
    assert held.fullness.is_disk_full and held.fullness.unchecked_end(FIRST_BYTES, 1, 0) == 0
    with pytest.raises(StoreFull):
        held.refuse_if_full(10)
    assert held.fullness.has_disk_refused and not held.fullness.note_space()
    held.refuse_if_full(10, resumes=True)
    assert not held.fullness.has_disk_refused


def test_a_makeshift_data_log_keeps_half_for_acks_and_its_end_for_drops() -> None:
    held = Held()
    held.fullness.begin_data_log(FILE_BYTES // 2, FIRST_BYTES, is_makeshift=True)
    held.fullness._check()
    half, last = FILE_BYTES // 4, FILE_BYTES // 2 - DROPS_BYTES
    held.fullness.keep_space_for_acks(RETURN, 10, half - 10)
    with pytest.raises(StoreFull):
        held.fullness.keep_space_for_acks(RETURN, 11, half - 10)
    held.fullness.keep_space_for_acks(ACK, 10, half)
    assert held.fullness.is_beyond(ACK, last + 1, 5) and not held.fullness.is_beyond(ACK, last, 5)
    assert not held.fullness.is_beyond(DROP, FILE_BYTES // 2, 5)


def test_a_stall_refuses_messages_that_replace_none() -> None:
    held = Held()
    held.fullness.set_stall("the limit at hand")
    assert not held.fullness.is_admitting and held.fullness.unchecked_end(FIRST_BYTES, 1, 0) == 0
    for flags in (0, TRANSACTIONAL):
        with pytest.raises(StoreFull, match="the limit at hand"):
            held.fullness.refuse_stalled(flags)
    held.fullness.refuse_stalled(RELOCATED)
    with held.fullness.accepting_replacements():
        held.fullness.refuse_stalled(TRANSACTIONAL)
    held.fullness.set_stall(None)
    held.fullness.refuse_stalled(0)


def test_a_message_that_replaces_another_adds_nothing() -> None:
    held = Held()
    assert held.fullness.is_adding(MESSAGE) and not held.fullness.is_adding(ACK)
    with pytest.raises(ZeroDivisionError), held.fullness.accepting_replacements():
        assert not held.fullness.is_adding(MESSAGE)
        raise ZeroDivisionError
    assert held.fullness.is_adding(MESSAGE), "also after an error in the block"


def test_a_disk_is_full_until_the_reserve_is_whole_and_the_data_log_no_makeshift() -> None:
    held = Held()
    held.fullness.lend_reserve()
    held.disk.fail("preallocate", 1, errno.ENOSPC)
    assert not held.fullness.try_end() and held.fullness.is_disk_full
    assert held.fullness.try_end() and not held.fullness.is_disk_full
    held.fullness.begin_data_log(FILE_BYTES // 2, FIRST_BYTES, is_makeshift=True)
    assert held.fullness.try_end() and held.fullness.is_disk_full


def test_a_record_that_the_disk_refused_is_forgotten_once_there_is_room() -> None:
    held = Held()
    held.fullness.disk_refused()
    assert held.fullness.is_out_of_space and not held.fullness.is_disk_full
    assert held.fullness.note_space() and not held.fullness.is_out_of_space


def test_a_disk_that_fails_the_reserve_fails_the_journal() -> None:
    held = Held()
    held.fullness.lend_reserve()
    held.disk.fail("preallocate", 1, errno.EIO)
    with pytest.raises(StoreFailed, match="could not be made"):
        held.fullness.fill_reserve()


def test_a_broken_rule_is_found() -> None:
    held = Held()
    held.fullness.is_makeshift = True
    with pytest.raises(AssertionError):
        held.fullness._check()


def test_no_kind_is_beyond_an_empty_data_log() -> None:
    assert not any(Held().fullness.is_beyond(kind, FIRST_BYTES, 1) for kind in (MESSAGE, ACK, DROP))
