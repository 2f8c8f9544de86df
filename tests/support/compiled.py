"""Marks of tests that machine code can't pass (`make test INSTALL=compiled`).

Compiled code binds methods and constants early. It does not see a replacement that a test patches in, and its objects
refuse new methods. A test can't inherit from a compiled class, inspect the signatures of its methods, or measure its
objects like those of the interpreter.

Everything else must hold in both builds. An exception raised inside the product is never a reason to skip.
"""

from __future__ import annotations

import pytest

from forebay.dispatch.producer import sender

IS_COMPILED = not str(sender.__file__).endswith(".py")


def interpreted(reason: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test in a compiled build. reason: what only the interpreter can do."""
    assert isinstance(reason, str), "a test was marked without a reason"
    return pytest.mark.skipif(IS_COMPILED, reason=f"compiled code can't: {reason}")
