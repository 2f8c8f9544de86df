"""The command line: `forebay` and `python -m forebay`.

Exit codes: 0 done, 1 a check failed or the work could not be done, 2 wrong
usage. A command's modules are imported when it runs.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from io import TextIOWrapper

from forebay.store.errors import ForebayError, SelectorError, SettingsError

INTERRUPTED = 130
PIPE_CLOSED = 141  # as a shell reports a death by SIGPIPE
DIRECTORY_HELP = "what was given to forebay.open, or the directory of one broker in it"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; wrong usage raises SystemExit, as argparse does."""
    given = sys.argv[1:] if argv is None else argv
    arguments = _parser(given).parse_args(given)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show ends no command
    try:
        exit_code: int = arguments.run(arguments)
        sys.stdout.flush()  # a reader that has gone shows itself here at the latest
        return exit_code
    except KeyboardInterrupt:
        print("forebay: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except (ForebayError, OSError) as error:
        print(f"forebay: {error}", file=sys.stderr)
        return 2 if isinstance(error, (SettingsError, SelectorError)) else 1


def _parser(given: Sequence[str]) -> ArgumentParser:
    parser = ArgumentParser(prog="forebay", description="One memory limit, any backlog.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    load = commands.add_parser(
        "load",
        help="the load test: every message accounted for, through kill -9",
        formatter_class=RawDescriptionHelpFormatter,
        description="Send, kill, recover, consume, and account for every message.",
    )
    if given[:1] == ["load"]:
        _add_load(load)
    demo = commands.add_parser("demo", help="a story of a memory limit, with kill -9 and a verdict, shown live")
    demo.add_argument("--fast", action="store_true", help="in one minute instead of four")
    demo.add_argument("--seconds", metavar="N", type=float, help="in about so many seconds")
    demo.add_argument("--record", metavar="FILE.svg", help="draw the fullest screen and the verdict")
    demo.set_defaults(run=_demo)
    verify = commands.add_parser("verify", help="read a store's journal and name each damaged place")
    verify.add_argument("directory", metavar="DIR", help=DIRECTORY_HELP)
    verify.set_defaults(run=_verify)
    explain = commands.add_parser("explain", help="say why data logs remain, or who holds a queue's messages")
    explain.add_argument("directory", metavar="DIR", help=DIRECTORY_HELP)
    explain.add_argument("data_log", metavar="DATA_LOG", nargs="?", type=int, help="the id of one (all of them)")
    explain.add_argument("--queue", metavar="NAME", help="who holds its messages; of a running store with admin=True")
    explain.set_defaults(run=_explain)
    dump = commands.add_parser("dump", help="print a store's journal as JSON Lines, a line a record or message")
    dump.add_argument("directory", metavar="DIR", help=DIRECTORY_HELP)
    dump.add_argument("--headers", action="store_true", help="with the headers of each message; bodies never")
    dump.set_defaults(run=_dump)
    queues = commands.add_parser("queues", help="show the queues of a running store, the busiest hundred of them")
    queues.add_argument("directory", metavar="DIR", help=DIRECTORY_HELP)
    queues.add_argument("--watch", action="store_true", help="again and again, until interrupted")
    queues.add_argument("--interval", metavar="SECONDS", type=float, default=1.0, help="with --watch (%(default)s)")
    queues.add_argument("--json", action="store_true", help="print one JSON object a line")
    queues.set_defaults(run=_queues)
    top = commands.add_parser("top", help="show memory, queues, consumers and journal of a running store, live")
    top.add_argument("directory", metavar="DIR", help=DIRECTORY_HELP)
    top.add_argument("--once", action="store_true", help="print one screen as plain text, and end")
    top.add_argument("--interval", metavar="SECONDS", type=float, default=1.0, help="between two (%(default)s)")
    top.set_defaults(run=_top)
    health = commands.add_parser("health", help="end with 0 if a store is open and well, else with 1")
    health.add_argument("directory", metavar="DIR", help=DIRECTORY_HELP)
    health.set_defaults(run=_health)
    _add_console(commands.add_parser)
    _add_operations(commands.add_parser)
    pipeline = commands.add_parser("pipeline", help="questions over many brokers, by one process or by Spark")
    if given[:1] == ["pipeline"]:
        _add_pipeline(pipeline)
    plan = commands.add_parser("plan", help="play recorded traffic with other memory limits, and recommend one")
    plan.add_argument("trace", metavar="TRACE", help="a file that Settings(record_trace=...) wrote")
    plan.add_argument("--limits", metavar="SIZES", help='such as "16MiB,24MiB" (4MiB doubled up to 512MiB)')
    plan.add_argument("--svg", metavar="FILE", help="draw the curve (needs forebay[tools])")
    plan.add_argument("--json", action="store_true", help="print one JSON object")
    plan.set_defaults(run=_plan)
    settings = commands.add_parser("settings", help="print all settings, or those that a file asks for")
    settings.add_argument(
        "file", metavar="FILE", nargs="?", help="a .toml, or an activemq.xml (the defaults and the environment)"
    )
    settings.add_argument("--json", action="store_true", help="print one JSON object (not of an activemq.xml)")
    settings.set_defaults(run=_settings)
    return parser


def _add_load(load: ArgumentParser) -> None:
    from forebay.benchmarks.load.command import catalogue

    load.epilog = f"scenarios:\n{catalogue()}"
    load.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="those below, or your own files: *.toml (tour)")
    load.add_argument("--list", action="store_true", help="name the scenarios and end")
    load.add_argument(
        "--input",
        metavar="FILE",
        help="own messages, one JSON object a line: destination, body, headers, priority, message_id",
    )
    load.add_argument("--memory", metavar="SIZE", help="the memory limit (the scenario's, 64MiB)")
    load.add_argument("--dir", metavar="DIR", help="keep the store here; empty or new (a temporary directory)")
    load.add_argument("--json", metavar="FILE", help="write samples, latencies and verdict")
    load.add_argument("--html", metavar="FILE", help="write a page with plots (needs forebay[tools])")
    load.add_argument(
        "--compare",
        nargs=2,
        metavar="FILE",
        help="run nothing: compare two files of --json, and end with 1 where the second is worse",
    )
    load.add_argument("--messages", metavar="N", type=int, help="how many messages (the scenario's, most: 1000000)")
    load.add_argument("--scale", metavar="FACTOR", type=float, help="so many times the scenario's messages")
    load.add_argument("--rate", metavar="STEPS", help='messages a second by schedule, such as "1000:10s,10000:5s"')
    load.add_argument(
        "--size",
        metavar="SIZES",
        help='bytes of a body; several such as "16,1KiB,64KiB" take turns (the scenario\'s, 1KiB)',
    )
    load.add_argument("--rounds", metavar="N", type=int, default=1, help="run all so many times (%(default)s)")
    load.add_argument("--seed", metavar="N", type=int, default=1, help="of the bodies (%(default)s)")
    load.set_defaults(run=_load)


