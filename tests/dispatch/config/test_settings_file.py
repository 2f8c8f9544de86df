"""Settings without code: from a TOML file and the environment, and back."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest

from forebay import DestinationPolicy, Settings, SettingsError
from forebay.__main__ import main

SEED = 11

CHOSEN = Settings(
    broker_name="north",
    memory_limit="64MiB",
    sync="interval",
    status_interval_seconds=None,
    archive_directory='/var/"odd" \\ name \x7f \u00e9',
    background=False,
    policies={
        "orders.>": DestinationPolicy(max_messages=100, max_attempts=None, when_full="fail"),
        'a "quoted" name': DestinationPolicy(dead_letter_queue=None, slow_consumer_seconds=0.5),
    },
)


def written(directory: Path, text: str) -> Path:
    path = directory / "forebay.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("settings", [Settings(), CHOSEN], ids=["defaults", "chosen"])
def test_a_file_that_settings_write_is_read_back_as_equal_settings(tmp_path: Path, settings: Settings) -> None:
    assert Settings.from_toml(written(tmp_path, settings.to_toml())) == settings


def another(name: str, value: Any, admitted: str) -> Any:
    """A value that the field admits and that is not its default."""
    chosen: dict[str, object] = {"sync": "interval", "on_missing_data_log": "report", "when_full": "drop_oldest"}
    chosen |= {"when_store_full": "block", "eviction": "newest", "count_on_close": "all", "broker_name": "north"}
    chosen |= {"admin": True, "index_page_size": "8KiB", "dead_letter_queue": "dead", "max_message_bytes": "1MiB"}
    if name in chosen:
        return chosen[name]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1 if "int" in admitted and not isinstance(value, float) else value + 0.5
    if "int | str" in admitted:
        return 8 << 20
    if "int" in admitted:
        return 7
    return 2.5 if "float" in admitted else "some text"


@pytest.mark.parametrize("field", [field for field in dataclasses.fields(Settings) if field.init], ids=lambda f: f.name)
def test_each_setting_comes_back_from_a_file(tmp_path: Path, field: dataclasses.Field[Any]) -> None:
    if field.name == "policies":
        return  # those are next
    default = getattr(Settings(), field.name)
    settings = dataclasses.replace(Settings(), **{field.name: another(field.name, default, str(field.type))})
    assert settings != Settings()
    assert Settings.from_toml(written(tmp_path, settings.to_toml())) == settings


@pytest.mark.parametrize(
    "field", [field for field in dataclasses.fields(DestinationPolicy) if field.init], ids=lambda field: field.name
)
def test_each_field_of_a_policy_comes_back_from_a_file(tmp_path: Path, field: dataclasses.Field[Any]) -> None:
    default = getattr(DestinationPolicy(), field.name)
    policy = DestinationPolicy(**{field.name: another(field.name, default, str(field.type))})
    assert policy != DestinationPolicy()
    settings = Settings(policies={"orders.*": policy, ">": DestinationPolicy()})
    assert Settings.from_toml(written(tmp_path, settings.to_toml())) == settings


@pytest.mark.parametrize("size", ["64MB", "64M", "64 MiB", "64mib", 64_000_000])
def test_a_size_is_taken_in_every_usual_form(tmp_path: Path, size: int | str) -> None:
    settings = Settings(memory_limit=size)
    assert settings.memory_limit_bytes in (64_000_000, 64 << 20)
    assert Settings.from_toml(written(tmp_path, settings.to_toml())) == settings
    assert Settings.from_env(environment={"FOREBAY_MEMORY_LIMIT": str(size)}) == settings


def test_what_a_file_leaves_out_is_the_default(tmp_path: Path) -> None:
    found = Settings.from_toml(str(written(tmp_path, 'sync = "never"')))
    assert found == Settings(sync="never")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sync = ", "is not TOML"),
        ("sync = 'sometimes'", "sync="),
        ("memory_limits = 1", "did you mean 'memory_limit'"),
        ("memory_limit_bytes = 1", "there is no setting"),
        ("policies = 1", "policies must be tables"),
        ("policies.orders = 1", "policies must be tables"),
        ("[policies.orders]\nmax_message = 1", "did you mean 'max_messages'"),
        ("[policies.orders]\nmax_messages = 0", 'policies."orders": max_messages=0'),
        ("memory_limit = 1979-05-27", "memory_limit="),
        ("background = 'none'", "background="),
        ("a = " + "[" * 100_000, "is not TOML"),
        ("#" * (1 << 20) + "#", "has more than"),
    ],
    ids=lambda text: text[:30],
)
def test_a_file_that_is_none_of_settings_is_refused_by_its_name_and_the_reason(
    tmp_path: Path, text: str, said: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as refusal:
        Settings.from_toml(path)
    assert said in str(refusal.value) and str(path) in str(refusal.value)
    assert len(str(refusal.value)) < 1_000 + len(str(path))


def test_a_file_that_is_not_there_is_a_settings_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="can't be read"):
        Settings.from_toml(tmp_path / "none.toml")


def test_random_bytes_are_settings_or_a_settings_error(tmp_path: Path) -> None:
    chosen, good = random.Random(SEED), CHOSEN.to_toml().encode()
    path = tmp_path / "forebay.toml"
    for _ in range(2_000):
        data = bytearray(good)
        for _ in range(chosen.randrange(1, 4)):
            at = chosen.randrange(len(data))
            data[at : at + chosen.randrange(3)] = chosen.randbytes(chosen.randrange(3))
        path.write_bytes(data)
        try:
            Settings.from_toml(path)
        except SettingsError:
            continue


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("FOREBAY_MEMORY_LIMIT", "64MiB", "memory_limit", "64MiB"),
        ("FOREBAY_MEMORY_LIMIT", "67108864", "memory_limit", 67_108_864),
        ("FOREBAY_MEMORY_LIMIT", "none", "memory_limit", None),
        ("FOREBAY_SYNC", "never", "sync", "never"),
        ("FOREBAY_BACKGROUND", "False", "background", False),
        ("FOREBAY_BACKGROUND", "1", "background", True),
        ("FOREBAY_MAX_CHECKPOINT_ADDS", "1000", "max_checkpoint_adds", 1000),
        ("FOREBAY_STATUS_INTERVAL_SECONDS", "none", "status_interval_seconds", None),
        ("FOREBAY_STATUS_INTERVAL_SECONDS", "2.5", "status_interval_seconds", 2.5),
        ("FOREBAY_ARCHIVE_DIRECTORY", "/archive", "archive_directory", "/archive"),
        ("FOREBAY_BROKER_NAME", "7", "broker_name", "7"),
    ],
)
def test_a_variable_is_a_field_in_capitals_behind_the_prefix(variable: str, text: str, name: str, value: Any) -> None:
    found = Settings.from_env(environment={variable: text, "HOME": "/", "FOREBAY_SOMETHING_ELSE": "x"})
    assert found == dataclasses.replace(Settings(), **{name: value})
    assert Settings.from_env("OTHER_", {variable: text}) == Settings()


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("FOREBAY_MEMORY_LIMITS", "64MiB", "did you mean FOREBAY_MEMORY_LIMIT?"),
        ("FOREBAY_MEM_LIMIT", "64MiB", "there is no setting FOREBAY_MEM_LIMIT: did you mean FOREBAY_MEMORY_LIMIT?"),
        ("FOREBAY__MEMORY_LIMIT", "64MiB", "did you mean FOREBAY_MEMORY_LIMIT?"),
        ("FOREBAY_MEMORY", "64MiB", "did you mean FOREBAY_MEMORY_LIMIT?"),
        ("FOREBAY_STATUS_INTERVAL", "2", "did you mean FOREBAY_STATUS_INTERVAL_SECONDS?"),
        ("FOREBAY_MAX_MESSAGE_SIZE", "2", "did you mean FOREBAY_MAX_MESSAGE_BYTES?"),
        ("FOREBAY_BACKGROUND", "perhaps", "must be one of true"),
        ("FOREBAY_MEMORY_LIMIT", "much", "memory_limit='much'"),
        ("FOREBAY_MAX_CHECKPOINT_ADDS", "many", "max_checkpoint_adds='many'"),
        ("FOREBAY_POLICIES", "{}", "from_toml"),
    ],
)
def test_a_variable_that_cannot_be_honoured_is_refused(variable: str, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        Settings.from_env(environment={variable: text})
    assert said in str(refusal.value)


def test_variables_that_hosts_and_kubernetes_have_of_their_own_are_passed_over() -> None:
    of_service = ("SERVICE_HOST", "SERVICE_PORT", "PORT", "PORT_80_TCP", "PORT_80_TCP_PROTO", "PORT_80_TCP_ADDR")
    of_host = ("", "DIRECTORY", "TOKEN", "LOG_LEVEL", "VERSION", "ADMIN_TOKEN")
    environment = {f"FOREBAY_{name}": "1" for name in (*of_service, *of_host)}
    assert Settings.from_env(environment=environment) == Settings()


@pytest.mark.parametrize("store", ["EU", "TEST", "ORDERS", "AUDIT"])
def test_one_prefix_may_be_the_beginning_of_another_store_s(store: str) -> None:
    environment = {"FOREBAY_SYNC": "never"}
    for field in dataclasses.fields(Settings):
        if field.init and field.name != "sync":
            environment[f"FOREBAY_{store}_{field.name.upper()}"] = "1"
    assert Settings.from_env(environment=environment) == Settings(sync="never")
    environment = {f"FOREBAY_{store}_MEMORY_LIMIT": "64MiB"}
    assert Settings.from_env(f"FOREBAY_{store}_", environment).memory_limit == "64MiB"


def test_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_TEST_SYNC", "never")
    assert Settings.from_env("FOREBAY_TEST_").sync == "never"


def test_a_path_is_taken_where_a_path_is_wanted(tmp_path: Path) -> None:
    settings = Settings(archive_directory=tmp_path / "archive", record_trace=tmp_path / "trace")
    assert settings == Settings(archive_directory=str(tmp_path / "archive"), record_trace=str(tmp_path / "trace"))
    assert isinstance(settings.archive_directory, str)


def test_the_command_prints_every_setting_with_its_default_its_value_and_what_a_size_means(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_MEMORY_LIMIT", "64M")
    assert main(["settings"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [field.name for field in dataclasses.fields(Settings) if field.init and field.name != "policies"]
    assert lines[0].split() == ["setting", "default", "value", "means"]
    assert [line.split()[0] for line in lines[1:]] == names
    assert next(line.split() for line in lines if line.startswith("memory_limit ")) == [
        "memory_limit",
        "None",
        '"64M"',
        "64MiB",
    ]


def test_the_command_prints_what_a_file_gives_also_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, CHOSEN.to_toml())
    assert main(["settings", str(path)]) == 0
    assert "DestinationPolicy(max_messages=100" in capsys.readouterr().out
    assert main(["settings", str(path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["memory_limit"] == {"default": None, "value": "64MiB", "means": "64MiB"}
    assert printed["policies"]["orders.>"]["max_messages"] == 100


def test_the_command_prints_a_file_that_gives_the_same_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_SYNC", "never")
    assert main(["settings", "--toml"]) == 0
    assert Settings.from_toml(written(tmp_path, capsys.readouterr().out)) == Settings(sync="never")
    path = written(tmp_path, CHOSEN.to_toml())
    assert main(["settings", str(path), "--toml"]) == 0
    assert capsys.readouterr().out == CHOSEN.to_toml()


def test_a_wrong_file_ends_the_command_with_2_and_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", str(written(tmp_path, "sync = 1"))]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("forebay: ")
