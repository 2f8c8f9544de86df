"""The benchmark of memory, at sizes that say nothing of speed: the same steps for everybody, and a picture of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from compiled import interpreted

from forebay.benchmarks.bench_memory import main
from forebay.benchmarks.memory.lru import lru_hit_ratio
from forebay.benchmarks.memory.passes import curve_cost, depth, overflow, play, resizes
from forebay.benchmarks.memory.traffic import BEGIN, SEND, TAKE, TRAFFICS, Step, Traffic
from forebay.cache.accounting.charge import OVERHEAD_BYTES

KIB, MIB = 1024, 1024 * 1024
TINY = 0.01

FAKE_RUN = """#!/bin/sh
echo "$1 N=$N M=$M $JOPT" >> "$(dirname "$0")/calls"
[ ! -e "$(dirname "$0")/broken" ] || exit 3
for case in W7-fill W7-drain W8-backlog W8-consume-at-depth W8-send+consume-at-depth; do
    case $case in $1*) echo '{"case":"'$case'","rate":1.0}'; echo '{"case":"'$case'","rate":'$N'7.0}' ;; esac
done
"""


def each(traffic: Traffic) -> str:
    return traffic.name


@pytest.mark.parametrize("traffic", TRAFFICS, ids=each)
def test_steps_are_the_same_each_time_and_take_only_what_is_there(traffic: Traffic) -> None:
    steps = list(traffic.steps(TINY))
    assert steps == list(traffic.steps(TINY))
    assert [step.kind for step in steps].count(BEGIN) == 1
    waiting = [0] * len(traffic.consumers)
    for kind, who, count in steps:
        if kind == SEND:
            for consumer, destination in enumerate(traffic.consumers):
                waiting[consumer] += count * (destination == who)
        elif kind == TAKE:
            waiting[who] -= count
            assert waiting[who] >= 0


@interpreted("replaces what compiled code has linked")
@pytest.mark.parametrize("traffic", TRAFFICS, ids=each)
def test_a_traffic_is_played_whole(traffic: Traffic, tmp_path: Path) -> None:
    steps = list(traffic.steps(TINY))
    facts = play(traffic, tmp_path, 4 * MIB, TINY)
    measured = steps[steps.index(Step(BEGIN, 0, 0)) :]
    assert facts["deliveries"] == sum(step.messages for step in measured if step.kind == TAKE) > 0
    assert 0 <= facts["waited"] <= facts["deliveries"] and facts["seconds"] > 0


def queue_of(*steps: Step) -> Traffic:
    def played(part: float) -> Iterator[Step]:
        return iter(steps)

    return replace(TRAFFICS[0], destinations=1, consumers=(0,), steps=played)


def test_a_plain_lru_cache_has_what_fits_and_of_a_deeper_queue_nothing() -> None:
    shallow = queue_of(Step(SEND, 0, 10), Step(BEGIN, 0, 0), Step(TAKE, 0, 10))
    charge = KIB + OVERHEAD_BYTES
    assert lru_hit_ratio(shallow, 10 * charge, 1.0) == 1.0
    assert lru_hit_ratio(shallow, 4 * charge, 1.0) == 0.4, "the newest ones"
    rounds = [step for _ in range(20) for step in (Step(TAKE, 0, 1), Step(SEND, 0, 1))]
    standing = queue_of(Step(SEND, 0, 10), Step(BEGIN, 0, 0), *rounds)
    assert lru_hit_ratio(standing, 4 * charge, 1.0) == 0.0


def test_what_all_subscribers_have_acknowledged_leaves_the_lru_cache() -> None:
    topic = replace(
        queue_of(Step(SEND, 0, 2), Step(BEGIN, 0, 0), *[Step(TAKE, n, 2) for n in (0, 1)]), consumers=(0, 0)
    )
    assert lru_hit_ratio(topic, 2 * (KIB + OVERHEAD_BYTES), 1.0) == 1.0


def test_other_passes_move_what_they_say(tmp_path: Path) -> None:
    passes = {
        "overflow": overflow(tmp_path / "overflow", 4 * MIB, 1024),
        "depth": depth(tmp_path / "depth", 4 * MIB, 2048, 512),
        "resizes": resizes(tmp_path / "resizes", (4 * MIB, 8 * MIB), 1),
        "curve": curve_cost(tmp_path / "curve", 4 * MIB, 256, 2, 512),
    }
    assert passes["overflow"]["drain"] > 0 and passes["depth"]["path"] > 0 and passes["curve"]["with_us"] > 0
    assert passes["resizes"]["moved"] > 0 and passes["resizes"]["down_seconds"] > 0


@pytest.fixture
def fake_kahadb(tmp_path: Path) -> Path:
    """A folder whose run.sh says for each case that its second pass had the rate N, followed by a 7."""
    folder = tmp_path / "peer"
    folder.mkdir()
    (folder / "run.sh").write_text(FAKE_RUN, encoding="utf-8")
    return folder


@interpreted("replaces what compiled code has linked")
def test_report_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_kahadb: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "memory.svg"
    options = ["--limits", "4MiB,8MiB", "--part", "0.01", "--dir", str(tmp_path), "--kahadb", str(fake_kahadb)]
    assert main([*options, "--only", "traffics", "peers", "--svg", str(picture)]) == 0
    told = capsys.readouterr().out
    assert str(tmp_path) not in told
    for traffic in TRAFFICS:
        assert f"**{traffic.name}**: {traffic.sentence}" in told
    assert told.count("| 4MiB | ") == len(TRAFFICS) + 2
    assert "| 8MiB | KahaDB | 20,007 | 20,007 | 20,007 | 20,007 |" in told
    assert (fake_kahadb / "calls").read_text().splitlines()[:2] == ["W7 N=2000 M=0 -Dmem=4", "W8 N=2000 M=500 -Dmem=4"]
    drawn = picture.read_text()
    assert drawn.startswith("<?xml") and all(traffic.name in drawn for traffic in TRAFFICS)


def test_a_peer_that_fails_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_kahadb: Path
) -> None:
    (fake_kahadb / "broken").touch()
    options = ["--only", "peers", "--limits", "4MiB", "--part", "0.01"]
    assert main([*options, "--dir", str(tmp_path), "--kahadb", str(fake_kahadb)]) == 1
    assert "exit code 3" in capsys.readouterr().err
