"""The fleet report of the examples: it finds what was hidden in the fleet, and names what it did not read."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import forebay

build_fleet = pytest.importorskip("forebay.pipeline.examples.build_fleet")
fleet_report = pytest.importorskip("forebay.pipeline.examples.fleet_report")

NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One healthy broker, one with a stuck message here and there and a subscription far behind, one damaged."""
    directory = tmp_path_factory.mktemp("fleet")
    for name, is_ill in (("healthy", False), ("ill", True), ("damaged", False)):
        random = Random(3)
        build_fleet.load_the_past(directory, name, random, NOW_MS)
        with forebay.open(directory, broker_name=name, **build_fleet.SETTINGS) as bay:
            build_fleet.send_and_settle(bay, random, is_stuck=is_ill, is_lagging=is_ill)
            if not is_ill and name == "healthy":
                bay.cleanup()
    build_fleet.damage(directory / "damaged")
    return directory


def test_the_report_finds_who_pins_disk_and_who_lags(fleet: Path) -> None:
    found = fleet_report.ask(str(fleet), "local", "")
    held = fleet_report.held_bytes(found)
    assert sum(held["ill"].values()) > 3 * sum(held["healthy"].values()) > 0
    assert fleet_report.pinned(found)[0][0] == "ill"
    first = fleet_report.lagging(found)[0]
    assert (first["broker"], first["subscription"]) == ("ill", "audit")
    assert sum(held["ill"].values()) == sum(size for (broker, _), size in found.sizes.items() if broker == "ill")


def test_what_was_not_read_is_named_and_counts_nowhere(fleet: Path) -> None:
    found = fleet_report.ask(str(fleet), "local", "")
    assert [broker for broker, _ in found.not_read] == ["damaged"]
    assert not fleet_report.held_bytes(found)["damaged"]
    page = fleet_report.page(found, [Path("disk.svg"), Path("lag.svg"), Path("age.svg")])
    assert "no figure below counts" in page and "data-1.log at offset" in page


def test_names_on_the_page_are_text() -> None:
    row = {"broker": "<b>", "data_log": 1, "reason": "ack", "holder": "0:<script>", "messages": 1}
    found = fleet_report.Fleet({("<b>", 1): 1 << 20}, [row], [])
    page = fleet_report.page(found, [Path("a.svg"), Path("b.svg"), Path("c.svg")])
    assert "<script>" not in page and "&lt;script&gt;" in page
