"""Relocation of what prepared transactions sent: while one waits it keeps no disk, and no crash doubles it."""

from __future__ import annotations

import errno
from collections import Counter

import pytest
from compiled import interpreted
from crashing import CrashExplorer, Left
from inside import inside
from relocating import steps
from sampling import sampled
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore
from staged_stores import fill, roll, settle, small_bay

from forebay import Forebay, Message, StoreFailed, StoreFull, TransactionError
from forebay.store.format.record import ACK_BYTES, ONE_BYTES

Outcome = dict[str, Counter[bytes]]
"""Queue -> bodies that are there once every prepared transaction is committed."""


def prepare(bay: SimulatedBay, xid: bytes, *bodies: bytes) -> None:
    transaction = bay.bay.transaction()
    bay.queue("held").send_many([Message(body) for body in bodies], transaction=transaction)
    transaction.prepare(xid)


def move_out_of(bay: Forebay, data_log: int) -> None:
    """Copy what is live in a data log, whether that is worth it or not."""
    store = inside(bay).store
    if data_log in store.index.data_log_uses:
        all(steps(store.cleanup.relocation, inside(bay).lock, data_log, is_naming=False, freed_bytes=1 << 30))


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
        with bay.lock:
            transaction.write_gathered()
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
        with bay.lock:
            kept.write_gathered()
    for n in range(20):
        prepare(bay, b"%d" % n, bytes(3000))
        fill(bay)
    bay.bay.cleanup()
    store = bay.store
    live_bytes = sum(store.branches.prepared_bytes.values())
    assert live_bytes > 60_000
    assert store.disk_use.statistics().journal_bytes <= 2 * live_bytes + (3 + is_open) * 65_536
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
    moving = bay.relocation._prepared_moving
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
        with bay.lock:
            transaction.write_gathered()
    transaction.prepare(b"x")
    for _ in range(8):
        fill(bay)
    before = bay.relocation.appended_bytes
    bay.bay.cleanup()
    assert not bay.relocation.appended_bytes - before
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
    assert not bay.relocation.messages
    (transaction,) = bay.bay.prepared()
    transaction.commit()
    with pytest.raises(TransactionError):
        transaction.commit()
    assert bay.queue("held").depth == 1
    bay.check()


def test_a_move_whose_record_finds_no_space_loses_nothing_of_the_transaction() -> None:
    bay = small_bay()
    prepare(bay, b"x", b"a")
    roll(bay)
    bay.disk.fail("write", 2, errno.ENOSPC)  # the prepare record behind the copy
    move_out_of(bay.bay, 1)
    bay.disk.cure()
    assert bay.store.branches.data_logs() == {repr(b"x"): {1}}
    bay.bay.checkpoint()
    assert 1 in bay.store.cleanup.remover.remove_data_logs().remaining
    bay.crash(is_index_lost=True)
    assert committed(bay.bay)["held"] == Counter([b"a"])
    bay.check()


def test_a_data_log_whose_end_is_interrupted_while_a_transaction_is_moved_takes_no_ack_behind_it() -> None:
    bay = small_bay()
    bay.queue("other").send(b"first")
    settle(bay, "other", 1)
    prepare(bay, b"x", b"a")
    [placed] = bay.store.branches.prepared[0]
    roll(bay)
    free_bytes = (64 << 10) - bay.journal.offset
    # There is room for the copy and an ack, and not for the prepare record.
    bay.queue("other").send(bytes(free_bytes - ONE_BYTES - placed.length - ACK_BYTES))
    consumer = bay.queue("other").subscribe()
    taken = consumer.take(1)

    def interrupt(call: str, name: str) -> None:
        if call == "truncate":
            raise KeyboardInterrupt

    bay.disk.on_call = interrupt
    with pytest.raises((KeyboardInterrupt, StoreFailed)):
        move_out_of(bay.bay, 1)
    bay.disk.on_call = None
    with pytest.raises(StoreFailed):
        consumer.ack(taken)


# Power cuts


class MovedPrepared(CrashExplorer):
    """Prepared transactions, crashed at each call of the disk while they are moved and ended."""

    kill_share = 0.2
    index_lost_share = 0.5
    cuts_synced = True

    def __init__(self, seed: int) -> None:
        super().__init__(seed, memory_limit="8MiB", policies={})
        self.disk = SimulatedDisk()
        self.metadata = SimulatedMetadataStore()
        self.bay = self.open(self.disk, self.metadata)
        self.number = 0
        # Pending, by no transaction that waits.
        self.plain: Outcome = {"held": Counter(), "other": Counter()}
        # By xid: what its commit adds.
        self.waiting: dict[bytes, Outcome] = {}
        # The one whose outcome is being written.
        self.ending: bytes | None = None

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
            with inside(self.bay).lock:
                transaction.write_gathered()
                if self.random.random() < 0.4:
                    inside(self.bay).journal.roll()
        transaction.prepare(xid)
        self.waiting[xid] = sent

    def fill(self) -> None:
        body = b"f%d:" % self.random.getrandbits(60) + bytes(self.random.choice((100, 20_000)))
        self.bay.queue("other").send(body)
        self.plain["other"][body] += 1

    def look(self, left: Left) -> None:
        bay = self.open(left.disk, left.metadata)
        xids = {transaction.xid for transaction in bay.prepared()}
        assert xids | {self.ending} == self.waiting.keys() | {self.ending}
        if self.random.random() < 0.3:
            bay.cleanup()
        found = committed(bay)
        allowed = [self.after(xids | {self.ending}), self.after(xids - {self.ending})]
        assert found in [{name: +bodies for name, bodies in outcome.items()} for outcome in allowed]
        inside(bay).index._check()

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

    def explore(self) -> None:
        for _ in range(3):
            for _ in range(self.random.randint(2, 4)):
                self.prepare()
                self.fill()
                if self.random.random() < 0.6:
                    with inside(self.bay).lock:
                        inside(self.bay).journal.roll()
            self.bay.checkpoint()
            self.metadata.synced()
            with self.crashing(self.disk, lambda: self.metadata, self.look):
                self._relocate()
                self.end()
                self._relocate()
                self.bay.cleanup()

    def _relocate(self) -> None:
        """Move what is in some data logs, whether that is worth it or not."""
        store = inside(self.bay).store
        for data_log in self.random.sample(sealed := sorted(store.cleanup.remover.relocatable()), min(len(sealed), 3)):
            move_out_of(self.bay, data_log)


@pytest.mark.parametrize("seed", sampled(range(10), 4))
def test_power_cut_at_any_call_while_prepared_transactions_are_moved(seed: int) -> None:
    life = MovedPrepared(seed).run()
    assert life.states > 20
    assert inside(life.bay).relocation.messages
