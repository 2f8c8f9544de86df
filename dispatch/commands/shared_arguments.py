"""Arguments and help texts that several commands share."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Final

DIRECTORY: Final = "what was given to forebay.open, or the directory of one broker in it"


def add_directory(parser: ArgumentParser) -> None:
    """Add the argument DIR, of one store."""
    parser.add_argument("directory", metavar="DIR", help=DIRECTORY)


def add_directories(parser: ArgumentParser) -> None:
    """Add the argument DIR, of one or more stores."""
    parser.add_argument("directories", metavar="DIR", nargs="+", help=f"{DIRECTORY}; several, or a glob in quotes")


def add_json(parser: ArgumentParser, what: str) -> None:
    """Add the option --json.

    what: says which lines are one JSON object each.
    """
    parser.add_argument("--json", action="store_true", help=f"print JSON: {what}")
