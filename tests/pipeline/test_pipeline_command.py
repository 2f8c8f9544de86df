"""`forebay pipeline`: rows as lines, exit codes, and what is wrong in one line; and which Java Spark gets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_streams import json_rows

import forebay
from forebay import Message
from forebay.__main__ import main
from forebay.pipeline.commands.questions import rows_of_partitions
from forebay.pipeline.errors import SparkMissing
from forebay.pipeline.spark import java
from forebay.pipeline.spark.java import JAVA_VERSION_MIN, java_home, java_version
from forebay.pipeline.spark.session import COLLECTOR, CONFIGURED_BY, check_master, configuration_of
from forebay.store.disk.layout import data_log_name


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    directory = tmp_path / "kept"
    with forebay.open(directory, memory_limit="8MiB", sync="never") as bay:
        bay.queue("orders").send_many(Message(b"tea", {"raw": b"\xff"}) for _ in range(10))
        bay.topic("prices").subscribe(durable="audit").close()
        bay.topic("prices").send(b"1.20")
    return directory


def test_whoever_asks_for_json_gets_the_lines_that_are_json_anyway(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "rebuild", str(kept)]) == 0
    plain = json_rows(capsys)
    assert main(["pipeline", "rebuild", str(kept), "--json"]) == 0
    assert json_rows(capsys) == plain


def test_each_question_is_answered_in_lines(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "check", str(kept)]) == 0
    assert json_rows(capsys) == []
    assert main(["pipeline", "backlog", str(kept)]) == 0
    found = {(row["destination"], row["subscription"]): row["messages"] for row in json_rows(capsys)}
    assert found == {("orders", None): 10, ("prices", "audit"): 1}
    assert main(["pipeline", "pins", str(kept)]) == 0
    assert {row["reason"] for row in json_rows(capsys)} == {"pending_message", "in_use"}
    assert main(["pipeline", "rebuild", str(kept)]) == 0
    assert sum(row["messages"] for row in json_rows(capsys)) == 11


def test_facts_are_lines_with_bodies_on_request(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    assert main(["pipeline", "facts", "--bodies", str(kept)]) == 0
    messages = [row for row in json_rows(capsys) if row["kind"] == "message"]
    assert len(messages) == 11
    assert messages[0]["body"] == "dGVh" and json.loads(messages[0]["headers"]) == {"raw": {"base64": "/w=="}}


@pytest.mark.parametrize(
    "master", ["x", "", "lokal[*]", "local[", "local[-1]", "spark:/host:7077", "spark://", "http://x"]
)
def test_master_that_spark_knows_none_of_is_refused_before_java_starts(
    master: str, kept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.pipeline.spark.session.java_home", lambda: pytest.fail("Java was looked for"))
    for command in (["explain"], ["verify"], ["pipeline", "facts"]):
        assert main([*command, "--engine", "spark", f"--master={master}", str(kept)]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and "is no master of Spark: give local[*]" in printed.err


def test_masters_of_spark_are_let_pass() -> None:
    for master in (
        *("local", "local[*]", "local[4]", "local[ 2 , 3 ]", "local[*,4]", "local-cluster[2,1,1024]", "yarn"),
        *("spark://a:7077,b:7077", "k8s://https://host:6443", "mesos://zk://host:2181/mesos"),
    ):
        check_master(master)


def test_damage_ends_with_1_refused_or_reported(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept / "localhost" / data_log_name(1)
    image = bytearray(path.read_bytes())
    image[200] ^= 1
    path.write_bytes(image)
    assert main(["pipeline", "check", str(kept)]) == 1
    [place] = json_rows(capsys)
    assert (place["broker"], place["data_log"]) == ("localhost", 1) and place["problem"]
    assert main(["pipeline", "backlog", str(kept)]) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("forebay: localhost: data-1.log at offset ")
    assert main(["pipeline", "backlog", "--on-damage", "report", str(kept)]) == 1
    [row] = json_rows(capsys)
    assert row["problem"].startswith("data-1.log at offset ")


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_what_is_no_directory_exits_with_2_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    assert main(["pipeline", "backlog", "--engine", engine, str(tmp_path / "missing")]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err == f"forebay: {tmp_path / 'missing'} does not exist\n"


def test_without_its_extra_spark_is_named_in_one_line(
    kept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["pipeline", "backlog", "--engine", "spark", str(kept)]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("pip install 'forebay[spark]'")


def test_neither_the_questions_nor_the_floor_import_spark(kept: Path) -> None:
    program = (
        "import sys; from forebay.__main__ import main; import forebay.pipeline; "
        f"main(['pipeline', 'backlog', {str(kept)!r}]); print(*sys.modules.keys() & {{'pyspark', 'pyarrow'}})"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == ""


# ------------------------------------------------------------------ Java


def jdk(folder: Path, version: str) -> Path:
    """A Java that says its version in the file that JDKs carry."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (folder / "bin" / "java").chmod(0o700)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize(("version", "number"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25)])
