"""tmp-storage against a plain dict: random operations, on a disk that fails and an account that refuses."""

from __future__ import annotations

import errno
from random import Random

import pytest
from sampling import sampled
from tmp_storages import TIMESTAMP, Spilling

from forebay.store.errors import SpillFailed, StoreFull
from forebay.store.tmp import storage as tmp_storage
from forebay.store.tmp import tmp_files
from forebay.store.tmp.spilled_message import SpilledMessage

OWNERS = (1, 2, 3, 4)
SEQUENCES = 400
FAILING = ("write", "create", "remove", "truncate", "read", "open", "make_directory")


class Model:
    """What every owner should hold, and the storage that should do the same."""

    def __init__(self, random: Random) -> None:
        self.random = random
        limit_bytes = random.choice((20_000, 100_000))
        self.spilling = Spilling(limit_bytes=limit_bytes, max_file_bytes=random.choice((2_000, 1 << 20)))
        self.storage = self.spilling.storage
        # By owner and sequence, the number of the spill and the message.
        self.held: dict[int, dict[int, tuple[int, SpilledMessage]]] = {owner: {} for owner in OWNERS}
        self.spills = 0
        self.is_failing = False
        self.refused = self.spilled = self.rewritten = 0

    def spill(self) -> None:
        random = self.random
        owners = random.sample(OWNERS, random.choice((1, 1, 2, 3, 4)))
        is_split = random.random() < 0.4
        join = set.intersection if is_split else set.union
        taken = join(*(set(self.held[owner]) for owner in owners))
        if random.random() < 0.6:
            first = max(taken, default=-1) + 1
            chosen = list(range(first, first + random.choice((1, 1, 5, 40))))
        else:
            free = [n for n in range(SEQUENCES) if n not in taken]
            chosen = sorted(random.sample(free, min(len(free), random.choice((0, 1, 5, 40)))))
        size = random.choice((0, 10, 200))
        messages = [
            (n, random.randbytes(random.choice((0, 9))), random.randbytes(random.randint(0, size)), TIMESTAMP + n)
            for n in chosen
        ]
        parts = {owner: set(chosen) for owner in owners}
        held: list[int] | None = None
        if is_split:
            lacking = {n: [owner for owner in owners if n not in self.held[owner]] for n in chosen}
            given = {n: random.sample(found, random.randint(1, len(found))) for n, found in lacking.items()}
            parts = {owner: {n for n in chosen if owner in given[n]} for owner in owners}
            owners = [owner for owner in owners if parts[owner]]
            held = [sum(1 << at for at, n in enumerate(chosen) if n in parts[owner]) for owner in owners]
        before, held_bytes = self.storage.statistics, self.spilling.ledger.held_bytes
        try:
            self.storage.spill(owners, messages, held)
        except (StoreFull, SpillFailed):
            self.refused += 1
            assert self.storage.statistics.messages == before.messages
            assert self.is_failing or (self.storage.statistics.bytes, self.spilling.ledger.held_bytes) == (
                before.bytes,
                held_bytes,
            )
            return
        self.spills += 1
        self.spilled += len(messages)
        for owner in owners:
            kept = [message for message in messages if message[0] in parts[owner]]
            self.held[owner].update((message[0], (self.spills, message)) for message in kept)

    def remove(self) -> None:
        random = self.random
        owner = random.choice(OWNERS)
        held = sorted(self.held[owner])
        if held and random.random() < 0.6:
            first, last = 0, held[min(len(held) - 1, random.choice((0, 3, 50)))]
        else:
            first, last = sorted((random.randrange(SEQUENCES), random.randrange(SEQUENCES)))
            last = random.choice((first, min(last, first + 20), last))
        gone = [n for n in held if first <= n <= last]
        assert self.storage.remove(owner, first, last) == len(gone)
        for n in gone:
            del self.held[owner][n]

    def drop(self) -> None:
        owner = self.random.choice(OWNERS)
        assert self.storage.remove_owner(owner) == len(self.held[owner])
        self.held[owner].clear()

    def compact(self) -> None:
        self.rewritten += self.storage.compact() is not None

    def read(self) -> None:
        random = self.random
        owner = random.choice(OWNERS)
        edges = sorted(random.sample(range(2 * SEQUENCES), 2 * random.randint(1, 4)))
        runs = [(0, 1 << 40)] if random.random() < 0.3 else list(zip(edges[::2], edges[1::2], strict=True))
        found, unreadable = self.spilling.read(owner, *runs)
        failed = {sequence for sequence, _ in unreadable}
        assert self.is_failing or not failed
        wanted = [n for first, last in runs for n in sorted(self.held[owner]) if first <= n <= last]
        assert failed <= set(wanted)
        assert found == [self.held[owner][n][1] for n in wanted if n not in failed]

    def limited_read(self) -> None:
        random = self.random
        owner = random.choice(OWNERS)
        most, most_bytes = random.choice((1, 7, 100)), random.choice((0, 300, 1 << 20))
        plan = self.storage.plan(owner, [(0, 1 << 40)], most_messages=most, most_bytes=most_bytes)
        wanted: list[int] = []
        size = 0
        for n in sorted(self.held[owner]):
            _, properties, body, _ = self.held[owner][n][1]
            if wanted and (len(wanted) == most or size + len(properties) + len(body) > most_bytes):
                break
            wanted.append(n)
            size += len(properties) + len(body)
        assert [n for region in plan.regions for n, _, _ in region.messages] == wanted
        assert (plan.messages, plan.content_bytes) == (len(wanted), size)
        assert plan.last_sequence == (wanted[-1] if wanted else -1)

    def trouble(self) -> None:
        random = self.random
        self.is_failing = True
        if random.random() < 0.2:
            self.spilling.ledger.limit_bytes = self.spilling.ledger.held_bytes + random.choice((0, 500, 5_000))
            return
        self.spilling.disk.fail(
            random.choice(FAILING),
            random.randint(1, 3),
            random.choice((errno.ENOSPC, errno.EIO)),
            sticky=random.random() < 0.3,
            written_bytes=random.choice((0, 1, 30, 300)),
        )

    def cure(self) -> None:
        self.spilling.disk.cure()
        self.spilling.ledger.limit_bytes = 1 << 40
        self.is_failing = False

    def check(self) -> None:
        self.storage._check()
        assert self.spilling.ledger.held_bytes == self.storage.charge_bytes
        assert sum(self.spilling.files().values()) <= self.storage.statistics.bytes <= self.spilling.limit_bytes
        stored = {(spill, n) for held in self.held.values() for n, (spill, _) in held.items()}
        assert self.storage.statistics.messages == len(stored)


