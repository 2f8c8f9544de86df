"""A bug that a store could have: a change of one place of the source, and the tests that must find it.

planted_store_bugs.py, planted_dispatch_bugs.py, planted_feature_bugs.py,
planted_interleaving_bugs.py and planted_machine_bugs.py list them, and
test_planted_bugs.py plants them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Bug(NamedTuple):
    name: str
    """What the broken store does."""
    file: str
    old: str
    """In the file once; becomes `new`."""
    new: str
    test: str
    """The quickest that finds it: an argument of pytest."""


def in_file(file: str, *bugs: tuple[str, str, str, str]) -> Iterator[Bug]:
    """The bugs of one file, each as (name, old, new, test)."""
    for name, old, new, test in bugs:
        yield Bug(name, file, old, new, test)