def _add_console(add_parser: Callable[..., ArgumentParser]) -> None:
    console = add_parser("console", help="serve pages about a running store to a browser on this machine")
    console.add_argument("directory", metavar="DIR", help=DIRECTORY_HELP)
    console.add_argument("--port", metavar="N", type=int, default=8470, help="0: any that is free (%(default)s)")
    console.add_argument("--host", default="127.0.0.1", help="with another one reading needs the token (%(default)s)")
    console.add_argument("--name", action="append", default=[], help="a name by which a proxy reaches it; again")
    console.add_argument("--token-file", metavar="FILE", help="its first line is the token (a new one is printed)")
    console.add_argument("--bodies", action="store_true", help="show the beginnings of message bodies, too")
    console.set_defaults(run=_console)


def _add_operations(add_parser: Callable[..., ArgumentParser]) -> None:
    """Add the commands that go through the admin socket."""

    def added(name: str, run: Callable[[Namespace], int], help: str) -> ArgumentParser:
        parser = add_parser(name, help=help, description=f"{help}. Its process must have opened it with admin=True.")
        parser.add_argument("directory", metavar="DIR", help=DIRECTORY_HELP)
        parser.set_defaults(run=run, do=name)
        return parser

    resize = added("resize", _resize, "give a running store another memory limit, until its next open")
    resize.add_argument("memory_limit", metavar="SIZE", help='such as "16MiB"')
    for name, what in (("pause", "have a queue hand out nothing"), ("resume", "have a paused queue hand out again")):
        added(name, _pause, what).add_argument("queue", metavar="QUEUE")
    added("purge", _purge, "remove what is pending and not in flight").add_argument("queue", metavar="QUEUE")
    move = added("move", _move, "move what is pending to another queue")
    move.add_argument("queue", metavar="QUEUE")
    move.add_argument("to", metavar="TO")
    move.add_argument("--selector", metavar="TEXT", help="only what it matches")
    move.add_argument("--limit", metavar="N", type=int, help="so many at most")


