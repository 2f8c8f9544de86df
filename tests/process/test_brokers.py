"""Brokers beside forebay, with few messages: what is there is measured and ended, what is not is left out in words."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence, Set
from pathlib import Path

import psutil
import pytest

from forebay.benchmarks import peers
from forebay.benchmarks.brokers import comparison, process
from forebay.benchmarks.brokers.broker import BrokerFailed, ServedBroker
from forebay.benchmarks.brokers.choices import BY_TITLE, CHOICES, PACKAGES, SYNCED, Choice, needs_client
from forebay.benchmarks.brokers.passes import Sizes
from forebay.benchmarks.brokers.process import Found, measure, run
from forebay.benchmarks.brokers.rabbitmq import Pika
from forebay.benchmarks.brokers.server import Memory, Server, ServerFailed, free_port
from forebay.benchmarks.brokers.table import table
from forebay.benchmarks.works.build import Build
from forebay.benchmarks.works.results import BROKERS, marks
from forebay.benchmarks.works.stopwatch import Facts

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / ".venv-peers" / "bin" / "python"
FEW = Sizes(messages=50, seconds=5.0, backlog_messages=50, backlog_seconds=5.0)
LISTENS = """
import socket, subprocess, sys
subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    print("ready", flush=True)
    while True:
        server.accept()
