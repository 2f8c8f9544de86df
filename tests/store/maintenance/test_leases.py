"""A lease keeps what its reader has not read, until it expires, and never against the store's limit."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from errno import EACCES, EMFILE

import pytest
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk
from staged_stores import fill, newest, roll, send, settle, small_bay

from forebay import Message, SettingsError
from forebay.store.inspect.read_only import open_read_only
from forebay.store.maintenance.leases import LEASE_FILES_MAX, LEASES, Lease, LeaseReader, read_leases, write_lease

SECOND_MS = 1000


def consumed(**fields: object) -> SimulatedBay:
    """Four data logs of which nothing is needed, and the newest."""
    simulated = small_bay(**fields)
    for _ in range(4):
        send(simulated, "orders", b"tea")
        settle(simulated, "orders", 1)
        roll(simulated)
    return simulated


def leased(simulated: SimulatedBay, data_log: int, seconds: float = 60.0, name: str = "audit") -> None:
    expires_ms = simulated.clock.time_ms() + int(seconds * SECOND_MS)
    write_lease(simulated.disk, Lease(name, data_log, 64, expires_ms))


def end_lease(simulated: SimulatedBay) -> None:
    """The file of the reader's lease is removed."""
    simulated.disk.remove(f"{LEASES}/lease-audit")


def remaining(simulated: SimulatedBay) -> set[int]:
    return set(simulated.bay.cleanup().remaining)


def test_what_a_reader_has_not_read_stays_until_it_goes_on() -> None:
    simulated = consumed()
    leased(simulated, 2)
    assert remaining(simulated) == {2, 3, 4, newest(simulated)}
    leased(simulated, 4)
    assert remaining(simulated) == {4, newest(simulated)}
    end_lease(simulated)
    assert remaining(simulated) == {newest(simulated)}


def test_lease_ends_at_its_time() -> None:
    simulated = consumed()
    leased(simulated, 2, seconds=10)
    assert 2 in remaining(simulated)
    simulated.clock.advance(11)
    assert remaining(simulated) == {newest(simulated)}


def test_lease_does_not_outrank_the_limit_of_the_store() -> None:
    simulated = small_bay(store_limit=1 << 20)
    leased(simulated, 1)
    kept = 0
    for _ in range(40):
        simulated.queue("orders").send_many(Message(bytes(1000)) for _ in range(60))
        settle(simulated, "orders", 60)
        kept = max(kept, len(remaining(simulated)))
    assert kept > 8


def test_the_earliest_of_several_leases_counts() -> None:
    simulated = consumed()
    leased(simulated, 4, name="late")
    leased(simulated, 3, name="early")
    assert remaining(simulated) == {3, 4, newest(simulated)}


def test_explain_names_the_lease_for_the_owner_and_from_outside() -> None:
    simulated = consumed()
    leased(simulated, 3)
    simulated.bay.cleanup()
    [cause] = simulated.bay.explain(3).causes
    assert (cause.reason, cause.holder) == ("lease", "lease audit")
    assert "lease audit keeps it" in simulated.bay.explain(3).sentence
    assert "the reader of lease audit" in cause.frees
    now_ms = simulated.clock.time_ms()
    reasons = simulated.store.data_log_retention.reasons()
    assert open_read_only(simulated.disk, now_ms).retention_reasons.of(3) == reasons.of(3)
    assert open_read_only(simulated.disk, now_ms + 61 * SECOND_MS).retention_reasons.of(3) == []


def test_kept_data_logs_are_not_relocated() -> None:
    simulated = small_bay()
    for n in range(12):
        simulated.queue("stuck").send(b"stuck %d" % n)
        simulated.queue("orders").send_many(Message(bytes(1000)) for _ in range(40))
        settle(simulated, "orders", 40)
        roll(simulated)
    leased(simulated, 1)
    simulated.bay.cleanup()
    assert len(remaining(simulated)) > 12
    end_lease(simulated)
    simulated.bay.cleanup()
    assert len(remaining(simulated)) <= 4


def asks_for_cleanup(simulated: SimulatedBay) -> bool:
    """Let relocation look at the sizes once more; return whether it asks for a cleanup."""
    simulated.clock.advance(1)
    simulated.relocation.run_due(simulated.clock.monotonic(), simulated.store.checkpointer.checkpoint)
    return simulated.store.cleanup.take_request()


def test_no_cleanup_is_asked_for_while_a_lease_keeps_all_that_it_would_delete() -> None:
    simulated = small_bay()
    for _ in range(12):
        fill(simulated)
    assert asks_for_cleanup(simulated)
    leased(simulated, 1)
    assert len(remaining(simulated)) > 12
    assert not asks_for_cleanup(simulated)
    leased(simulated, 3)
    assert min(remaining(simulated)) == 3
    fill(simulated)
    assert not asks_for_cleanup(simulated)
    end_lease(simulated)
    assert remaining(simulated) == {newest(simulated)}
    for _ in range(12):
        fill(simulated)
    assert asks_for_cleanup(simulated)