def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tmp_storage, "CHUNK_MESSAGES_MAX", 16)
    monkeypatch.setattr(tmp_storage, "REWRITE_STEP_BYTES", 300)
    for module in (tmp_files, tmp_storage):
        monkeypatch.setattr(module, "BATCH_BYTES_MAX", 1_000)


@pytest.mark.parametrize("seed", sampled(range(40), 16))
def test_random_operations_do_what_a_dict_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    if seed % 4:
        small_chunks(monkeypatch)
    model = Model(random)
    operations = (model.spill, model.remove, model.read, model.limited_read, model.compact, model.drop)
    with_trouble = seed % 2 == 1
    for _ in range(400):
        if with_trouble and random.random() < 0.05:
            model.trouble()
        if with_trouble and random.random() < 0.1:
            model.cure()
        random.choices(operations, (8, 8, 4, 2, 6, 0.3))[0]()
        model.check()
    model.cure()
    for owner in OWNERS:
        assert model.spilling.all_of(owner) == [message for _, (_, message) in sorted(model.held[owner].items())]
        model.storage.remove_owner(owner)
    model.storage.compact()
    assert model.spilling.files() == {}
    assert model.storage.statistics.bytes == model.spilling.ledger.held_bytes == 0
    assert model.spilled > 200


def test_the_model_meets_what_it_is_there_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spills are refused and files rewritten: else the test above proves less than it seems."""
    small_chunks(monkeypatch)
    refused = rewritten = 0
    for seed in range(6):
        model = Model(Random(seed))
        for _ in range(400):
            model.random.choices((model.spill, model.remove, model.compact), (3, 3, 2))[0]()
        refused += model.refused
        rewritten += model.rewritten
    assert refused > 20 and rewritten > 20
