"""verify_on_open: damage that a replay would not meet is refused at open, with its place and nothing changed."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from message_stores import OpenStore
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

import forebay
from forebay import JournalCorrupt, Message
from forebay.store.disk.layout import data_log_name
from forebay.store.journal.data_log import DATA_LOG_HEADER_BYTES

BODY = b"1 kg tea" * 100


class Kept:
    """Four data logs and more, closed cleanly: nothing is left to replay."""

    def __init__(self) -> None:
        self.disk, self.metadata = SimulatedDisk(), SimulatedMetadataStore()
        opened = OpenStore(self.disk, self.metadata)
        for _ in range(20):
            opened.add(BODY, BODY)
        opened.remove(3)
        opened.store.close()
        self.journal = {name: content for name, content in self.disk.image().items() if name.startswith("journal/")}

    def damaged(self, data_log: int, content: bytes) -> SimulatedDisk:
        disk = self.disk.crash_process()
        file = disk.open(data_log_name(data_log))
        file.truncate(len(content))
        file.append(content)
        file.sync()
        file.close()
        return disk

    def open(self, disk: SimulatedDisk, *, verifies_all: bool = True) -> OpenStore:
        return OpenStore(disk, SimulatedMetadataStore(self.metadata.history[-1]), verifies_all=verifies_all)


@pytest.fixture(scope="module")
def kept() -> Kept:
    return Kept()


def test_every_damaged_byte_of_an_old_data_log_is_refused_with_its_data_log_and_nothing_is_changed(kept: Kept) -> None:
    content = kept.journal[data_log_name(2)]
    random = Random(5)
    for offset in [
        *range(DATA_LOG_HEADER_BYTES, DATA_LOG_HEADER_BYTES + 300, 7),
        *random.sample(range(len(content)), 60),
    ]:
        changed = bytearray(content)
        changed[offset] ^= 1 << random.randrange(8)
        disk = kept.damaged(2, bytes(changed))
        before = disk.image()
        with pytest.raises(JournalCorrupt) as refusal:
            kept.open(disk)
        assert refusal.value.data_log == 2 and refusal.value.offset <= offset
        journal = {name: found for name, found in disk.image().items() if name.startswith("journal/")}
        assert journal == {name: found for name, found in before.items() if name.startswith("journal/")}


def test_without_it_the_damage_of_a_body_shows_when_the_message_is_loaded(kept: Kept) -> None:
    changed = bytearray(kept.journal[data_log_name(2)])
    changed[1000] ^= 1
    opened = kept.open(kept.damaged(2, bytes(changed)), verifies_all=False)
    with pytest.raises(AssertionError):
        opened.pending()  # asserts that every message can be read


@pytest.mark.parametrize("kept_bytes", [0, 20, DATA_LOG_HEADER_BYTES, 1000])
def test_an_old_data_log_that_was_cut_is_refused(kept: Kept, kept_bytes: int) -> None:
    with pytest.raises(JournalCorrupt) as refusal:
        kept.open(kept.damaged(2, kept.journal[data_log_name(2)][:kept_bytes]))
    assert refusal.value.data_log == 2


def test_a_whole_journal_and_a_torn_tail_are_accepted(kept: Kept) -> None:
    opened = kept.open(kept.disk.crash_process())
    assert len(opened.pending()) == 39
    opened.add(BODY)
    disk = opened.disk
    assert isinstance(disk, SimulatedDisk)
    killed = disk.crash_process()
    name = data_log_name(opened.store.journal.data_log)
    killed.open(name).truncate(opened.store.journal.offset - 10)
    again = kept.open(killed)
    assert again.report.truncated_bytes > 0
    assert len(again.pending()) == 39


def test_dropped_data_logs_that_are_still_there_are_not_looked_at(kept: Kept) -> None:
    """A crash between the drop record and the deletion leaves them, and nobody needs them."""
    disk, metadata = SimulatedDisk(), SimulatedMetadataStore()
    opened = OpenStore(disk, metadata)
    for _ in range(20):
        opened.add(BODY, BODY)
    opened.remove(0, 30)
    before = disk.crash_process()
    deleted = opened.store.cleanup.run().deleted
    assert deleted
    left = disk.crash_process()
    for data_log in deleted:
        content = bytearray(before.image()[data_log_name(data_log)])
        content[500] ^= 1
        left.open(data_log_name(data_log), create=True).append(bytes(content))
    again = OpenStore(left, SimulatedMetadataStore(metadata.history[-1]), verifies_all=True)
    assert len(again.pending()) == 9


def test_forebay_open_verifies_when_told(tmp_path: Path) -> None:
    with forebay.open(tmp_path, sync="never", max_file_length="64KiB") as bay:
        bay.queue("orders").send_many(Message(bytes(1000)) for _ in range(300))
    path = tmp_path / "localhost" / data_log_name(2)
    content = bytearray(path.read_bytes())
    content[30_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(JournalCorrupt, match="data-2.log at offset"):
        forebay.open(tmp_path, verify_on_open=True)
    with forebay.open(tmp_path) as bay:
        assert bay.queue("orders").depth == 300
