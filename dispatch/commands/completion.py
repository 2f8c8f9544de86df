"""Scripts by which a shell completes `forebay`. They are made from the parsers, so that they name exactly what exists.

A script holds all names, so that a shell starts no process when it completes one.
"""

from __future__ import annotations

from argparse import Action, ArgumentParser
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

SHELLS: Final = ("bash", "zsh", "fish")


class CommandLine(NamedTuple):
    """One command, with its name as it is written behind `forebay`."""

    name: str
    help: str
    parser: ArgumentParser

    def options(self) -> list[Action]:
        """Return its options, --help among them."""
        return [action for action in self._arguments() if action.option_strings]

    def positionals(self) -> list[Action]:
        """Return its arguments that are no options."""
        return [action for action in self._arguments() if not action.option_strings]

    def _arguments(self) -> list[Action]:
        return self.parser._actions  # argparse has no public list of them


def script_for(shell: str, commands: Sequence[CommandLine]) -> str:
    """Return the script that a shell is to evaluate."""
    if shell == "fish":
        return "\n".join(_fish(commands))
    begin = ["autoload -U +X bashcompinit && bashcompinit"] if shell == "zsh" else []
    return "\n".join([*begin, *_bash(commands)])


def _bash(commands: Sequence[CommandLine]) -> Iterator[str]:
    families: dict[str, list[str]] = {}
    for command in commands:
        family, _, name = command.name.rpartition(" ")
        families.setdefault(family, []).append(name)
    names = [*families.pop(""), *families]
    yield "_forebay() {"
    yield '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""'
    yield '    case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in'
    for command in sorted(commands, key=lambda found: -found.name.count(" ")):
        pattern = f"{_quoted(command.name)}" if " " in command.name else f"{_quoted(f'{command.name} ')}*"
        yield f"        {pattern})"
        yield '            case "$before" in'
        for action in command.options():
            if action.choices is not None:
                yield f"                {'|'.join(action.option_strings)}) words={_quoted(_choices(action))} ;;"
        words = " ".join(word for action in command.options() for word in action.option_strings)
        words = " ".join([words, *(_choices(action) for action in command.positionals() if action.choices)])
        yield f"                *) words={_quoted(words)} ;;"
        yield "            esac ;;"
    for family, below in families.items():
        yield f"        {_quoted(f'{family} ')}*) words={_quoted(' '.join(below))} ;;"
    yield "    esac"
    yield f"    [[ $COMP_CWORD -eq 1 ]] && words={_quoted(' '.join([*names, '--help', '--version']))}"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$word"))'
    yield "}"
    yield "complete -o default -F _forebay forebay"


def _fish(commands: Sequence[CommandLine]) -> Iterator[str]:
    yield "complete -c forebay -n __fish_use_subcommand -l version"
    yield "complete -c forebay -s h -l help"
    told: set[str] = set()
    for command in commands:
        family, _, name = command.name.rpartition(" ")
        if family and family not in told:
            told.add(family)
            yield f"complete -c forebay -f -n __fish_use_subcommand -a {family}"
        where = f"'__fish_seen_subcommand_from {family}'" if family else "__fish_use_subcommand"
        yield f"complete -c forebay -f -n {where} -a {name} -d {_quoted(command.help)}"
        seen = f"'__fish_seen_subcommand_from {name}'"
        if family:
            seen = f"'__fish_seen_subcommand_from {family}; and __fish_seen_subcommand_from {name}'"
        for action in command.options():
            flags = " ".join(
                f"-l {one[2:]}" if one.startswith("--") else f"-s {one[1:]}" for one in action.option_strings
            )
            words = f" -x -a {_quoted(_choices(action))}" if action.choices is not None else ""
            if words or action.dest != "help":
                yield f"complete -c forebay -n {seen} {flags}{words}"
        for action in command.positionals():
            if action.choices is not None:
                yield f"complete -c forebay -f -n {seen} -a {_quoted(_choices(action))}"


def _choices(action: Action) -> str:
    return " ".join(map(str, action.choices or ()))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
