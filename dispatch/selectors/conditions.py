"""Values and conditions of a selector, each a closure over one mapping of header values.

SQL's third truth value is never computed. A `Condition` is two plain
predicates, "it is TRUE" and "it is FALSE"; where neither holds it is UNKNOWN.
NOT swaps them, AND and OR combine each side with `and` and `or`, so a leaf
alone decides what is UNKNOWN: a header that is NULL or absent, values of
different types, arithmetic on what is no number, a division by zero. A bool
is no number here; bytes can be nothing but present.

Beside each predicate stands the same question about a block of messages, of which only fingerprints are known: "may it
be TRUE, or FALSE, for a message of the block?" The answer "no" is always right. AND and OR ask their sides, NOT swaps
the questions, and a leaf asks the fingerprint of its header.

Closures never raise, keep nothing between calls, and nest no deeper than the
selector's parentheses, three calls each: chains of AND, OR and arithmetic are
loops.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard, TypeVar

from ...store.errors import SelectorError
from ...store.index.fingerprint import UNKNOWN, Fingerprint, SummaryFingerprint
from ...store.message import HeaderValue
from .like import like_matcher

Values = Mapping[str, HeaderValue]
Number = int | float
Predicate = Callable[[Values], bool]
Compare = Callable[[Any, Any], bool]
Operation = Callable[[Number, Number], Number]
Fingerprints = Mapping[str, Fingerprint]
Question = Callable[[Fingerprints], bool]
Ask = Callable[[SummaryFingerprint], bool]
T = TypeVar("T")

EXACT_BITS_MAX: Final = 4_096
"""An exact product wider than this is UNKNOWN: it bounds what the arithmetic of one selector can cost."""
_ABSENT: Final = b"absent"
"""No header: known by its identity, and a value that headers may have, so that a mapping of them takes it."""


def perhaps(fingerprints: Fingerprints) -> bool:
    """Answer the question about a block where fingerprints tell nothing."""
    return True


@dataclass(frozen=True, slots=True)
class Condition:
    is_true: Predicate
    is_false: Predicate
    may_be_true: Question = perhaps
    may_be_false: Question = perhaps
    strings: frozenset[str] | None = None
    """Strings, one of which is a header's value wherever the condition is TRUE; None: nothing is known."""


@dataclass(frozen=True, slots=True)
class Value:
    """An operand: a header by name, a literal, or (with neither) the result of arithmetic."""

    get: Callable[[Values], HeaderValue]
    family: type[str] | type[bool] | type[float] | None
    """The type that it always has if it is not NULL; float stands for int as well. None: whatever the message holds."""
    name: str | None = None
    literal: str | Number | None = None


def header(name: str) -> Value:
    if "." in name:
        return Value(_path(name), None, name=name)
    return Value(lambda values: values.get(name), None, name=name)


def _path(name: str) -> Callable[[Values], HeaderValue]:
    """Return what reads a.b: the header of that very name, else what the header a has under b, however deep."""
    root, *inner = name.split(".")

    def find(values: Values) -> HeaderValue:
        found = values.get(name, _ABSENT)
        if found is not _ABSENT:
            return found
        found = values.get(root)
        for part in inner:
            if not isinstance(found, dict):
                return None
            found = found.get(part)
        return found

    return find


def _reached(name: str, condition: Condition) -> Condition:
    """Return a condition on the value of one name, for a message: a name without points is looked up as it is."""
    if "." not in name:
        return condition
    find, is_true, is_false = _path(name), condition.is_true, condition.is_false
    return Condition(
        lambda values: is_true({name: find(values)}),
        lambda values: is_false({name: find(values)}),
        strings=condition.strings,
    )


def constant(literal: str | Number) -> Value:
    family = str if isinstance(literal, str) else bool if isinstance(literal, bool) else float
    return Value(lambda values: literal, family, literal=literal)


def negation(condition: Condition) -> Condition:
    return Condition(condition.is_false, condition.is_true, condition.may_be_false, condition.may_be_true)


def all_of(conditions: Sequence[Condition]) -> Condition:
    known = [one.strings for one in conditions if one.strings is not None]
    is_true, is_false = _every([one.is_true for one in conditions]), _some([one.is_false for one in conditions])
    may_be_true = _every([one.may_be_true for one in conditions])
    may_be_false = _some([one.may_be_false for one in conditions])
    return Condition(is_true, is_false, may_be_true, may_be_false, min(known, key=len, default=None))


