"""Scenarios of the load test: each holds at a small scale, schedules wait for nobody, and files say what they mean."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from forebay.__main__ import main
from forebay.benchmarks.load import schedule
from forebay.benchmarks.load.events import CAME_AGAIN, PRODUCER_SHIFT
from forebay.benchmarks.load.latency import DELAY, END_TO_END, PERCENTILES, PUBLISH, Latencies
from forebay.benchmarks.load.scenario import Act, ConsumerPlan, DestinationPlan
from forebay.benchmarks.load.scenario_file import SHIPPED, read_scenario, shipped
from forebay.benchmarks.load.schedule import Schedule, Turns
from forebay.dispatch.config.sizes import KIB, MIB
from forebay.store.errors import SettingsError

# Schedules


@pytest.mark.parametrize("text", ["1000:10s,10000:500ms,1000:1m", "7:3s", "0:5s,3:1s", "50:2s,1000"])
def test_what_is_due_is_counted_as_it_is_numbered(text: str) -> None:
    found = Schedule.parse(text)
    for number in range(min(found.messages or 500, 3000)):
        seconds = found.due_seconds(number)
        assert found.due_messages(seconds + 1e-9) >= number + 1
        assert number == 0 or found.due_messages(seconds - 1e-6) <= number


def test_each_step_lasts_its_duration_and_the_last_one_goes_on() -> None:
    found = Schedule.parse("10:2s,100:1s")
    assert found.messages == 120
    assert [found.due_seconds(number) for number in (0, 10, 20, 120)] == [0.0, 1.0, 2.0, 3.0]
    assert found.due_messages(1.95) == 20
    assert found.longest_rest == 0.1
    assert Schedule.parse("10:2s,0:70s,100").longest_rest == 70


def test_scaled_schedule_has_the_same_rates_for_other_durations() -> None:
    scaled = Schedule.parse("1000:10s,10000:4s").scaled(0.01)
    assert scaled.messages == 500
    assert str(scaled) == "1000:0.1s,10000:0.04s"
    assert Schedule.parse(str(scaled)).steps == scaled.steps
    assert Schedule.parse(str(scaled.scaled(1e-9))).messages is not None
    assert math.isinf(Schedule.parse("5").steps[0][1])


@pytest.mark.parametrize("text", ["", "fast", "10:", "10:2", "10:2d", "10,20:1s", "10:0s", "0:3s", "-1:3s", "1e3:1s"])
def test_schedule_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Schedule.parse(text)


class FakeTime:
    """Time that passes in `sleep` alone."""

    def __init__(self, now: float) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_producers_take_turns_and_send_whatever_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeTime(102.6)
    monkeypatch.setattr(schedule, "time", clock)
    first, second = (Turns(Schedule.parse("4"), 100.0, producer, producers=2) for producer in (0, 1))
    assert (first.wait(0), first.wait(4), second.wait(0), second.wait(4)) == (6, 2, 5, 1)  # of eleven that are due
    assert clock.now == 102.6
    assert second.wait(5) == 1
    assert clock.now == pytest.approx(102.75)
    assert first.wait(6) == 1
    assert clock.now == pytest.approx(103.0)


# Latencies


def key(n: int, producer: int = 0) -> int:
    return producer << PRODUCER_SHIFT | n


def test_message_that_had_to_wait_for_its_send_is_as_old_as_its_schedule_says() -> None:
    latencies = Latencies([4], Schedule.parse("10"))
    latencies.begin(100.0)
    latencies.sending(0, 1, 100.0)
    latencies.sent(0, 102.0)  # the store stood still for two seconds
    latencies.sending(0, 4, 102.0)
    latencies.sent(0, 102.1)
    latencies.taken([key(0), key(1), key(2) | CAME_AGAIN, key(3)], 102.1)
    whole = latencies.lap()
    assert whole[DELAY].most == pytest.approx(1_900_000, rel=0.001)
    assert whole[PUBLISH].average == pytest.approx((2_000_000 + 3 * 100_000) / 4, rel=0.001)
    assert whole[END_TO_END].average == pytest.approx(1_950_000, rel=0.001)


def test_without_a_schedule_a_message_is_due_when_its_send_begins() -> None:
    latencies = Latencies([1, 2], None)
    latencies.sending(1, 2, 5.0)
    latencies.sent(1, 5.5)
    latencies.taken([key(0, 1), key(1, 1), key(0, 7), key(9)], 6.0)
    lap = latencies.lap()
    assert lap[DELAY].most == 0
    assert lap[END_TO_END].percentiles == pytest.approx((1_000_000,) * len(PERCENTILES), rel=0.001)
    assert latencies.lap()[END_TO_END].most == 0
    assert latencies.whole()[PUBLISH].most == pytest.approx(500_000, rel=0.001)


# Scenario files


def written(directory: Path, text: str) -> str:
    path = directory / "own.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_file_becomes_a_scenario(tmp_path: Path) -> None:
    scenario = read_scenario(
        written(
            tmp_path,
            """
            purpose = "all words"
            size = "2KiB"
            memory = 8_388_608
            producers = 2
            sync = "never"
            rate = "100:10s"
            backlog_first = true
            stuck_every = 50
            consumers = [
                { name = "one", count = 2, kinds = ["plain", "rare"], pace = 10, prefetch = 7, joins_at = 0.25 },
                { name = "two", leaves_after = 9, rollbacks = 0.5, paces = [[0.2, 100], [0.2, 7.5]] },
                { name = "three", retries = 0.25, retry_seconds = 3 },
            ]
            acts = [{ at = 0.5, do = "resize", memory = "16MiB" }, { at = 1, do = "explain" }]
            """,
        )
    )
    assert (scenario.name, scenario.messages, scenario.size, scenario.memory) == ("own", 1000, (2 * KIB,), 8 * MIB)
    one, again, two, three = scenario.consumers
    assert one == ConsumerPlan("one", kinds=("plain", "rare"), pace=10, prefetch=7, joins_at=0.25)
    assert again == replace(one, number=1)
    assert one.selector == "kind IN ('plain', 'rare')"
    assert two == ConsumerPlan("two", leaves_after=9, rollbacks=0.5, paces=((0.2, 100), (0.2, 7.5)))
    assert three == ConsumerPlan("three", retries=0.25, retry_seconds=3)
    assert scenario.acts == (Act(0.5, "resize", 16 * MIB), Act(1, "explain"))
    assert scenario.unwanted == set()
    assert scenario.destinations == (DestinationPlan("load", producers=2),)


def test_file_names_its_destinations_and_who_consumes_them(tmp_path: Path) -> None:
    scenario = read_scenario(
        written(
            tmp_path,
            """
            purpose = "queues beside a topic"
            destinations = [
                { name = "orders", count = 2, producers = 1, share = 3, memory_reserve = "15%" },
                { name = "quotes", kind = "topic", producers = 2, joins_at = 0.5, memory_share = "50%" },
            ]
            consumers = [{ name = "desk", at = "orders", rests = 0.5 }, { name = "screen", at = "quotes", count = 2 }]
            """,
        )
    )
    orders, quotes = scenario.destinations
    assert orders == DestinationPlan("orders", count=2, producers=1, share=3, memory_reserve="15%")
    assert quotes == DestinationPlan("quotes", "topic", producers=2, joins_at=0.5, memory_share="50%")
    assert (orders.names, quotes.names) == (["orders.0", "orders.1"], ["quotes"])
    assert scenario.producers == [orders, quotes, quotes]
    assert [consumer.title for consumer in scenario.consumers] == ["desk.0", "screen.0", "screen.1"]
    assert [scenario.consumed_by(consumer) for consumer in scenario.consumers] == [[orders], [quotes], [quotes]]


def test_consumers_with_keys_of_their_own_ask_for_their_numbers(tmp_path: Path) -> None:
    text = 'purpose = "x"\nkeys = 3\nconsumers = [{ name = "own", count = 3, own_key = true }]'
    scenario = read_scenario(written(tmp_path, text))
    assert [consumer.selector for consumer in scenario.consumers] == ["key = 0", "key = 1", "key = 2"]


@pytest.mark.parametrize("size", ['["16", "1KiB", "64KiB"]', '[16, "1KiB", 65_536]'])
def test_file_takes_sizes_that_take_turns(tmp_path: Path, size: str) -> None:
    assert read_scenario(written(tmp_path, f'purpose = "mixed"\nsize = {size}')).size == (16, KIB, 64 * KIB)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("purpose = 1\nmessages = = 2", "not TOML .*line 2"),
        ("a = " + 10_000 * "[", "not TOML"),
        ("messages = 1", "purpose is missing"),
        ('purpose = ""', "purpose='' must be a line of text"),
        ('purpose = "x"\nmesages = 1', r"there is no mesages \(known: purpose, messages"),
        ('purpose = "x"\nmessages = 1.5', "messages=1.5 must be a whole number from 1 to 1,000,000,000"),
        ('purpose = "x"\nmessages = true', "messages=True must be a whole number"),
        ('purpose = "x"\nsize = "1 apple"', 'size=.* must be bytes, or a size such as "64MiB"'),
        ('purpose = "x"\nsize = []', r"size=\[\] must be bytes, .*, or a list of 1 to 100 of them"),
        ('purpose = "x"\nsize = ["1KiB", 15]', r"size=\['1KiB', 15\] must be bytes, .* from 16 to 1GiB, or a list"),
        ('purpose = "x"\nsize = [[16]]', r"size=\[\[16\]\] must be"),
        (f'purpose = "x"\nsize = {[16] * 101}', "size=.* must be .* a list of 1 to 100"),
        ('purpose = "x"\nmemory = "1MiB"', "memory=.* must be bytes"),
        ('purpose = "x"\nrate = "10:"', "rate='10:' must be steps"),
        ('purpose = "x"\nrate = []', r"rate=\[\] must be steps"),
        ('purpose = "x"\nsync = 1', "sync=1 must be one of always, interval, never"),
        ('purpose = "x"\nsync = []', r"sync=\[\] must be one of"),
        ('purpose = "x"\npersistent = 0', "persistent=0 must be true or false"),
        ('purpose = "x"\nconsumers = 3', "consumers=3 must be a list of tables"),
        ('purpose = "x"\nconsumers = [3]', r"consumers\[1\] must be a table"),
        ('purpose = "x"\nconsumers = [{}]', r"consumers\[1\].name is missing"),
        *(
            (f'purpose = "x"\n[[consumers]]\nname = "a"\npaces = {paces}', r"consumers\[1\].paces=.* must be a list of")
            for paces in ("7", "[7]", "[[0.5]]", "[[0.5, 0]]", "[[2, 1]]", "[[0.5, 1], [0.4, 1]]", '[["0", 1]]')
        ),
        ('purpose = "x"\n[[consumers]]\nname = "a"\n[[consumers]]\nnom = "b"', r"there is no consumers\[2\].nom"),
        (
            'purpose = "x"\nconsumers = [{ name = "a", kinds = ["odd"] }]',
            "must be a list of some of plain, rare, stuck",
        ),
        ('purpose = "x"\nconsumers = [{ name = "a", count = 10_000 }, { name = "b" }]', "at most 10,000"),
        (
            'purpose = "x"\ndestinations = "two"',
            "destinations='two' must be a whole number from 1 to .* a list of tables",
        ),
        ('purpose = "x"\ndestinations = []', "destinations: one at least"),
        ('purpose = "x"\ndestinations = [{ count = 2 }]', r"destinations\[1\].name is missing"),
        ('purpose = "x"\ndestinations = [{ name = "A b" }]', r"destinations\[1\].name='A b' must be a small letter"),
        (
            'purpose = "x"\ndestinations = [{ name = "a", kind = "stream" }]',
            "kind='stream' must be one of queue, topic",
        ),
        ('purpose = "x"\ndestinations = [{ name = "a", memory_share = "half" }]', "must be a share of the limit"),
        ('purpose = "x"\nproducers = 2\ndestinations = [{ name = "a" }]', "producers: belongs to each of destinations"),
        ('purpose = "x"\ndestinations = [{ name = "a" }, { name = "a" }]', "each with a name of its own"),
        ('purpose = "x"\nrate = 5\ndestinations = [{ name = "a" }, { name = "b" }]', "rate: only where"),
        ('purpose = "x"\ndestinations = [{ name = "a", backlog = 0.1 }]', "one queue with one producer"),
        *(
            (f'purpose = "x"\ndestinations = [{{ name = "a" }}, {{ name = "b" }}]\nconsumers = [{consumers}]', problem)
            for consumers, problem in (
                ('{ name = "x", at = "c" }', "at='c' is none of the destinations a, b"),
                ('{ name = "x", at = "a" }', "nobody consumes 'b'"),
                ('{ name = "x", kinds = ["rare"] }', "kinds and own_key only where"),
            )
        ),
        *(
            (f'purpose = "x"\ndestinations = [{{ name = "t", kind = "topic" }}]\n{rest}', problem)
            for rest, problem in (
                ("", "a topic needs consumers"),
                ('consumers = [{ name = "x" }, { name = "x" }]', "each needs a name of its own"),
                ('consumers = [{ name = "x" }]\nacts = [{ at = 1, do = "purge" }]', "a purge is for queues"),
            )
        ),
        ('purpose = "x"\nkeys = 2\nconsumers = [{ name = "a", own_key = true }]', "there must be keys = 2"),
        ('purpose = "x"\nacts = [{ at = 0.5, do = "dance" }]', r"acts\[1\].do='dance' must be one of kill, purge"),
        ('purpose = "x"\nacts = [{ at = nan, do = "kill" }]', r"acts\[1\].at=nan must be a number from 0 to 1"),
        ('purpose = "x"\nacts = [{ at = 1, do = "kill" }, { at = 0, do = "kill" }]', "in the order of their"),
        ('purpose = "x"\nacts = [{ at = 1, do = "resize" }]', "memory belongs to"),
        ('purpose = "x"\npersistent = false\nacts = [{ at = 1, do = "kill" }]', "a kill loses messages"),
        ('purpose = "x"\ndestinations = 2\nstuck_every = 2', "only with destinations = 1"),
    ],
)
def test_file_that_makes_no_sense_is_refused_with_what_is_allowed(
    tmp_path: Path, text: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SettingsError, match=problem):
        read_scenario(path)
    assert main(["bench", path]) == 2
    assert capsys.readouterr().err.startswith(f"forebay: {path}: ")


def test_file_of_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(b'purpose = "\xff"')
    with pytest.raises(SettingsError, match="not UTF-8"):
        read_scenario(str(path))


def test_kinds_that_nobody_asks_for_are_left() -> None:
    assert shipped()["stuck"].unwanted == {"stuck"}
    assert shipped()["steady"].unwanted == set()


# Arguments


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["nowhere.toml"],
        ["steady", "--rate", "often"],
        ["steady", "--scale", "0"],
        ["steady", "--messages", "0"],
        ["steady", "--rounds", "0"],
        ["steady", "--size", "1GiB"],
        ["--input", "file", "--rate", "5"],
    ],
)
def test_arguments_that_cannot_be_honoured_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    assert capsys.readouterr().err.startswith("forebay: ")


def test_list_names_each_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(shipped())


# The whole

SIGNS = {
    "churn": ["2,000 confirmed messages"],
    "purge": ["purged "],
    "overflow": ["resized to 16.0 MiB", "resized to 64.0 MiB", "held    limit"],
    "stuck": ["35 messages left that nobody asked for", "held    disk"],
    "steady": ["send begun late by"],
    "late": ["late has its first message"],
    "fanout": ["each delivered to each of 100 subscriptions", "held    reads"],
    "neighbours": ["held    neighbours", "held    take"],
    "selectors": ["held    selected"],
}
"""Further texts that the report of a scenario must have."""
SCALES = {"neighbours": 0.25}
"""The scales of scenarios that show nothing at the scale of the others."""


@pytest.mark.slow
@pytest.mark.parametrize("scenario", shipped())
def test_scenario_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str], scenario: str) -> None:
    result = tmp_path / "result.json"
    scale = SCALES.get(scenario, 0.01)
    exit_code = main(["bench", scenario, "--scale", str(scale), "--json", str(result)])
    printed = capsys.readouterr().out
    assert exit_code == 0, printed
    assert printed.splitlines()[-1] == "all held"
    kills = shipped()[scenario].kills
    assert printed.count("killed with SIGKILL") == kills
    assert all(sign in printed for sign in SIGNS.get(scenario, [])), printed
    [run] = json.loads(result.read_text(encoding="utf-8"))["runs"]
    messages = int(shipped()[scenario].messages * scale)
    assert (run["workload"], run["messages"], run["allHeld"]) == (scenario, messages, True)
    assert run["sentPerSecond"] > 0 and run["ackedPerSecond"] > 0
    assert len(run["recoveries"]) == kills
    assert len(run["publishRate"]) == len(run["heldBytes"]) == len(run["endToEndLatency9999pct"]) >= 1
    assert 0 < run["aggregatedEndToEndLatency50pct"] <= run["aggregatedEndToEndLatencyMax"]
    waits = [1000 * consumer.retry_seconds for consumer in shipped()[scenario].consumers if consumer.retries]
    assert run["aggregatedEndToEndLatencyMax"] >= max(waits, default=0), "what comes back waits"


@pytest.mark.soak  # how much of a flood is read back depends on the machine; test_memory_shares.py has what does not
def test_flood_beside_a_queue_without_a_reserve_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (SHIPPED / "neighbours.toml").read_text(encoding="utf-8")
    unprotected = text.replace('memory_reserve = "18%"', 'memory_reserve = "1%"').replace(', memory_share = "50%"', "")
    assert unprotected.count('memory_reserve = "1%"') == 1 and "memory_share" not in unprotected
    assert main(["bench", written(tmp_path, unprotected), "--scale", "0.5"]) == 1
    assert "FAILED  neighbours" in capsys.readouterr().out


@pytest.mark.slow
def test_scenario_of_a_user_runs_by_schedule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, 'purpose = "mine"\nrate = "100:3s"\nconsumers = [{ name = "a" }]')
    exit_code = main(["bench", path, "--rate", "2000:100ms,0:100ms,1000:100ms", "--rounds", "2"])
    printed = capsys.readouterr().out
    assert exit_code == 0, printed
    assert printed.count("own: mine\n300 messages of 1KiB, 0.3 MiB, ") == 2


@pytest.mark.slow
def test_mixed_bodies_are_all_accounted_for_within_the_memory_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tmp_path / "result.json"
    arguments = ["--messages", "600", "--size", "16,1KiB,64KiB", "--memory", "8MiB", "--json", str(result)]
    exit_code = main(["bench", "overflow", *arguments])
    printed = capsys.readouterr().out
    assert exit_code == 0, printed
    assert "600 messages of 16B/1KiB/64KiB, 12.7 MiB, through a memory limit of 8MiB" in printed
    assert re.search(r"held +count +600 confirmed messages", printed), printed
    assert "held    memory" in printed and "held    process" in printed
    [run] = json.loads(result.read_text(encoding="utf-8"))["runs"]
    assert (run["messageSizes"], run["messageSize"]) == ([16, KIB, 64 * KIB], (16 + KIB + 64 * KIB) // 3)
