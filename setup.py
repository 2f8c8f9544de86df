"""The build. FOREBAY_COMPILE=1 makes the floors machine code by mypyc, from the same source.

`make test INSTALL=compiled` does so. Without it a wheel is pure Python, which is the default everywhere.
"""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, setup

FLOORS = ("store", "cache", "dispatch")
INTERPRETED = (
    "aio/forebay.py",  # an await costs what it costs
    "aio/queue.py",
    "aio/limited_queue.py",
    "aio/consumer.py",
    "aio/delivery.py",
    "aio/transaction.py",
    "admin/browse.py",  # what these two hold ends when nobody holds it any more
    "admin/finder.py",
    "config/activemq_importer.py",  # not worth it
    "store/account.py",  # what follows is there to be inherited from, or handed in
    "config/policy.py",
    "config/settings.py",
    "disk/disk.py",
    "store/errors.py",
    "store/message.py",
    "metadata/store.py",
    "metadata/sqlite.py",
    "metadata/memory.py",
    "inspect/facts.py",  # what these two hold crosses to other processes, which a frozen class of machine code can't
    "recovery/verify.py",
)
NAMED = Path("build", "named", "forebay")
"""The checkout under the package's name, whatever its folder is called."""


def extensions() -> list[Extension]:
    """One for each module, and one that has the code of all, so that calls between them are C calls."""
    from mypyc.build import mypycify

    NAMED.parent.mkdir(parents=True, exist_ok=True)
    NAMED.unlink(missing_ok=True)
    NAMED.symlink_to(Path.cwd(), target_is_directory=True)
    modules = [
        str(module)
        for floor in FLOORS
        for module in sorted((NAMED / floor).rglob("*.py"))
        if not any(map(module.match, INTERPRETED))
    ]
    # Without the first, the checkout itself, which has an __init__.py, would be the top of each module's name.
    options = ["--no-namespace-packages", "--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
    found: list[Extension] = mypycify([*options, *modules], opt_level="2", debug_level="0", multi_file=True)
    return found


setup(ext_modules=extensions() if os.environ.get("FOREBAY_COMPILE") == "1" else [])