def test_version_is_read_from_the_file_of_the_jdk(tmp_path: Path, version: str, number: int) -> None:
    assert java_version(jdk(tmp_path / "jdk", version) / "bin" / "java") == number


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    named, on_path = jdk(tmp_path / "named", "21.0.1"), jdk(tmp_path / "path", "17.0.1")
    environ = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}
    assert java_home(environ) == str(named)
    assert java_home({"PATH": str(on_path / "bin")}) is None


def test_the_jvm_is_told_of_one_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = "spark.driver.extraJavaOptions"
    for name in CONFIGURED_BY:
        monkeypatch.delenv(name, raising=False)
    assert configuration_of("local[2]")[chosen] == COLLECTOR
    assert configuration_of("local[2]", {chosen: "-Xss4m"})[chosen] == "-Xss4m"
    assert chosen not in configuration_of("spark://elsewhere:7077")
    for name in CONFIGURED_BY:
        with monkeypatch.context() as context:
            if name.startswith("spark."):
                assert chosen not in configuration_of("local[2]", {name: "-XX:+UseZGC"})
            else:
                context.setenv(name, "-XX:+UseZGC")
                assert chosen not in configuration_of("local[2]")


def test_the_jvm_knows_the_collector() -> None:
    home = java_home()
    java = "java" if home is None else f"{home}/bin/java"
    assert subprocess.run([java, COLLECTOR, "-version"], capture_output=True, check=False).returncode == 0


