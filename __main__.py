"""The command line: `forebay` and `python -m forebay`.

Exit codes: 0 done, 1 a check failed or the work could not be done, 2 wrong usage, 130 interrupted, 141 the reader of
the output has gone. The modules of a command are imported when it is called.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from io import StringIO, TextIOWrapper
from typing import Any, Final, NamedTuple

from forebay import __version__
from forebay.dispatch.commands.completion import SHELLS, CommandLine, script_for
from forebay.dispatch.commands.streams import Streams, escaped
from forebay.store.errors import ForebayError, SelectorError, SettingsError

EXIT_CODES: Final = (
    "exit codes: 0 done, 1 a check failed or the work could not be done,\n"
    "2 wrong usage, 130 interrupted, 141 whoever reads the output has gone"
)
"""The end of each help text, as lines for the commands that keep line breaks."""
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141  # as a shell reports a death by SIGPIPE


class Command(NamedTuple):
    """An entry in the list of commands."""

    module: str
    """The module that defines it, relative to this package."""
    define: str
    """Name of the function there that adds arguments to a parser, and `run(arguments, streams)` as a default."""
    help: str = ""
    """The help text; "": an old name, which is not listed."""


_BENCHMARKS, _COMMANDS, _PIPELINE = "benchmarks", "dispatch.commands", "pipeline.commands"

COMMANDS: Final[Mapping[str, Command]] = {
    "demo": Command(f"{_BENCHMARKS}.demo.command", "add_demo", "a story of a memory limit, with kill -9, shown live"),
    "bench": Command(f"{_BENCHMARKS}.load.command", "add_bench", "the load test: every message accounted for"),
    "top": Command(f"{_COMMANDS}.running", "add_top", "show a running store live: memory, queues, consumers, journal"),
    "queues": Command(f"{_COMMANDS}.running", "add_queues", "show the queues of a store, the busiest hundred of them"),
    "health": Command(f"{_COMMANDS}.running", "add_health", "end with 0 if a store is open and well, else with 1"),
    "console": Command("console.arguments", "add_console", "serve pages about a running store to a browser"),
    "browse": Command(f"{_COMMANDS}.messages", "add_browse", "show what is pending in a queue, and change nothing"),
    "send": Command(f"{_COMMANDS}.messages", "add_send", "send a message"),
    "take": Command(f"{_COMMANDS}.messages", "add_take", "print the next messages of a queue; --ack removes them"),
    "move": Command(f"{_COMMANDS}.operating", "add_move", "move what is pending to another queue"),
    "purge": Command(f"{_COMMANDS}.operating", "add_purge", "remove what is pending and not in flight"),
    "pause": Command(f"{_COMMANDS}.operating", "add_pause", "have a queue of a running store hand out nothing"),
    "resume": Command(f"{_COMMANDS}.operating", "add_resume", "have a paused queue hand out again"),
    "resize": Command(f"{_COMMANDS}.operating", "add_resize", "give a running store another memory limit"),
    "explain": Command(
        f"{_PIPELINE}.journals", "add_explain", "say why data logs remain, or who holds a queue's messages"
    ),
    "verify": Command(f"{_PIPELINE}.journals", "add_verify", "read whole journals and name each damaged place"),
    "dump": Command(f"{_PIPELINE}.journals", "add_dump", "print journals as JSON Lines, a line a record or message"),
    "plan": Command(
        f"{_PIPELINE}.planning", "add_plan", "play recorded traffic with other memory limits, recommend one"
    ),
    "settings": Command(f"{_COMMANDS}.settings", "add_settings", "print all settings, or those that a file asks for"),
    "pipeline facts": Command(f"{_PIPELINE}.questions", "add_facts", "each record of the journals, a line each"),
    "pipeline backlog": Command(f"{_PIPELINE}.questions", "add_backlog", "what is pending, also of subscriptions"),
    "pipeline rebuild": Command(f"{_PIPELINE}.questions", "add_rebuild", "the index made from the journal, in blocks"),
    "pipeline load": Command(f"{_PIPELINE}.bulk", "add_load", "messages of a file for a store to take over, once"),
    "pipeline archive": Command(f"{_PIPELINE}.bulk", "add_archive", "sealed data logs as Parquet, each verified"),
    "pipeline restore": Command(f"{_PIPELINE}.bulk", "add_restore", "an archive's data logs again, byte for byte"),
    "load": Command(f"{_BENCHMARKS}.load.command", "add_bench"),
    "pipeline check": Command(f"{_PIPELINE}.questions", "add_check"),
    "pipeline pins": Command(f"{_PIPELINE}.questions", "add_pins"),
    "pipeline tune": Command(f"{_PIPELINE}.planning", "add_tune"),
}
"""The commands by name."""

OLD_NAMES: Final = {
    "load": "bench",
    "pipeline check": "verify --json",
    "pipeline pins": "explain --json",
    "pipeline tune": "plan",
}
"""Old names and their new ones, which a command prints in addition to its work."""

_FAMILIES: Final = {"pipeline": "questions and bulk work over many brokers, by one process or by Spark"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; wrong usage raises SystemExit, as argparse does."""
    given = sys.argv[1:] if argv is None else argv
    arguments = _parser(given).parse_args(given)
    if sys.stdout is None:  # the caller has closed it
        return _failed("standard output is closed", 1)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal can't show must not end a command
    err = sys.stderr if sys.stderr is not None else StringIO()
    streams = Streams(sys.stdout, err, _read_input, time.sleep, time.monotonic)
    if arguments.called in OLD_NAMES:
        streams.remark(f"forebay: `forebay {arguments.called}` is `forebay {OLD_NAMES[arguments.called]}` now")
    try:
        exit_code: int = arguments.run(arguments, streams)
        sys.stdout.flush()  # if the reader has gone, this is where it shows at the latest
        return exit_code
    except KeyboardInterrupt:
        return _failed("interrupted", INTERRUPTED)
    except BrokenPipeError:
        _drop_output()
        return PIPE_CLOSED
    except ForebayError as error:
        return _failed(str(error), 2 if isinstance(error, (SettingsError, SelectorError)) else 1)
    except OSError as error:
        return _failed(_in_words(error), 1)


