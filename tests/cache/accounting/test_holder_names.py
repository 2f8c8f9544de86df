"""The page about the cache names each holder of memory that there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from forebay.cache.accounting import holder_names

PAGE = Path(__file__).resolve().parents[3] / "docs/internals/cache.md"
HOLDERS = sorted(value for name, value in vars(holder_names).items() if name.isupper())


def holders_of_table(header: str) -> list[str]:
    """Return the holders in the first column of the table that begins with this header."""
    _, _, behind = PAGE.read_text("utf-8").partition(header)
    rows, _, _ = behind.partition("\n\n")
    return re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE)


def test_the_ledger_has_a_row_for_each_holder_and_no_other() -> None:
    assert sorted(holders_of_table("| holder | charged for |")) == HOLDERS


def test_what_holders_do_at_their_bound_is_said_of_holders_that_there_are() -> None:
    found = holders_of_table("| holder | at its bound |")
    assert found and set(found) <= set(HOLDERS)