def any_of(conditions: Sequence[Condition]) -> Condition:
    known = [one.strings for one in conditions if one.strings is not None]
    is_true, is_false = _some([one.is_true for one in conditions]), _every([one.is_false for one in conditions])
    may_be_true = _some([one.may_be_true for one in conditions])
    may_be_false = _every([one.may_be_false for one in conditions])
    strings = frozenset().union(*known) if len(known) == len(conditions) else None
    return Condition(is_true, is_false, may_be_true, may_be_false, strings)


def _about(
    name: str, is_true: Predicate, is_false: Predicate, true: Ask, false: Ask, strings: frozenset[str] | None = None
) -> Condition:
    """Return the condition on one header. true, false: answer from a summary whether it may be TRUE, or FALSE."""

    def may_be_true(fingerprints: Fingerprints) -> bool:
        return fingerprints.get(name, UNKNOWN).may_be(name, is_true, true)

    def may_be_false(fingerprints: Fingerprints) -> bool:
        return fingerprints.get(name, UNKNOWN).may_be(name, is_false, false)

    return _reached(name, Condition(is_true, is_false, may_be_true, may_be_false, strings))


def _every(tests: list[Callable[[T], bool]]) -> Callable[[T], bool]:
    if len(tests) == 2:
        first, second = tests
        return lambda values: first(values) and second(values)

    def every(values: T) -> bool:
        for test in tests:
            if not test(values):
                return False
        return True

    return every


def _some(tests: list[Callable[[T], bool]]) -> Callable[[T], bool]:
    if len(tests) == 2:
        first, second = tests
        return lambda values: first(values) or second(values)

    def some(values: T) -> bool:
        for test in tests:
            if test(values):
                return True
        return False

    return some


def truth(value: Value, position: int) -> Condition:
    """Return the condition that a value is TRUE. SelectorError for a value that can't be a boolean."""
    if value.family not in (None, bool):
        raise SelectorError("expected a condition, found a string or a number", position)
    return comparison("=", value, constant(True), position)


def comparison(sign: str, left: Value, right: Value, position: int) -> Condition:
    if sign == "<>":
        return negation(comparison("=", left, right, position))
    if sign != "=" and (left.family in (str, bool) or right.family in (str, bool)):
        raise SelectorError("strings and booleans can only be compared with = and <>", position)
    if left.literal is not None:
        left, right, sign = right, left, _MIRRORED[sign]
    name, literal, compare = left.name, right.literal, _COMPARE[sign]
    if name is None or literal is None:
        return _computed_comparison(left, right, compare, _alike if sign == "=" else _are_numbers)
    if isinstance(literal, str):
        return _string_test(name, literal.__eq__, frozenset((literal,)))
    if isinstance(literal, bool):
        opposite = not literal
        return _about(
            name,
            lambda values: values.get(name) is literal,
            lambda values: values.get(name) is opposite,
            lambda summary: summary.has_bool(literal),
            lambda summary: summary.has_bool(opposite),
        )
    return _number_test(name, sign, literal)


def between(value: Value, low: Value, high: Value, position: int) -> Condition:
    return all_of([comparison(">=", value, low, position), comparison("<=", value, high, position)])


def is_null(name: str) -> Condition:
    return _about(
        name,
        lambda values: values.get(name) is None,
        lambda values: values.get(name) is not None,
        lambda summary: summary.has_null,
        lambda summary: summary.has_values,
    )


def is_in(name: str, strings: frozenset[str]) -> Condition:
    return _string_test(name, strings.__contains__, strings)


def is_like(name: str, pattern: str, escape: str | None) -> Condition:
    return _string_test(name, like_matcher(pattern, escape))


def _string_test(name: str, test: Callable[[str], bool], strings: frozenset[str] | None = None) -> Condition:
    def is_true(values: Values) -> bool:
        value = values.get(name)
        return isinstance(value, str) and test(value)

    def is_false(values: Values) -> bool:
        value = values.get(name)
        return isinstance(value, str) and not test(value)

    def true(summary: SummaryFingerprint) -> bool:
        return summary.has_strings if strings is None else summary.may_have_string(strings)

    return _about(name, is_true, is_false, true, lambda summary: summary.has_strings, strings)