def test_cleanup_is_asked_for_again_once_the_store_has_no_room_for_leases() -> None:
    simulated = small_bay(store_limit=1 << 20)
    leased(simulated, 1)
    for _ in range(12):
        fill(simulated)
    assert 1 in remaining(simulated) and not asks_for_cleanup(simulated)
    while not simulated.journal.fullness.is_short_of_space:
        fill(simulated)
    assert asks_for_cleanup(simulated)
    assert 1 not in remaining(simulated)


def test_why_leases_cannot_be_read_is_logged_once_a_cause(caplog: pytest.LogCaptureFixture) -> None:
    causes: list[int | None] = [EMFILE, EMFILE, EACCES, EACCES, None, EACCES]

    class Refusing(SimulatedDisk):
        def list(self, name: str) -> list[str]:
            if causes[0] is not None:
                raise OSError(causes[0], os.strerror(causes[0]))
            return super().list(name)

    reader = LeaseReader(Refusing())
    told: list[int] = []
    while causes:
        found = reader.read(0)
        assert bool(found) == (causes[0] is not None), "all is kept where nothing can be read"
        told.append(len(caplog.records))
        causes.pop(0)
    assert told == [1, 1, 2, 2, 2, 3]


@pytest.mark.parametrize("content", [b"", b"x" * 28, b"FBLEASE1" + bytes(20), bytes(1000)])
def test_what_is_no_lease_keeps_nothing(content: bytes) -> None:
    simulated = consumed()
    simulated.disk.make_directory(LEASES)
    file = simulated.disk.open(f"{LEASES}/lease-audit", create=True)
    file.append(content)
    file.close()
    assert read_leases(simulated.disk, 0) == []
    assert remaining(simulated) == {newest(simulated)}


def test_power_cut_leaves_the_old_lease_or_the_new_one() -> None:
    disk = SimulatedDisk()
    disk.make_directory("")
    old, new = Lease("audit", 1, 64, 10), Lease("audit", 2, 64, 20)
    write_lease(disk, old)
    states: list[SimulatedDisk] = []

    def cut(call: str, name: str) -> None:
        states.extend(disk.every_power_cut())

    disk.on_call = cut
    write_lease(disk, new)
    disk.on_call = None
    found = [read_leases(state, 0) for state in states]
    assert len(found) > 10
    assert all(leases in ([old], [new]) for leases in found)
    assert all(read_leases(state, 0) == [new] for state in disk.every_power_cut())


@pytest.mark.parametrize("name", ["", "a/b", "..", "a" * 65, "a b"])
def test_name_that_is_no_file_is_refused(name: str) -> None:
    if name == "..":
        write_lease(disk := SimulatedDisk(), Lease(name, 1, 64, 9))
        assert read_leases(disk, 0) == [Lease(name, 1, 64, 9)]  # its file is called lease-..
        return
    with pytest.raises(SettingsError, match="lease="):
        write_lease(SimulatedDisk(), Lease(name, 1, 64, 1))


def test_where_leases_cannot_be_listed_every_data_log_is_kept() -> None:
    disk = SimulatedDisk()
    write_lease(disk, Lease("reader", 5, 0, 2_000))
    disk.fail("list", 1, errno.EIO)
    assert [lease.data_log for lease in read_leases(disk, 1_000)] == [1]
    assert [lease.data_log for lease in read_leases(disk, 1_000)] == [5]


def with_files(disk: SimulatedDisk, names: Iterable[str]) -> None:
    disk.make_directory(LEASES)
    for name in names:
        disk.open(f"{LEASES}/{name}", create=True).close()


def test_no_file_that_is_no_lease_hides_one() -> None:
    disk, live = SimulatedDisk(), Lease("z", 5, 64, 2_000)
    with_files(disk, (f"a-file-{n}" for n in range(LEASE_FILES_MAX + 1)))
    write_lease(disk, live)
    assert read_leases(disk, 1_000) == [live]


def test_no_expired_lease_hides_one() -> None:
    disk, live = SimulatedDisk(), Lease("z", 5, 64, 2_000)
    for n in range(300):
        write_lease(disk, Lease(f"a{n}", 1, 64, 1_000))
    write_lease(disk, live)
    assert read_leases(disk, 1_000) == [live]


def test_where_there_are_too_many_leases_to_read_everything_is_kept_and_a_warning_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, live = SimulatedDisk(), Lease("z", 5, 64, 2_000)
    write_lease(disk, live)
    with_files(disk, (f"lease-a{n}" for n in range(LEASE_FILES_MAX)))
    reader = LeaseReader(disk)
    assert [lease.data_log for lease in reader.read(1_000) + reader.read(1_000)] == [1, 1]
    assert [record.getMessage() for record in caplog.records] == [
        f"leases/ cannot be read (it has more than {LEASE_FILES_MAX} files of leases): no data log is discarded"
    ]
    disk.remove(f"{LEASES}/lease-a0")
    assert reader.read(1_000) == [live]
