"""Results of the load test: field names that others read, pages that stand alone, comparisons that do not guess."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from html import unescape
from itertools import combinations
from math import comb
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from forebay.__main__ import main
from forebay.benchmarks.load import comparison
from forebay.benchmarks.load.comparison import BETTER, SAME, TOO_FEW, WORSE, compare
from forebay.benchmarks.load.evidence import Check
from forebay.benchmarks.load.latency import DELAY, END_TO_END, PUBLISH, Latency
from forebay.benchmarks.load.page import page
from forebay.benchmarks.load.result import Run, Sample
from forebay.benchmarks.load.scenario import ConsumerPlan, Scenario
from forebay.dispatch.config.sizes import KIB, MIB
from forebay.pages.rendering import STYLE_SHEET

LATENCY = Latency(2000.0, (1000, 2000, 3000, 4000, 5000, 6000), 7000)
LATENCIES = {PUBLISH: LATENCY, DELAY: LATENCY, END_TO_END: LATENCY}


def sample(seconds: float, spilled_bytes: int, latencies: Mapping[str, Latency]) -> Sample:
    return Sample(seconds, "flow", 100.0, 50.0, 50, 5 * MIB, 8 * MIB, 9 * MIB, spilled_bytes, MIB, 1.0, 0.0, latencies)


def run_of(name: str = "own", latencies: Mapping[str, Latency] = MappingProxyType({})) -> Run:
    scenario = Scenario(name, "to <see>", messages=100, size=(16, 2032), memory=8 * MIB, consumers=(ConsumerPlan("a"),))
    run = Run(scenario, 100, 100 * KIB, seconds=2.0, sent_seconds=1.0, acked_seconds=2.0, settled_messages=100)
    run.samples = [sample(1.0, 0, latencies), sample(2.0, MIB, latencies)]
    run.latencies = latencies
    run.checks = [Check("count", True, "100 confirmed messages"), Check("order", False, "1 <b> out of order\nsecond")]
    run.notes = [(0.5, "a has its first message"), (0.51, "killed"), (1.5, "recovered")]
    return run


def result_of(*runs: Run) -> dict[str, Any]:
    found = {"machine": {"cores": 2, "python": "CPython"}, "seed": 1, "runs": [run.as_json() for run in runs]}
    read: dict[str, Any] = json.loads(json.dumps(found))
    return read


# JSON


def test_json_has_the_names_and_units_of_the_openmessaging_benchmark() -> None:
    [run] = result_of(run_of(latencies=LATENCIES))["runs"]
    assert (run["workload"], run["driver"], run["messageSize"], run["topics"]) == ("own", "forebay", KIB, 1)
    assert (run["publishRate"], run["consumeRate"], run["backlog"]) == ([100.0] * 2, [50.0] * 2, [50] * 2)
    for name, unit in (("Publish", 1000), ("PublishDelay", 1), ("EndToEnd", 1000)):
        lists = [
            f"{name[0].lower()}{name[1:]}Latency{suffix}" for suffix in ("Avg", "50pct", "999pct", "9999pct", "Max")
        ]
        assert [run[name] for name in lists] == [[us / unit] * 2 for us in (2000, 1000, 5000, 6000, 7000)]
        assert run[f"aggregated{name}Latency99pct"] == 4000 / unit
        quantiles = {"50.0": 1000, "75.0": 2000, "95.0": 3000, "99.0": 4000, "99.9": 5000, "99.99": 6000, "100.0": 7000}
        assert run[f"aggregated{name}LatencyQuantiles"] == {share: us / unit for share, us in quantiles.items()}


def test_json_has_memory_beside_them() -> None:
    [run] = result_of(run_of())["runs"]
    assert (run["heldBytes"], run["limitBytes"], run["spilledBytes"]) == ([5 * MIB] * 2, [8 * MIB] * 2, [0, MIB])
    assert (run["heldBytesMax"], run["ussGrowthBytesMax"], run["allHeld"]) == (5 * MIB, 9 * MIB, False)
    assert not any("Latency" in name for name in run)


def test_json_has_the_mean_of_bodies_and_the_sizes_that_take_turns() -> None:
    [run] = result_of(run_of())["runs"]
    assert (run["messageSize"], run["messageSizes"]) == (KIB, [16, 2032])


# Page


HOSTILE = "</title></style><script>document.title='hacked'</script><img src=//example.com/x onerror='x'>\u202e\x1b[2J"


@pytest.mark.parametrize("latencies", [{}, LATENCIES])
def test_page_shows_verdicts_figures_and_what_happened(latencies: Mapping[str, Latency]) -> None:
    text = page(result_of(run_of(latencies=latencies)))
    assert "to &lt;see&gt;" in text and "1 &lt;b&gt; out of order<br>second" in text
    assert "1 of 1 run failed" in text and '<span class="pill bad">FAILED</span>' in text
    assert "100 messages of 16B/2032B, through a memory limit" in text
    assert ("Milliseconds from due to taken" in text) is bool(latencies)
    assert ("Milliseconds of all messages" in text) is bool(latencies)
    assert text.count('class="plot"') == (5 if latencies else 4)  # one is of what was spilled


def test_page_is_one_file_that_asks_for_nothing() -> None:
    text = page(result_of(run_of(latencies=LATENCIES)))
    assert re.findall(r'(?:src|href|action|data|xlink:href|srcset)="(.*?)"', text) == ["data:,", "#run-1"]
    assert "://" not in text and "url(" not in text and "@import" not in text
    assert not re.search(r"<(?:script|iframe|object|embed|img|form|base)\b|\son\w+=|\sstyle=", text)


def test_page_forbids_all_but_its_own_style_as_the_console_does() -> None:
    text = page(result_of(run_of()))
    [policy] = re.findall(r'<meta http-equiv="Content-Security-Policy" content="(.*?)">', text)
    [style] = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style == STYLE_SHEET.read_text(encoding="utf-8")
    assert text.index(policy) < text.index("<style>") and text.index("<style>") < text.index("<title>")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    allowed = dict(part.split(" ", 1) for part in unescape(policy).split("; "))
    assert allowed["default-src"] == "'none'" and allowed["style-src"] == f"'sha256-{digest}'"
    assert "script-src" not in allowed and "unsafe" not in policy


def test_page_escapes_every_text_of_a_result_and_shows_what_steers_as_question_marks() -> None:
    run = run_of(HOSTILE)
    run.scenario = replace(run.scenario, purpose=HOSTILE)
    run.checks = [Check(HOSTILE, False, HOSTILE)]
    run.notes = [(0.5, HOSTILE)]
    result = result_of(run)
    result["runs"][0]["rate"] = result["machine"]["python"] = HOSTILE
    text = page(result)
    assert text.count("&lt;script&gt;document.title=&#39;hacked&#39;&lt;/script&gt;") == 8
    assert text.count("??[2J") == 8 and "\u202e" not in text and "\x1b" not in text
    assert "<script" not in text and "<img" not in text and text.count("</style>") == text.count("</title>") == 1


def test_page_draws_lines_within_their_charts_and_leaves_out_seconds_without_latencies() -> None:
    run = run_of(latencies=LATENCIES)
    run.samples = [sample(float(second), 0, LATENCIES) for second in range(1, 7)]
    run.samples[2] = sample(3.0, 0, {PUBLISH: Latency(), DELAY: Latency(), END_TO_END: Latency()})
    text = page(result_of(run))
    lines = re.findall(r'<polyline class="line (\w*)" points="(.*?)"', text)
    numbers = [float(number) for _, points in lines for number in re.split("[ ,]", points)]
    assert min(numbers) >= 0 and max(numbers) <= 100
    assert [look for look, _ in lines] == [
        "",
        "second",
        "",
        "quiet",
        "",
        "bound",
        "",
        "",
        *["second"] * 2,
        *["third"] * 2,
    ]


def test_page_draws_a_limit_as_stairs_because_a_resize_is_no_slope() -> None:
    run = run_of()
    run.samples = [
        replace(sample(second, 0, {}), limit_bytes=limit * MIB) for second, limit in ((1.0, 10), (2.0, 5), (4.0, 5))
    ]
    [points] = re.findall(r'<polyline class="line bound" points="(.*?)"', page(result_of(run)))
    assert points == "25.0,0.0 25.0,50.0 50.0,50.0 50.0,50.0 100.0,50.0"


def test_page_of_a_run_in_which_nothing_moved_is_a_page() -> None:
    run = run_of()
    run.samples = [Sample(0.0, "flow", 0.0, 0.0, 0, 0, 0, 0, 0, 0, None, 0.0)]
    run.notes = []
    assert "What happened" not in page(result_of(run))


def test_page_marks_notes_with_letters_and_those_of_neighbours_stand_together() -> None:
    run = run_of()
    run.notes = [(0.5, "a has its first message"), (0.51, "killed"), (1.5, "recovered")]
    assert re.findall(r'text-anchor="middle">([a-z]+)</text>', page(result_of(run))) == ["ab", "c"]


def test_page_without_jinja2_is_refused_before_the_run_in_words_that_name_the_extra(tmp_path: Path) -> None:
    code = "import sys; sys.modules['jinja2'] = None; from forebay.__main__ import main; sys.exit(main())"
    html = tmp_path / "page.html"
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code, "bench", "--html", str(html)], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--html needs jinja2, which is not there: pip install 'forebay[tools]'" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_page_and_json_are_written_beside_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    html, result = tmp_path / "page.html", tmp_path / "result.json"
    assert main(["bench", "backlog", "--messages", "500", "--html", str(html), "--json", str(result)]) == 0
    assert page(json.loads(result.read_text(encoding="utf-8"))) == html.read_text(encoding="utf-8")


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_file_that_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", option, str(tmp_path / "no" / "file")]) == 2
    assert capsys.readouterr().out == ""


# Comparison


def rounds(*seconds: float) -> dict[str, Any]:
    runs = []
    for taken in seconds:
        run = run_of()
        run.sent_seconds = run.acked_seconds = taken
        runs.append(run)
    return result_of(*runs)


def verdicts(first: dict[str, Any], second: dict[str, Any]) -> dict[str, str]:
    return {found.figure: found.verdict for found in compare(first, second)}


def test_rounds_that_are_all_slower_are_worse_and_all_faster_are_better() -> None:
    slow, fast = rounds(2.0, 2.1, 2.2, 2.3, 2.4), rounds(1.0, 1.1, 1.2, 1.3, 1.9)
    assert verdicts(fast, slow)["sentPerSecond"] == WORSE
    assert verdicts(slow, fast)["sentPerSecond"] == BETTER
    assert verdicts(slow, slow)["sentPerSecond"] == SAME
    assert verdicts(slow, fast)["ussGrowthBytesMax"] == SAME


def test_ratio_is_the_median_of_all_ratios() -> None:
    [found] = [one for one in compare(rounds(1, 1, 2, 2, 2), rounds(1, 1, 1, 1, 1)) if one.figure == "ackedPerSecond"]
    assert (found.first, found.second, found.ratio) == (50.0, 100.0, 2.0)


def test_one_round_that_is_as_good_as_the_others_leaves_it_open() -> None:
    assert verdicts(rounds(1.0, 1.1, 1.2, 1.3, 2.15), rounds(2.0, 2.1, 2.2, 2.3, 2.4))["sentPerSecond"] == SAME


def test_too_few_rounds_say_nothing() -> None:
    assert set(verdicts(rounds(1, 1, 1, 1), rounds(9, 9, 9, 9)).values()) == {TOO_FEW}


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 3), (4, 4), (5, 5), (3, 6)])
def test_orders_are_counted_as_they_are(first: int, second: int) -> None:
    counts = [0] * (first * second + 1)
    for places in combinations(range(first + second), first):
        counts[sum(place - rank for rank, place in enumerate(places))] += 1
    assert comparison._arrangements(first, second) == counts
    assert sum(counts) == comb(first + second, first)


def test_interval_misses_the_truth_in_less_than_one_of_a_hundred_orders() -> None:
    for first, second in ((5, 5), (6, 5), (8, 8)):
        beyond = comparison._ratios_beyond(first, second)
        assert beyond is not None
        counts, total = comparison._arrangements(first, second), comb(first + second, first)
        assert 2 * sum(counts[: beyond + 1]) <= 0.01 * total < 2 * sum(counts[: beyond + 2])


def test_command_compares_two_files_and_fails_where_the_second_is_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text(json.dumps(rounds(1.0, 1.1, 1.2, 1.3, 1.4)), encoding="utf-8")
    second.write_text(json.dumps(rounds(2.0, 2.1, 2.2, 2.3, 2.4)), encoding="utf-8")
    assert main(["bench", "--compare", str(first), str(second)]) == 1
    assert re.search(r"own +sentPerSecond +83 +45 +0.545 +0.41\d and 0.7\d\d +worse", capsys.readouterr().out)
    assert main(["bench", "--compare", str(second), str(first)]) == 0


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"runs": [{}]}', "{" * 100_000, "\xff"])
def test_file_that_is_no_result_is_refused(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    path.write_text(content, encoding="latin-1")
    assert main(["bench", "--compare", str(path), str(path)]) == 2
    assert "is no result of forebay bench --json" in capsys.readouterr().err


def test_results_of_different_loads_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other, third, fourth = rounds(1), rounds(1), result_of(run_of("another")), rounds(1)
    other["runs"][0]["messages"] = 101
    fourth["runs"][0]["messageSizes"] = [KIB]
    for number, found in enumerate((one, other, third, fourth)):
        (tmp_path / str(number)).write_text(json.dumps(found), encoding="utf-8")
    assert main(["bench", "--compare", str(tmp_path / "0"), str(tmp_path / "1")]) == 2
    assert "own: messages is 100 and 101: these are different loads" in capsys.readouterr().err
    assert main(["bench", "--compare", str(tmp_path / "0"), str(tmp_path / "2")]) == 2
    assert "no scenario in common" in capsys.readouterr().err
    assert main(["bench", "--compare", str(tmp_path / "0"), str(tmp_path / "3")]) == 2
    assert "own: messageSizes is [1024] and [16, 2032]: these are different loads" in capsys.readouterr().err
