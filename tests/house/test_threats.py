"""Promises of THREAT_MODEL.md that no other test shows: modes of files, names that are no paths, silent logs."""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path
from random import Random

import pytest
from inside import open_forebay
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

import forebay
from forebay import ForebayError, Message
from forebay.store.disk.layout import data_log_name
from forebay.testing import ManualClock

ROOT = Path(__file__).resolve().parents[2]
SECRET = "secret-of-a-body"
HEADER = "secret-of-a-header"
NAMES = ("../escape", "/etc/passwd", "..", "C:\\x", "a/../../b", "name with a very long tail " * 9)


def test_everything_below_the_directory_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        for _ in range(2):
            with forebay.open(tmp_path / "data", max_file_length="64KiB", memory_limit="4MiB") as bay:
                bay.queue("orders").send_many(Message(bytes(1000)) for _ in range(200))
                bay.checkpoint()
                found = [path for path in (tmp_path / "data").rglob("*")]
                modes = {path: stat.S_IMODE(path.stat().st_mode) for path in found}
            torn = max((tmp_path / "data" / "localhost" / "journal").iterdir(), key=lambda path: path.stat().st_mtime)
            os.truncate(torn, 10)
            (tmp_path / "data" / "localhost" / "kr-store" / "state" / "mark").unlink()
    finally:
        os.umask(before)
    assert any("reserve" in path.name for path in modes) and any("quarantine" in str(path) for path in modes)
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


def test_name_of_a_queue_is_never_a_path(tmp_path: Path) -> None:
    with forebay.open(tmp_path / "data", max_file_length="64KiB", memory_limit="4MiB") as bay:
        for name in NAMES:
            bay.queue(name).send(b"x")
        assert bay.destinations() == sorted(NAMES)
        found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    journal = r"/journal(/(data-\d+\.log|reserve-[12]))?"
    state = r"/kr-store(/data(/places\.db[-a-z]*)?|/state(/(mark|synced))?)?"
    files = f"data(/localhost(/lock|{journal}|{state})?)?"
    assert all(re.fullmatch(files, name) for name in found), found


@pytest.mark.parametrize("seed", range(30))
def test_no_log_line_and_no_error_of_a_damaged_store_holds_a_body_or_a_header(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    random = Random(seed)
    bay = SimulatedBay(max_file_length="64KiB")
    for n in range(100):
        bay.queue().send(f"{n} {SECRET}".encode() * 9, headers={"h": f"{n} {HEADER}"})
    with bay.queue().subscribe() as consumer:
        consumer.ack(consumer.take(30))
    bay.bay.close()
    said: list[str] = []
    with caplog.at_level(logging.DEBUG):
        for mode in ("refuse", "report"):
            disk = bay.disk.crash_process()
            for _ in range(10):
                disk.flip_bit(data_log_name(1), random.randrange(64, 15_000), random.randrange(8))
            said += life(disk, mode)
    text = "\n".join(said) + caplog.text
    assert "data-1.log" in text and SECRET not in text and HEADER not in text


def life(disk: SimulatedDisk, mode: str) -> list[str]:
    """Opens, takes with and without a selector, and closes; returns what it said when it raised."""
    settings = forebay.Settings(
        background=False,
        memory_limit="4MiB",
        max_file_length="64KiB",
        on_missing_data_log=mode,  # type: ignore[arg-type]
    )
    said = []
    try:
        bay = open_forebay(disk, SimulatedMetadataStore(), settings, ManualClock(1))
        for selector in (None, "h LIKE '%x'"):
            for name in bay.destinations():
                with bay.queue(name).subscribe(selector=selector) as consumer:
                    said += [repr(delivery) for delivery in consumer.take(1000)]
        bay.step()
        said += [repr(bay.recovery), repr(bay.statistics())]
        bay.close()
    except ForebayError as error:
        said += [str(error), repr(error)]
    return said


def test_threat_model_names_only_tests_and_files_that_exist() -> None:
    text = (ROOT / "THREAT_MODEL.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`((?:store|cache|console|dispatch|pages|tests)/[a-z_/]+\.py)`", text))
    assert len(names) > 15 and all((ROOT / name).exists() for name in names)
