"""Checks of arguments: what is accepted, and that the error names what was given."""

from __future__ import annotations

import pytest

from forebay import SettingsError
from forebay.dispatch.config.checks import SECONDS_MAX, check_bounds, check_name, check_seconds, deadline_after


@pytest.mark.parametrize("seconds", [0, 0.5, SECONDS_MAX])
def test_seconds_are_a_number_that_is_not_negative(seconds: float) -> None:
    check_seconds("delay", seconds)
    check_bounds(seconds, 1)


@pytest.mark.parametrize("seconds", [-1, SECONDS_MAX + 1, float("nan"), float("inf"), True, "1", None])
def test_seconds_that_cannot_be_are_named(seconds: object) -> None:
    with pytest.raises(SettingsError, match=r"^delay must be seconds .*, not "):
        check_seconds("delay", seconds)


@pytest.mark.parametrize("max_bytes", [0, -1, 1.5, True, "1"])
def test_bound_of_bytes_is_a_whole_number_from_one_on(max_bytes: object) -> None:
    check_bounds(None, None)
    with pytest.raises(SettingsError, match="^max_bytes must be an int"):
        check_bounds(None, max_bytes)


def test_name_is_any_printable_text_of_bounded_length() -> None:
    for name in ("orders", "orders/../eu", "Bestellungen – Süd", "x" * 255):
        assert check_name(name) == name
    refused: tuple[tuple[object, str], ...] = (
        ("", "non-empty str"),
        (b"orders", "non-empty str"),
        ("x" * 256, "256 bytes is above 255"),
        ("é" * 128, "256 bytes is above 255"),
        ("a\nb", "control character"),
        ("\ud800", "surrogate"),
    )
    for given, problem in refused:
        with pytest.raises(SettingsError, match=f"^a durable subscription's name.*{problem}"):
            check_name(given, "a durable subscription")


def test_deadline_counts_from_now_where_a_timeout_is_given() -> None:
    assert deadline_after(None, 10.0) is None
    assert deadline_after(2.5, 10.0) == 12.5
    refused: tuple[object, ...] = (-1, 1_000_001, float("nan"), True, "1")
    for timeout in refused:
        with pytest.raises(SettingsError, match="^timeout must be seconds"):
            deadline_after(timeout, 10.0)