def _number_test(name: str, sign: str, literal: Number) -> Condition:
    compare = _COMPARE[sign]

    # Most numbers are plain ints: one test of the type saves them a call.
    def is_true(values: Values) -> bool:
        value = values.get(name)
        return (type(value) is int or _is_number(value)) and compare(value, literal)

    def is_false(values: Values) -> bool:
        value = values.get(name)
        return (type(value) is int or _is_number(value)) and not compare(value, literal)

    true, false = _number_questions(sign, literal)
    return _about(name, is_true, is_false, true, false)


def _number_questions(sign: str, literal: Number) -> tuple[Ask, Ask]:
    """Return what answers from a summary whether a comparison may be TRUE, and whether it may be FALSE."""
    compare = _COMPARE[sign]
    if sign == "=":
        return (
            lambda summary: summary.may_have_number(literal),
            lambda summary: summary.has_numbers and not summary.low == literal == summary.high,
        )
    if sign in ("<", "<="):
        return (
            lambda summary: summary.has_numbers and compare(summary.low, literal),
            lambda summary: summary.has_numbers and not compare(summary.high, literal),
        )
    return (
        lambda summary: summary.has_numbers and compare(summary.high, literal),
        lambda summary: summary.has_numbers and not compare(summary.low, literal),
    )


def _computed_comparison(
    left: Value, right: Value, compare: Compare, comparable: Callable[[HeaderValue, HeaderValue], bool]
) -> Condition:
    get_left, get_right = left.get, right.get

    def is_true(values: Values) -> bool:
        one, other = get_left(values), get_right(values)
        return comparable(one, other) and compare(one, other)

    def is_false(values: Values) -> bool:
        one, other = get_left(values), get_right(values)
        return comparable(one, other) and not compare(one, other)

    return Condition(is_true, is_false)


def _is_number(value: HeaderValue) -> TypeGuard[Number]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_numbers(one: HeaderValue, other: HeaderValue) -> bool:
    return _is_number(one) and _is_number(other)


def _alike(one: HeaderValue, other: HeaderValue) -> bool:
    if isinstance(one, str):
        return isinstance(other, str)
    if isinstance(one, bool):
        return isinstance(other, bool)
    return _are_numbers(one, other)


_COMPARE: Final[dict[str, Compare]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def arithmetic(operands: Sequence[Value], signs: Sequence[str], position: int) -> Value:
    """Join operands by signs of one rank, from left to right."""
    _require_numbers(operands, position)
    first = operands[0].get
    steps = [(_OPERATION[sign], operand.get) for sign, operand in zip(signs, operands[1:], strict=True)]

    def compute(values: Values) -> HeaderValue:
        total = first(values)
        if not (type(total) is int or _is_number(total)):
            return None
        for operation, operand in steps:
            value = operand(values)
            if not (type(value) is int or _is_number(value)):
                return None
            try:
                total = operation(total, value)
            except ArithmeticError:  # division by zero, an int too wide for a float, or a product too wide
                return None
        return total

    return Value(compute, float)


def signed(value: Value, negative: bool, position: int) -> Value:
    """Apply the signs in front of a value."""
    _require_numbers([value], position)
    if _is_number(value.literal):
        return constant(-value.literal if negative else value.literal)
    return arithmetic([constant(-1 if negative else 1), value], ["*"], position)


def _require_numbers(operands: Sequence[Value], position: int) -> None:
    if any(operand.family in (str, bool) for operand in operands):
        raise SelectorError("arithmetic takes numbers only", position)


def _multiply(one: Number, other: Number) -> Number:
    product = one * other
    if isinstance(product, int) and product.bit_length() > EXACT_BITS_MAX:
        raise OverflowError
    return product


def _divide(dividend: Number, divisor: Number) -> Number:
    """Divide as Java does: integers give an integer, cut off towards zero."""
    if isinstance(dividend, int) and isinstance(divisor, int):
        quotient = abs(dividend) // abs(divisor)
        return quotient if (dividend < 0) == (divisor < 0) else -quotient
    return dividend / divisor


_OPERATION: Final[dict[str, Operation]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": _multiply,
    "/": _divide,
}
