"""What a test can't ask of machine code (`make test INSTALL=compiled`), and how the test says so.

Compiled code asks no one for what it has linked: it does not see a method or
a constant that a test puts in the place of another, and its objects refuse to
be given another method. Nobody can inherit from a compiled class, ask it for
the signatures of its methods, or weigh its objects as those of the interpreter.

Everything else must hold in both builds. An exception raised inside the
product is never an excuse.
"""

from __future__ import annotations

import pytest

from forebay.dispatch.producer import sender

IS_COMPILED = not str(sender.__file__).endswith(".py")


def interpreted(reason: str) -> pytest.MarkDecorator:
    """Mark a test that asks for what only the interpreter does, and say what that is."""
    assert isinstance(reason, str), "a test was marked without a reason"
    return pytest.mark.skipif(IS_COMPILED, reason=f"compiled code can't: {reason}")
