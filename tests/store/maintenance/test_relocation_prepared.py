"""Relocation of what prepared transactions sent: while one waits it pins no disk, and no crash doubles it."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from compiled import interpreted
from manual_clock import ManualClock
from simulated_bay import SimulatedBay
from staged_stores import roll, small_bay
from test_crash import POWER_CUTS, _same
from test_relocation_kinds import fill

from forebay import Forebay, Message, Settings, StoreFull, TransactionError
from forebay.dispatch.engine.engine import Engine
from forebay.store.disk.simulated_disk import SimulatedDisk
from forebay.store.metadata.sqlite import MemoryMetadataStore

Outcome = dict[str, Counter[bytes]]
"""Queue -> bodies that are there once every prepared transaction is committed."""


def prepare(bay: SimulatedBay, xid: bytes, *bodies: bytes) -> None:
    transaction = bay.bay.transaction()
    bay.queue("held").send_many([Message(body) for body in bodies], transaction=transaction)
    transaction.prepare(xid)


def move_out_of(bay: Forebay, data_log: int) -> None:
    """Copy what is live in a data log, whether that is worth it or not."""
    store = bay._engine.store
    work = store.relocation
    with bay._engine.lock:
        work._source = work._opened(data_log, False, 1 << 30) if data_log in store.index.uses else None
    while work._source is not None and work.step():
        pass


def committed(bay: Forebay) -> Outcome:
    """Commit what is prepared, and take everything there is."""
    for transaction in bay.prepared():
        transaction.commit()
    found: Outcome = {}
    for name in ("held", "other"):
        with bay.queue(name).subscribe(prefetch=100_000) as consumer:
            bodies: Counter[bytes] = Counter()
            while taken := consumer.take(1000):
                bodies.update(delivery.body for delivery in taken)
            found[name] = bodies
    return found


def test_prepared_transaction_in_each_data_log_pins_none() -> None:
    bay = small_bay()
    for n in range(12):
        prepare(bay, b"%d" % n, b"%d" % n, b"second of %d" % n)
        fill(bay)
    report = bay.bay.cleanup()
    assert report.relocated_messages == 24 and len(report.remaining) <= 3
    bay.check()
    bay.crash(is_index_lost=True)
    assert [transaction.xid for transaction in bay.bay.prepared()] == [b"%d" % n for n in range(12)]
    everything = [body for n in range(12) for body in (b"%d" % n, b"second of %d" % n)]
    assert list(committed(bay.bay)["held"].elements()) == everything
    bay.check()


def test_transaction_with_a_message_in_each_data_log_pins_none_and_keeps_its_order() -> None:
    bay = small_bay()
    transaction = bay.bay.transaction()
    for n in range(12):
        bay.queue("held").send(b"%d" % n, transaction=transaction)
        with bay.engine.lock:
            transaction._write_all()
        fill(bay)
    transaction.prepare(b"x")
    fill(bay)
    assert len(bay.bay.cleanup().remaining) <= 3
    transaction.commit()
    with bay.queue("held").subscribe() as consumer:
        assert [delivery.body for delivery in consumer.take(20)] == [b"%d" % n for n in range(12)]
    bay.check()


@pytest.mark.parametrize("is_open", [True, False])
def test_journal_stays_within_twice_what_is_live_with_prepared_transactions(is_open: bool) -> None:
    """Live are their messages too. An open transaction keeps its own data logs."""
    bay = small_bay()
    kept = bay.bay.transaction()
    if is_open:
        bay.queue("held").send(b"open", transaction=kept)
        with bay.engine.lock:
            kept._write_all()
    for n in range(20):
        prepare(bay, b"%d" % n, bytes(3000))
        fill(bay)
    bay.bay.cleanup()
    store = bay.engine.store
    live_bytes = sum(store.transactions.prepared_bytes.values())
    assert live_bytes > 60_000
    assert store.statistics().journal_bytes <= 2 * live_bytes + (3 + is_open) * 65_536
    bay.check()


def test_what_is_rolled_back_after_a_move_never_was() -> None:
    bay = small_bay()
    for n in range(6):
        prepare(bay, b"%d" % n, b"%d" % n)
        fill(bay)
    assert bay.bay.cleanup().relocated_messages == 6
    for transaction in bay.bay.prepared()[::2]:
        transaction.rollback()
    bay.crash(is_index_lost=True)
    assert list(committed(bay.bay)["held"].elements()) == [b"1", b"3", b"5"]


def test_delays_and_acks_of_a_prepared_transaction_are_the_same_after_a_move() -> None:
    bay = small_bay()
    bay.queue("held").send(b"first")
    transaction = bay.bay.transaction()
    with bay.queue("held").subscribe() as consumer:
        consumer.ack(consumer.take(1), transaction=transaction)
        bay.queue("held").send(b"later", delay=60.0, transaction=transaction)
        transaction.prepare(b"x")
    roll(bay)
    move_out_of(bay.bay, 1)
    roll(bay)
    assert 1 in bay.bay.cleanup().deleted
    bay.crash(is_index_lost=True)
    (found,) = bay.bay.prepared()
    found.commit()
    with bay.queue("held").subscribe() as consumer:
        assert not consumer.take(1)
        bay.clock.advance(61.0)
        assert [delivery.body for delivery in consumer.take(5)] == [b"later"]
    bay.check()


@interpreted("replaces what compiled code has linked")
def test_an_outcome_that_comes_while_its_slices_are_copied_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    bay = small_bay()
    prepare(bay, b"x", b"a")
    prepare(bay, b"y", b"b")
    roll(bay)
    moving = bay.engine.store.relocation._prepared_moving
    copy = moving._copy

    def ended(branch, *arguments):  # type: ignore[no-untyped-def]
        position = copy(branch, *arguments)
        if branch.xid == b"x":
            bay.bay.prepared()[0].commit()
        return position

    monkeypatch.setattr(moving, "_copy", ended)
    move_out_of(bay.bay, 1)
    assert [transaction.xid for transaction in bay.bay.prepared()] == [b"y"]
    bay.crash(is_index_lost=True)
    assert list(committed(bay.bay)["held"].elements()) == [b"a", b"b"]
    bay.check()


def test_slice_that_does_not_verify_stays_with_its_data_log() -> None:
    bay = small_bay()
    prepare(bay, b"x", b"precious" * 10)
    roll(bay)
    name = "journal/data-1.log"
    bay.disk.flip_bit(name, bay.disk.image()[name].index(b"precious"), 0)
    move_out_of(bay.bay, 1)
    roll(bay)
    assert 1 in bay.bay.cleanup().remaining
    (kept,) = bay.bay.prepared()
    assert kept.xid == b"x"


def test_transaction_whose_record_would_be_half_of_what_comes_free_stays() -> None:
    bay = small_bay()
    transaction = bay.bay.transaction()
    for n in range(1500):
        bay.queue("held").send(b"%d" % n, transaction=transaction)
        with bay.engine.lock:
            transaction._write_all()
    transaction.prepare(b"x")
    for _ in range(8):
        fill(bay)
    before = bay.engine.store.relocation.appended_bytes
    bay.bay.cleanup()
    assert not bay.engine.store.relocation.appended_bytes - before
    bay.crash(is_index_lost=True)
    assert list(committed(bay.bay)["held"].elements()) == [b"%d" % n for n in range(1500)]


def test_full_store_leaves_a_prepared_transaction_where_it_is() -> None:
    bay = small_bay(store_limit="1MiB")
    prepare(bay, b"x", bytes(20_000))
    roll(bay)
    with pytest.raises(StoreFull):
        while True:
            bay.queue("other").send(bytes(20_000))
    move_out_of(bay.bay, 1)
    assert not bay.engine.store.relocation.messages
    (transaction,) = bay.bay.prepared()
    transaction.commit()
    with pytest.raises(TransactionError):
        transaction.commit()
    assert bay.queue("held").depth == 1
    bay.check()


# Power cuts


class Life:
    """One seed's store with prepared transactions, crashed at each call of the disk while they are moved and ended."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk()
        self.metadata = MemoryMetadataStore()
        self.settings = Settings(
            background=False, memory_limit="8MiB", index_cache_size="256KiB", max_file_length="64KiB", sync="always"
        )
        self.bay = self.opened(self.disk, self.metadata)
        self.states = self.number = 0
        self.plain: Outcome = {"held": Counter(), "other": Counter()}
        """Pending, by no transaction that waits."""
        self.waiting: dict[bytes, Outcome] = {}
        """By xid: what its commit adds."""
        self.ending: bytes | None = None
        """The one whose outcome is being written."""

    def opened(self, disk: SimulatedDisk, metadata: MemoryMetadataStore) -> Forebay:
        return Forebay(Engine(disk, lambda store_id, cache_bytes: metadata, self.settings, ManualClock()), None)

    def prepare(self) -> None:
        self.number += 1
        xid = b"%d" % self.number
        sent: Outcome = {"held": Counter(), "other": Counter()}
        transaction = self.bay.transaction()
        for _ in range(self.random.randint(1, 3)):
            name = self.random.choice(("held", "other"))
            bodies = [
                b"%d.%d:" % (self.number, n) + bytes(self.random.choice((10, 500, 9000)))
                for n in range(self.random.choice((1, 1, 5)))
            ]
            self.bay.queue(name).send_many([Message(body) for body in bodies], transaction=transaction)
            sent[name].update(bodies)
            with self.bay._engine.lock:
                transaction._write_all()
                if self.random.random() < 0.4:
                    self.bay._engine.store.journal.roll()
        transaction.prepare(xid)
        self.waiting[xid] = sent

    def fill(self) -> None:
        body = b"f%d:" % self.random.getrandbits(60) + bytes(self.random.choice((100, 20_000)))
        self.bay.queue("other").send(body)
        self.plain["other"][body] += 1

    def crash(self, call: str, name: str) -> None:
        self.states += 1
        if self.random.random() < 0.2:
            bay = self.opened(self.disk.crash_process(), _same(self.metadata))
        else:
            image = self.disk.crash_power(self.random, self.random.choice(POWER_CUTS))
            metadata = self.random.choice((self.metadata.crash(self.random), MemoryMetadataStore()))
            bay = self.opened(image, metadata)
        xids = {transaction.xid for transaction in bay.prepared()}
        assert xids | {self.ending} == self.waiting.keys() | {self.ending}
        if self.random.random() < 0.3:
            bay.cleanup()
        found = committed(bay)
        allowed = [self.after(xids | {self.ending}), self.after(xids - {self.ending})]
        assert found in [{name: +bodies for name, bodies in outcome.items()} for outcome in allowed]
        bay._engine.store.index._check()

    def after(self, xids: set[bytes | None]) -> Outcome:
        found = {name: Counter(bodies) for name, bodies in self.plain.items()}
        for xid, sent in self.waiting.items():
            if xid in xids:
                for name, bodies in sent.items():
                    found[name].update(bodies)
        return found

    def end(self) -> None:
        transaction = self.random.choice(self.bay.prepared())
        self.ending = transaction.xid
        assert self.ending is not None
        if self.random.random() < 0.5:
            transaction.rollback()
            del self.waiting[self.ending]
        else:
            transaction.commit()
            for name, bodies in self.waiting.pop(self.ending).items():
                self.plain[name].update(bodies)
        self.ending = None

    def run(self) -> None:
        for _ in range(3):
            for _ in range(self.random.randint(2, 4)):
                self.prepare()
                self.fill()
                if self.random.random() < 0.6:
                    with self.bay._engine.lock:
                        self.bay._engine.store.journal.roll()
            self.bay.checkpoint()
            self.metadata.synced()
            self.disk.on_call = self.crash
            self._relocate()
            self.end()
            self._relocate()
            self.bay.cleanup()
            self.disk.on_call = None

    def _relocate(self) -> None:
        """Move what is in some data logs, whether that is worth it or not."""
        store = self.bay._engine.store
        for data_log in self.random.sample(sealed := sorted(store.cleaner.sealed()), min(len(sealed), 3)):
            move_out_of(self.bay, data_log)


@pytest.mark.parametrize("seed", range(10))
def test_power_cut_at_any_call_while_prepared_transactions_are_moved(seed: int) -> None:
    life = Life(seed)
    life.run()
    assert life.states > 20
    assert life.bay._engine.store.relocation.messages
