"""Completion: the scripts name what there is, and a shell takes them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from forebay.__main__ import COMMANDS, OLD_NAMES, main

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(text: str, words: list[str]) -> set[str]:
    """What bash offers where the last of these words is being written."""
    line = " ".join(f"'{word}'" for word in words)
    program = (
        f"{text}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _forebay; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    ran = subprocess.run(["bash", "--norc", "-c", program], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    return set(ran.stdout.split())


@needs_bash
def test_bash_completes_commands_options_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    text = script("bash", capsys)
    assert completed(text, ["forebay", "ve"]) == {"verify"}
    assert completed(text, ["forebay", ""]) >= {"pipeline", "completion", "send"}
    assert completed(text, ["forebay", "pipeline", ""]) == {"facts", "backlog", "rebuild", "load", "archive", "restore"}
    assert completed(text, ["forebay", "verify", "--j"]) == {"--json"}
    assert completed(text, ["forebay", "verify", "DIR", "--engine", ""]) == {"local", "spark"}
    assert "--bodies" in completed(text, ["forebay", "pipeline", "facts", "DIR", "--"])
    assert completed(text, ["forebay", "completion", "f"]) == {"fish"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_names_each_command_and_no_old_one(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = set(script(shell, capsys).replace("'", " ").split())
    assert {name.rpartition(" ")[2] for name in COMMANDS if name not in OLD_NAMES} <= words
    assert not {"check", "pins", "tune"} & words