"""


class Listening(ServedBroker):
    """A server that keeps its messages in a list of this process."""

    debian, client, module = "listening", "pytest", "pytest"

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[bytes] = []

    @classmethod
    def program(cls) -> Path | None:
        return Path(sys.executable)

    async def start(self, place: Path) -> str:
        port = free_port()
        server = self._run(Server([sys.executable, "-c", LISTENS, str(port)], place))
        await server.answers(port, said="ready")
        return self._versions("Listening 1")

    async def put_one(self, body: bytes) -> None:
        self.kept.append(body)

    async def put_batch(self, bodies: Sequence[bytes]) -> None:
        self.kept += bodies

    async def take_ack(self, messages: int) -> int:
        taken, self.kept = self.kept[:messages], self.kept[messages:]
        return sum(map(len, taken))


class Losing(Listening):
    """A server that loses the last message of each batch."""

    async def put_batch(self, bodies: Sequence[bytes]) -> None:
        await super().put_batch(bodies[:-1])


class Elsewhere(Listening):
    """A server whose client is not installed."""

    client = module = "a_package_that_is_nowhere"


def choice(make: type[Listening]) -> Choice:
    return Choice("listening", SYNCED, "in words", make)


def children(known: Set[int] = frozenset()) -> set[int]:
    """Return the children of this process that are not known, with theirs: a known one may start what it likes."""
    new = [child for child in psutil.Process().children() if child.pid not in known]
    return {found.pid for child in new for found in (child, *child.children(recursive=True))}


# A pass


def test_pass_moves_all_messages_and_leaves_no_server_behind(tmp_path: Path) -> None:
    before = children()
    found = run(choice(Listening), FEW, tmp_path)
    assert found.facts is not None and found.versions.startswith("Listening 1, pytest ")
    assert found.facts["backlog_messages"] == found.facts["drained_messages"] == 256
    assert found.facts["empty_rss_bytes"] > found.facts["pss_bytes"] / 2 > 0
    assert not children(before)


def test_backlog_ends_when_its_time_is_over(tmp_path: Path) -> None:
    found = run(choice(Listening), Sizes(50, 5.0, 10**9, 0.01), tmp_path)
    assert found.facts is not None and 256 <= found.facts["backlog_messages"] < 10**9


def test_broker_that_loses_something_fails_its_pass_and_is_ended(tmp_path: Path) -> None:
    before = children()
    with pytest.raises(BrokerFailed, match="256 messages had bodies of 261120 bytes"):
        run(choice(Losing), FEW, tmp_path)
    assert not children(before)


def test_server_that_ends_early_is_told_of_with_its_last_words(tmp_path: Path) -> None:
    server = Server([sys.executable, "-c", "print('no such setting'); raise SystemExit(3)"], tmp_path)
    with pytest.raises(ServerFailed, match="did not begin to listen: no such setting"):
        asyncio.run(server.answers(free_port()))
    server.stop()


def test_pass_that_is_told_to_end_ends_its_server_first(tmp_path: Path) -> None:
    """What a Ctrl-C in the parent comes to."""
    script = (
        "import asyncio, psutil, sys\n"
        "from test_brokers import Listening, choice\n"
        "from forebay.benchmarks.brokers import process\n"
        "class Waiting(Listening):\n"
        "    async def put_one(self, body):\n"
        "        print(psutil.Process().children()[0].pid, flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "process.BY_TITLE['waiting'] = choice(Waiting)\n"
        "sys.exit(process.main())\n"
    )
    sizes = '{"messages": 9, "seconds": 9, "backlog_messages": 9, "backlog_seconds": 9}'
    running = subprocess.Popen(
        [sys.executable, "-P", "-c", script, "waiting", sizes, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
    )
    assert running.stdout is not None
    server = psutil.Process(int(running.stdout.readline()))
    family = [server, *server.children()]
    assert len(family) == 2
    running.send_signal(signal.SIGTERM)
    assert running.wait(30) == 1
    running.stdout.close()
    assert not psutil.wait_procs(family, timeout=10)[1]


def test_pass_runs_in_a_process_that_leaves_nothing_behind(tmp_path: Path) -> None:
    found = measure("forebay, never", FEW, sys.executable, tmp_path)
    assert found.facts is not None and found.facts["singles"] > 0
    assert list(tmp_path.iterdir()) == []


def test_process_that_fails_says_so_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(BrokerFailed, match="nobody ended with exit code 1"):
        measure("nobody", FEW, sys.executable, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_process_that_takes_too_long_is_ended_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "longest_seconds", lambda sizes: 0.1)
    begun = time.monotonic()
    with pytest.raises(BrokerFailed, match="forebay, never took more than 0 s"):
        measure("forebay, never", Sizes(10**9, 300.0, 50, 5.0), sys.executable, tmp_path)
    assert time.monotonic() - begun < 300, "it went on to its end"
    assert list(tmp_path.iterdir()) == []


def served(each: Choice) -> ServedBroker | None:
    broker = each.make()
    return broker if isinstance(broker, ServedBroker) else None


@pytest.mark.slow
@pytest.mark.parametrize(
    "title",
    [
        pytest.param(
            each.title,
            marks=[
                pytest.mark.skipif(
                    broker is not None and broker.program() is None, reason=f"needs {broker and broker.debian}"
                ),
                pytest.mark.skipif(
                    broker is not None and not CLIENTS.exists(), reason="needs clients: make bench-peers"
                ),
            ],
        )
        for each in CHOICES
        for broker in [served(each)]
    ],
)
def test_each_that_is_installed_moves_fifty_messages(title: str) -> None:
    python = str(CLIENTS) if needs_client(title) else sys.executable
    # Not in the directory of the test, which no other user may enter: PostgreSQL needs one.
    found = measure(title, FEW, python, Path(tempfile.gettempdir()))
    assert found.missing == "" and found.facts is not None
    assert found.facts["backlog_messages"] == found.facts["drained_messages"] == 256
    assert found.facts["pss_bytes"] > 0


# What is not there


def test_missing_client_and_missing_server_are_said_by_their_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(choice(Elsewhere), FEW, tmp_path) == Found("pip install a_package_that_is_nowhere")
    monkeypatch.setattr(Pika, "program", lambda: None)
    found = run(BY_TITLE["RabbitMQ classic, pika"], FEW, tmp_path)
    assert found == Found("apt-get install --no-install-recommends rabbitmq-server")
    assert list(tmp_path.iterdir()) == []


def test_clients_are_named_as_pip_knows_them() -> None:
    assert PACKAGES == ("aio-pika", "nats-py", "pika", "psycopg[binary]", "redis")


# The table


def facts(rate: float = 1000.0, **other: float) -> Facts:
    rates = dict.fromkeys(("store", "singles", "batches", "fill", "drain"), rate)
    sizes = {"backlog_messages": 1000.0, "drained_messages": 1000.0}
    return rates | sizes | dict.fromkeys(("empty_rss_bytes", "rss_bytes", "pss_bytes"), float(3 << 20)) | other


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_table_puts_what_is_confirmed_beside_medians_and_is_sorted_by_it() -> None:
    found = {
        "NATS JetStream": {"NATS JetStream": [facts()]},
        "forebay, always": {"forebay, always": [facts(1.0), facts(3.0), facts(100.0, drained_messages=10.0)]},
    }
    text = "\n".join(table(["a line"], ["No RabbitMQ"], "NATS 2", FEW, found))
    ours, theirs = rows(text)
    assert ours[:6] == ["forebay, always", SYNCED, '`sync="always"`, acks too', "3", "3", "3"]
    assert ours[6:] == ["1,000", "3", "3", "3", "3", "3"]
    assert theirs[0] == "NATS JetStream"
    assert "* **NATS JetStream**:" in text and "* **RabbitMQ**:" not in text
    assert "* a line\n* NATS 2\n* No RabbitMQ\n* ActiveMQ Artemis is left out" in text


def test_backlog_that_could_not_be_drained_in_time_is_said() -> None:
    text = "\n".join(table([], [], "", FEW, {"forebay, never": {"one build": [facts(drained_messages=10.0)]}}))
    assert rows(text)[0][6] == "1,000, 10 drained"


def test_each_build_of_ours_has_a_row_and_another_broker_one() -> None:
    builds = [Build("a/python", "interpreted", ""), Build("b/python", "compiled", "")]
    brokers = comparison.Brokers(1000, builds, "clients/python", Path(), print)
    runs = [run for choice in (BY_TITLE["forebay, never"], BY_TITLE["NATS JetStream"]) for run in brokers.runs(choice)]
    assert runs == [
        ("forebay, never, interpreted", "a/python"),
        ("forebay, never, compiled", "b/python"),
        ("NATS JetStream", "clients/python"),
    ]


def test_command_measures_what_is_there_and_makes_its_part_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def found(title: str, sizes: Sizes, python: str, directory: Path) -> Found:
        return Found("", "forebay 1", facts()) if title.startswith("forebay") else Found("pip install it")

    page = tmp_path / "RESULTS.md"
    page.write_text("\n".join(["by hand", *marks(BROKERS), "kept"]), encoding="utf-8")
    monkeypatch.setattr(comparison, "measure", found)
    monkeypatch.setattr(peers, "RESULTS", page)
    assert peers.main(["Brokers", "--messages", "300", "--dir", str(tmp_path), "--write"]) == 0
    printed = capsys.readouterr().out
    assert printed.strip() in page.read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8").startswith("by hand\n") and printed.count("forebay 1") == 1
    assert [row[0] for row in rows(printed)] == ["forebay, always", "forebay, interval", "forebay, never"]
    assert "* No NATS JetStream: pip install it" in printed
    assert "`python benchmarks/peers.py Brokers --messages 300`: medians of 1 round" in printed


def test_broker_that_fails_is_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failed(*_: object) -> Found:
        raise BrokerFailed("Redis ended with exit code 1")

    monkeypatch.setattr(comparison, "measure", failed)
    assert peers.main(["Brokers", "--messages", "300", "--dir", str(tmp_path)]) == 1
    assert "peers: Redis ended with exit code 1" in capsys.readouterr().err


def test_memory_of_a_process_that_is_gone_is_nothing() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    gone = psutil.Process(ended.pid)
    ended.wait()
    assert Memory.of_process(gone) == Memory(0, 0)
