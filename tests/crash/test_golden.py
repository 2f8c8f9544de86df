"""Stores that earlier versions of the format wrote stay readable, byte for byte, with their index and without."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from golden_store import (
    EXPECTED,
    GOLDEN,
    HEADERS,
    PAGE_BYTES,
    PROPERTIES,
    SEED,
    golden,
    open_golden,
    pending_in,
    write_golden,
)
from journals import all_records

from forebay.store.disk.disk import OsDisk
from forebay.store.disk.layout import INDEX_DIRECTORY, JOURNAL, STATE_DIRECTORY
from forebay.store.format.message_properties import decode_properties
from forebay.store.format.record import KIND_NAMES, LOST
from forebay.store.journal.data_log import FORMAT_VERSION
from forebay.store.metadata.sqlite import SqliteMetadataStore
from forebay.testing import ManualClock

VERSIONS = sorted(int(path.name.removeprefix("version-")) for path in GOLDEN.iterdir())


def files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / JOURNAL).iterdir()}


@pytest.fixture(params=VERSIONS, ids=lambda version: f"version {version}")
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a golden store."""
    shutil.copytree(golden(request.param), tmp_path / "store")
    return tmp_path / "store"


def expected(root: Path) -> dict[str, list[list[object]]]:
    content: dict[str, list[list[object]]] = json.loads((root / EXPECTED).read_text(encoding="utf-8"))
    return content


def test_this_version_has_a_golden_store() -> None:
    assert FORMAT_VERSION in VERSIONS


@pytest.mark.parametrize("missing", [None, INDEX_DIRECTORY, STATE_DIRECTORY])
def test_golden_store_holds_what_it_held(root: Path, missing: str | None) -> None:
    if missing is not None:
        shutil.rmtree(root / missing)
    before = files(root)
    opened = open_golden(root, ManualClock(SEED + 1))
    assert opened.report.index_rebuilt == (missing is not None) and opened.report.truncated_bytes == 0
    assert opened.report.clean == (missing is None)
    pending = {lane: [list(message) for message in messages] for lane, messages in pending_in(opened).items()}
    assert pending == expected(root)
    opened.check()
    opened.store.close()
    assert before.items() <= files(root).items(), "what an earlier process wrote is never written to again"


def test_headers_of_the_golden_store_are_what_was_sent(root: Path) -> None:
    [_, properties, body, timestamp] = expected(root)["orders:4"][-1]
    assert (body, timestamp) == (b"all headers".hex(), 1_700_000_010_000)
    assert decode_properties(bytes.fromhex(str(properties))) == (HEADERS, "foreign id")


@pytest.mark.parametrize("missing", [None, INDEX_DIRECTORY])
def test_golden_store_of_version_3_has_its_properties_and_those_that_wait_for_a_commit(
    tmp_path: Path, missing: str | None
) -> None:
    root = shutil.copytree(golden(3), tmp_path / "store")
    if missing is not None:
        shutil.rmtree(root / missing)
    store = open_golden(root, ManualClock(SEED + 1)).store
    assert store.host_properties.values == PROPERTIES
    [branch] = store.branches.prepared
    assert branch.properties == {"prepared": b"waits", "empty": None}
    store.close()


def test_golden_journal_shows_every_kind_of_record_that_is_written() -> None:
    kinds = {record.header.kind for _, record in all_records(OsDisk(str(golden(FORMAT_VERSION))))}
    assert kinds == KIND_NAMES.keys() - {LOST}


def test_this_version_still_writes_its_golden_journal_and_index(tmp_path: Path) -> None:
    """If this fails, the format has changed. It needs a new number, and the old one must stay readable."""
    write_golden(tmp_path / "again")
    assert files(tmp_path / "again") == files(golden(FORMAT_VERSION))
    shutil.copytree(golden(FORMAT_VERSION), tmp_path / "kept")
    stores = [
        SqliteMetadataStore(
            str(tmp_path / name / INDEX_DIRECTORY), ManualClock(SEED).random_bytes(16), PAGE_BYTES, 64 * 1024
        )
        for name in ("again", "kept")
    ]
    snapshot, kept = [store.load() for store in stores]
    assert snapshot is not None and snapshot == kept
    for lane, runs in snapshot.blocks.items():
        for block in (block for first, last in runs for block in range(first, last + 1)):
            assert stores[0].read_block(lane, block) == stores[1].read_block(lane, block)
    for store in stores:
        store.close()
    marks = [(path / STATE_DIRECTORY / "mark").read_bytes() for path in (tmp_path / "again", golden(FORMAT_VERSION))]
    assert marks[0] == marks[1]