def _in_words(error: OSError) -> str:
    """Return what the system refused and why. An error without a file's name is usually about the output."""
    reason = error.strerror or str(error)
    if isinstance(error.filename, (str, bytes)):
        return f"{os.fsdecode(error.filename)} can't be used ({reason})"
    if error.errno == errno.ENOSPC:
        return f"the output can't be written ({reason}): make room where it goes, and run the command again"
    return f"the system refused what the command needs ({reason})"


def _failed(problem: str, exit_code: int) -> int:
    if sys.stderr is not None:
        print(f"forebay: {escaped(problem)}", file=sys.stderr)
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
    return exit_code


def _drop_output() -> None:
    """Drop output that could not be written, because the interpreter flushes once more when it ends."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _read_input(size_bytes: int) -> bytes:
    if sys.stdin is None:
        raise SettingsError("standard input is closed")
    if sys.stdin.isatty():
        raise SettingsError("standard input is a terminal: give --body, or a file behind <")
    return sys.stdin.buffer.read(size_bytes)


# ---------------------------------------------------------------------- the parser


def _parser(given: Sequence[str]) -> ArgumentParser:
    """Return a parser in which only the given command has its arguments."""
    parser = ArgumentParser(prog="forebay", description="One memory limit, any backlog.", epilog=EXIT_CODES)
    parser.add_argument("--version", action="version", version=f"forebay {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    below: dict[str, Any] = {"": commands}
    for name, command in COMMANDS.items():
        family, _, last = name.rpartition(" ")
        if family not in below:
            text = _FAMILIES[family]
            description = f"{text[0].upper()}{text[1:]}."
            added = commands.add_parser(family, help=text, description=description, epilog=EXIT_CODES)
            below[family] = added.add_subparsers(required=True, metavar="NAME")
        listed: dict[str, Any] = {"help": command.help} if command.help else {}
        added = below[family].add_parser(last, **listed)
        if list(given[: name.count(" ") + 1]) == name.split():
            _define(name, added)
    _add_completion(commands.add_parser("completion", help="print a script that completes commands in a shell"))
    return parser


def _define(name: str, parser: ArgumentParser) -> None:
    command = COMMANDS[name]
    if command.help:
        parser.description = f"{command.help[0].upper()}{command.help[1:]}."  # unless the command says more
    getattr(import_module(f"forebay.{command.module}"), command.define)(parser)
    parser.epilog = f"{parser.epilog}\n\n{EXIT_CODES}" if parser.epilog is not None else EXIT_CODES
    parser.set_defaults(called=name)


def command_lines() -> Iterator[CommandLine]:
    """Yield each command with all its arguments, except old names."""
    for name, command in COMMANDS.items():
        if command.help:
            parser = ArgumentParser(prog=f"forebay {name}")
            _define(name, parser)
            yield CommandLine(name, command.help, parser)
    completion = ArgumentParser(prog="forebay completion")
    _add_completion(completion)
    yield CommandLine("completion", "print a script that completes commands in a shell", completion)


def _add_completion(parser: ArgumentParser) -> None:
    parser.description = (
        "Print a script that completes commands and options: "
        'eval "$(forebay completion bash)" in .bashrc, the same with zsh in .zshrc behind compinit, '
        "and forebay completion fish | source in config.fish."
    )
    parser.epilog = EXIT_CODES
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=_print_completion, called="completion")


def _print_completion(arguments: Namespace, streams: Streams) -> int:
    streams.print(script_for(arguments.shell, list(command_lines())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
