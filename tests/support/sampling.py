"""Choose which of many similar random cases every run takes, and which only the soak takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet


def sampled(cases: Iterable[object], short: int) -> list[ParameterSet]:
    """Return values for `parametrize`: the first few for every run, the others for the soak.

    Use this for seeds and shares, which all go through the same code. Do not use it for cases that test different
    things.
    """
    return [pytest.param(case, marks=[pytest.mark.soak] if n >= short else []) for n, case in enumerate(cases)]
