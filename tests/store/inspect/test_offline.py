"""`forebay verify`, `dump` and `explain`: exit codes, lines, and a directory that is the same afterwards."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest

import forebay
from forebay import Message
from forebay.__main__ import main
from forebay.store.disk.disk import OsDisk
from forebay.store.disk.layout import STATE_DIRECTORY, data_log_name
from forebay.store.format.record import RecordDamaged
from forebay.store.inspect.read_only import open_read_only


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A directory with the store of one broker, opened twice."""
    directory = tmp_path / "kept"
    for n in range(2):
        with forebay.open(directory, memory_limit="8MiB", sync="never") as bay:
            bay.queue("orders").send_many(Message(b"body", {"n": n}) for _ in range(10))
    return directory


def tree(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, b"" if path.is_dir() else path.read_bytes())
        for path in [directory, *directory.rglob("*")]
    }


def test_whole_directory_exits_with_0_and_its_numbers(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(kept)]) == 0
    summary, last = capsys.readouterr().out.splitlines()
    assert summary.startswith("localhost: 2 data logs, ") and summary.endswith(" 20 messages")
    assert last == "no damage"


def test_damaged_directory_exits_with_1_and_a_line_a_place(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept / "localhost" / data_log_name(1)
    image = bytearray(path.read_bytes())
    image[200] ^= 1
    path.write_bytes(image)
    assert main(["verify", str(kept)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].startswith("  damage  data-1.log at offset ")
    assert printed[-1] == "1 damaged place"
    assert main(["dump", str(kept)]) == 1
    assert sum(json.loads(line)["kind"] == "damaged" for line in capsys.readouterr().out.splitlines()) == 1


def test_reader_of_a_data_log_whose_header_is_damaged_leaves_no_file_open(kept: Path) -> None:
    seen = open_read_only(OsDisk(str(kept / "localhost")))
    path = kept / "localhost" / data_log_name(1)
    path.write_bytes(bytes(path.stat().st_size))
    before = os.listdir("/proc/self/fd")
    with pytest.raises(RecordDamaged) as raised:
        seen.reader(1)
    assert os.listdir("/proc/self/fd") == before, raised  # what was raised refers to all that was local


@pytest.mark.parametrize("command", ["verify", "dump", "explain"])
def test_pipe_or_directory_in_the_place_of_a_data_log_stops_no_command(
    kept: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kept / "localhost" / data_log_name(1)
    for make in (os.mkfifo, os.mkdir):
        path.unlink()
        make(path)
        assert main([command, str(kept)]) == 1
        printed = capsys.readouterr()
        assert "cannot be read" in printed.out or printed.err.startswith("forebay: ")
        path.rename(kept / make.__name__)
        path.touch()


@pytest.mark.parametrize("command", [["verify"], ["dump"], ["dump", "--headers"], ["explain"]])
def test_directory_is_the_same_afterwards_whole_or_damaged(kept: Path, command: list[str]) -> None:
    for content in (None, b"", b"x" * 1000):
        if content is not None:
            (kept / "localhost" / data_log_name(1)).write_bytes(content)
        before = tree(kept)
        main([*command, str(kept)])
        assert tree(kept) == before


def test_journal_alone_is_read(kept: Path) -> None:
    shutil.rmtree(kept / "localhost" / "kr-store")
    (kept / "localhost" / "lock").unlink()
    assert main(["verify", str(kept)]) == 0
    assert main(["dump", str(kept)]) == 0
    assert main(["explain", str(kept)]) == 0


def test_directory_may_be_one_broker_or_hold_several(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(kept / "localhost", kept / "east")
    (kept / "notes").mkdir()
    assert main(["verify", str(kept / "east")]) == 0
    assert capsys.readouterr().out.count(" 20 messages") == 1
    assert main(["dump", str(kept)]) == 0
    brokers = [json.loads(line)["broker"] for line in capsys.readouterr().out.splitlines()]
    assert sorted(set(brokers)) == ["east", "localhost"] and brokers == sorted(brokers)


@pytest.mark.parametrize("command", ["verify", "dump", "explain"])
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("missing", "does not exist"),
        ("file", "is not a directory"),
        ("empty", "is not a forebay directory"),
        ("foreign", "is not a forebay directory"),
    ],
)
def test_what_is_no_forebay_directory_exits_with_2_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, name: str, problem: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign" / "journal").mkdir(parents=True)
    (tmp_path / "foreign" / "journal" / "data-01.log").touch()
    assert main([command, str(tmp_path / name)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    assert line.startswith("forebay: ") and problem in line


def test_name_that_is_no_text_is_printed_nevertheless(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kept / "localhost").rename(kept / os.fsdecode(b"caf\xe9"))
    assert main(["verify", str(kept)]) == 0
    assert capsys.readouterr().out.startswith("caf\\udce9: 2 data logs")
    assert main(["dump", str(kept)]) == 0


def test_store_without_a_data_log_is_whole(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for directory in ("journal", STATE_DIRECTORY):
        for path in (kept / "localhost" / directory).iterdir():
            path.unlink()
    assert main(["explain", str(kept)]) == 0
    assert capsys.readouterr().out.startswith("localhost: Disk: 0 data logs")
    assert main(["verify", str(kept)]) == 0
    assert main(["dump", str(kept)]) == 0
    assert capsys.readouterr().out.startswith("localhost: 0 data logs")


def test_data_log_that_cannot_be_opened_is_named(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept / "localhost" / data_log_name(1)
    path.rename(kept / "elsewhere")
    path.symlink_to(kept / "elsewhere")
    assert main(["verify", str(kept)]) == 1
    assert "data-1.log at offset 0: the data log cannot be read" in capsys.readouterr().out
    assert main(["dump", str(kept)]) == 1


def test_commands_work_beside_the_process_that_owns_the_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            queue.send_many(Message(bytes(1000)) for _ in range(50))
            consumer.ack(consumer.take(40))
            bay.cleanup()

    with forebay.open(tmp_path, memory_limit="8MiB", max_file_length="128KiB", sync="never") as bay:
        queue = bay.queue("orders")
        consumer = queue.subscribe(prefetch=0)
        owner = threading.Thread(target=work)
        owner.start()
        try:
            for _ in range(10):
                assert main(["verify", str(tmp_path)]) == 0, capsys.readouterr().out
                assert main(["dump", str(tmp_path)]) == 0
                assert main(["explain", str(tmp_path)]) == 0, capsys.readouterr().err
        finally:
            is_over.set()
            owner.join()


def test_explain_says_why_each_data_log_remains(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(kept)]) == 0
    whole, first_cause, *rest = capsys.readouterr().out.splitlines()
    assert whole.startswith("localhost: Disk: 2 data logs of ") and "; 0:orders keeps 2 data logs of " in whole
    assert first_cause.startswith("  pending_message  0:orders: 20 messages, ")
    assert [line.split(" (")[0].strip() for line in rest[-2:]] == ["data-1.log", "data-2.log"]


def test_explain_says_why_one_data_log_remains(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(kept), "1"]) == 0
    sentence, cause = capsys.readouterr().out.splitlines()
    assert sentence.startswith("localhost: data-1.log (") and "because 0:orders has 10 messages" in sentence
    assert cause.startswith("  pending_message  0:orders: 10 messages, ")


def test_explain_looks_for_the_data_log_in_each_broker(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(kept), "9"]) == 2
    assert "there is no data log 9" in capsys.readouterr().err
    shutil.copytree(kept / "localhost", kept / "east")
    assert main(["explain", str(kept), "2"]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if "remains" in line] == [
        "east",
        "localhost",
    ]


def test_explain_refuses_a_damaged_journal_with_its_place(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept / "localhost" / data_log_name(1)
    image = bytearray(path.read_bytes())
    image[200] ^= 1
    path.write_bytes(image)
    assert main(["explain", str(kept)]) == 1
    assert "data-1.log" in capsys.readouterr().err