def test_java_home_that_is_too_old_gives_way_to_the_path(tmp_path: Path) -> None:
    named, on_path = jdk(tmp_path / "named", "11.0.1"), jdk(tmp_path / "path", "17.0.1")
    assert java_home({"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}) == str(on_path)


def test_without_any_java_one_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "packaged_java", lambda: None)
    old = jdk(tmp_path / "old", "8")
    with pytest.raises(SparkMissing) as raised:
        java_home({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    text = str(raised.value)
    assert f"Java {JAVA_VERSION_MIN} or newer" in text and "is Java 8" in text and "forebay[java]" in text
    assert "\n" not in text


def test_packaged_java_is_called_without_the_module_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = jdk(tmp_path / "packaged", "21.0.8") / "bin" / "java"
    packaged.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    monkeypatch.setattr(java, "packaged_java", lambda: packaged)
    environ = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache dir")}
    home = java_home(environ)
    assert home is not None and java_home(environ) == home
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main"]
    said = subprocess.run([f"{home}/bin/java", *arguments], capture_output=True, text=True, check=True)
    assert said.stdout == "-cp|a b|Main|"


# ------------------------------------------------------------------ hostile use


QUESTIONS = ("facts", "check", "pins", "backlog", "rebuild")


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error, but for a hint at a new name; nothing was printed besides."""
    printed = capsys.readouterr()
    [line] = [line for line in printed.err.splitlines() if not line.endswith(" now")]
    assert printed.out == "" and line.startswith("forebay: ")
    return line


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("named", ["missing", "empty", "file", "", "none-*", "nul\0"])
def test_wrong_paths_exit_with_2_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, question: str, named: str
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    assert main(["pipeline", question, named]) == 2
    said(capsys)


@pytest.mark.parametrize("question", QUESTIONS)
def test_data_log_that_cannot_be_read_is_named_or_reported(
    kept: Path, capsys: pytest.CaptureFixture[str], question: str
) -> None:
    pytest.importorskip("pyarrow")
    with forebay.open(kept, memory_limit="8MiB", sync="never") as bay:
        bay.queue("orders").send(b"second data log")
    first = kept / "localhost" / data_log_name(1)
    first.unlink()
    first.mkdir()
    assert main(["pipeline", question, str(kept)]) == 1
    if question == "check":
        (row,) = json_rows(capsys)
        assert (row["data_log"], row["problem"]) == (1, "the data log cannot be read (Is a directory)")
    else:
        assert "cannot be read (Is a directory)" in said(capsys)
    if question == "facts":
        assert main(["pipeline", question, "--on-damage", "report", str(kept)]) == 1
        rows = json_rows(capsys)
        assert [row["data_log"] for row in rows if row["problem"]] == [1]
        assert sum(row["kind"] == "message" for row in rows) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["load", "missing", "file", "--load-id", "a"],
        ["load", ".", "missing", "--load-id", "a"],
        ["load", ".", "empty", "--load-id", "a"],
        ["load", ".", "file", "--load-id", "../a"],
        ["load", ".", "noise", "--load-id", "a"],
        ["archive", "missing", "out"],
        ["archive", "empty", "out"],
        ["restore", "missing", "out"],
        ["restore", "empty", "out"],
        ["tune", "noise", "--limits", "huge"],
        ["tune", "noise", "--limits", ""],
        ["nonsense"],
        ["facts"],
        ["check", "--engine", "other", "empty"],
        [],
    ],
)
def test_wrong_use_exits_with_2_and_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "noise").write_bytes(bytes(range(256)))
    try:
        code = main(["pipeline", *arguments])
    except SystemExit as left:  # argparse leaves like this
        code = left.code  # type: ignore[assignment]
    printed = capsys.readouterr()
    assert code == 2 and printed.out == ""
    assert printed.err.splitlines()[-1].startswith("forebay") and "Traceback" not in printed.err


@pytest.mark.parametrize("question", [*QUESTIONS, "load", "archive", "restore", "tune"])
def test_without_a_java_one_line_says_what_to_install(
    kept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, question: str
) -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(java, "packaged_java", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    more = {"load": ["x", "--load-id", "a"], "archive": ["out"], "restore": ["out"]}.get(question, [])
    assert main(["pipeline", question, "--engine", "spark", str(kept), *more]) == 1
    assert said(capsys).endswith("install one, set JAVA_HOME, or pip install 'forebay[java]'")


class AskedRdd:
    """Ten partitions of three rows each."""

    def getNumPartitions(self) -> int:  # noqa: N802 - Spark's name
        return 10


class AskedRow(dict[str, int]):
    def asDict(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return dict(self)


class AskedContext:
    """Notes which partitions were asked for at once."""

    defaultParallelism = 2  # noqa: N815 - Spark's name

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def runJob(self, rdd: AskedRdd, function: object, partitions: range) -> list[AskedRow]:  # noqa: N802
        assert function is list
        self.asked.append(list(partitions))
        return [AskedRow(partition=partition, row=row) for partition in partitions for row in range(3)]


def test_spark_works_at_several_partitions_at_once_and_keeps_few_in_memory() -> None:
    context = AskedContext()
    rows = rows_of_partitions(context, AskedRdd())
    assert next(rows) == {"partition": 0, "row": 0} and context.asked == [[0, 1, 2, 3]]
    assert [row["partition"] * 3 + row["row"] for row in rows] == list(range(1, 30))
    assert context.asked == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