def _add_pipeline(parser: ArgumentParser) -> None:
    from forebay.pipeline.commands import bulk as bulk_command
    from forebay.pipeline.commands import questions as command

    add_parser = parser.add_subparsers(required=True, metavar="NAME").add_parser
    command.add_commands(add_parser)
    bulk_command.add_commands(add_parser)


def _load(arguments: Namespace) -> int:
    from forebay.benchmarks.load import command

    return command.load(arguments)


def _demo(arguments: Namespace) -> int:
    from forebay.benchmarks.demo.command import demo

    return demo(arguments)


def _verify(arguments: Namespace) -> int:
    from forebay.dispatch.offline import verify_command

    return verify_command(arguments, print, _show_on_terminal)


def _explain(arguments: Namespace) -> int:
    from forebay.dispatch.operate import explain_live_command

    return explain_live_command(arguments, print)


def _dump(arguments: Namespace) -> int:
    from forebay.dispatch.offline import dump_command

    return dump_command(arguments, print)


def _queues(arguments: Namespace) -> int:
    from forebay.dispatch.live import queues_command

    return queues_command(arguments, print_now, time.sleep)


def _top(arguments: Namespace) -> int:
    from forebay.dispatch.screen.command import top_command

    return top_command(arguments, print_now, time.sleep)


def _health(arguments: Namespace) -> int:
    from forebay.dispatch.live import health_command

    return health_command(arguments, print)


def _console(arguments: Namespace) -> int:
    try:
        from forebay.console.command import console_command
    except ImportError as missing:
        from forebay.console import missing_extra

        raise missing_extra(missing) from None
    return console_command(arguments, print_now)


def _resize(arguments: Namespace) -> int:
    from forebay.dispatch.operate import resize_command

    return resize_command(arguments, print)


def _pause(arguments: Namespace) -> int:
    from forebay.dispatch.operate import pause_command

    return pause_command(arguments, print)


def _purge(arguments: Namespace) -> int:
    from forebay.dispatch.operate import purge_command

    return purge_command(arguments, print)


def _move(arguments: Namespace) -> int:
    from forebay.dispatch.operate import move_command

    return move_command(arguments, print)


def _plan(arguments: Namespace) -> int:
    from forebay.dispatch.planning.command import plan_command

    return plan_command(arguments, print)


def _settings(arguments: Namespace) -> int:
    from forebay.dispatch.config.settings_command import settings_command

    return settings_command(arguments, print)


def print_now(line: str) -> None:
    """Print a line, and let it be seen at once, also by what reads it through a pipe."""
    print(line, flush=True)


def _show_on_terminal(text: str) -> None:
    """Show a text in place of the one shown before."""
    if sys.stderr.isatty():
        print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
