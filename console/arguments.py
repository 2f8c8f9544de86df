"""The arguments of `forebay console`. They are known even if the packages that serve it are not installed."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ..dispatch.commands.shared_arguments import add_directory
from ..dispatch.commands.streams import Streams
from . import missing_extra


def add_console(parser: ArgumentParser) -> None:
    """Define `forebay console`."""
    parser.description = (
        "Serve pages about a running store to browsers on this machine, until interrupted. Needs forebay[console]."
    )
    add_directory(parser)
    parser.add_argument("--port", metavar="N", type=int, default=8470, help="0: any that is free (%(default)s)")
    parser.add_argument(
        "--host", metavar="HOST", default="127.0.0.1", help="with another one reading needs the token (%(default)s)"
    )
    parser.add_argument(
        "--name", metavar="NAME", action="append", default=[], help="a name by which a proxy reaches it"
    )
    parser.add_argument("--token-file", metavar="FILE", help="its first line is the token (a new one is printed)")
    parser.add_argument("--bodies", action="store_true", help="show the beginnings of message bodies, too")
    parser.set_defaults(run=run_console)


def run_console(arguments: Namespace, streams: Streams) -> int:
    """Serve the pages until interrupted."""
    try:
        from .command import console_command
    except ImportError as missing:
        raise missing_extra(missing) from None
    return console_command(arguments, streams.print_now)
