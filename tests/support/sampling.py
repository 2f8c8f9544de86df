"""Which of many cases that are drawn alike every run takes, and which the soak alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet


def sampled(cases: Iterable[object], short: int) -> list[ParameterSet]:
    """Return values for `parametrize`: the first few for every run, the others for the soak.

    For seeds and shares, of which each draws its own way through the same code. Not for cases that differ in what they
    are about.
    """
    return [pytest.param(case, marks=[pytest.mark.soak] if n >= short else []) for n, case in enumerate(cases)]
