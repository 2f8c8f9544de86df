"""Values and conditions of a selector, each an object that is evaluated with one mapping of header values.

SQL's third truth value is never computed. A `Condition` answers two questions: "is it TRUE?" and "is it FALSE?". If
both answers are no, the condition is UNKNOWN. NOT swaps the questions, and AND and OR combine the answers of their
sides with `and` and `or`. So only a leaf decides what is UNKNOWN: a header that is NULL or absent, values of different
types, arithmetic on something that is no number, a division by zero. A bool does not count as a number. Of a header
with bytes, a condition can only ask whether it is NULL.

Each question can also be asked of a block of messages of which only fingerprints are known: may the condition be TRUE,
or FALSE, for a message of the block? The answer "no" is always right; "yes" may be wrong. AND and OR ask their sides,
NOT swaps the questions, and a leaf asks the fingerprint of its header.

A condition never raises and keeps nothing between calls. It nests no deeper than the selector's parentheses, with three
calls for each of them, because chains of AND, OR and arithmetic are loops. Each consumer may have a selector of its
own, so a leaf is one small object and not two closures.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Any, Final, TypeGuard

from ...store.errors import SelectorError
from ...store.format.message_properties import encoded_header
from ...store.index.fingerprint import UNKNOWN, Fingerprint, SummaryFingerprint
from ...store.message import HeaderValue
from .like import like_matcher

Values = dict[str, HeaderValue]
Number = int | float
Predicate = Callable[[Values], bool]
Compare = Callable[[Any, Any], bool]
Operation = Callable[[Number, Number], Number]
Fingerprints = Mapping[str, Fingerprint]
Question = Callable[[Fingerprints], bool]

NARROW_END: Final = 1 << 63
"""Ints from here on have more than one encoding in headers."""
EXACT_BITS_MAX: Final = 4_096
"""An exact product of more bits is UNKNOWN. This bounds the cost of the arithmetic of one selector."""
_ABSENT: Final = b"absent"
"""Stands for a missing header. It is compared by identity, and has a type that headers may have."""


class Condition(ABC):
    """A condition that is TRUE, FALSE or UNKNOWN for a message."""

    __slots__ = ()

    @abstractmethod
    def is_true(self, values: Values) -> bool: ...

    @abstractmethod
    def is_false(self, values: Values) -> bool: ...

    def may_be_true(self, fingerprints: Fingerprints) -> bool:
        """Return False only where the condition is TRUE for no message of the block."""
        return True

    def may_be_false(self, fingerprints: Fingerprints) -> bool:
        """Return False only where the condition is FALSE for no message of the block."""
        return True

    @property
    def needles(self) -> frozenset[bytes] | None:
        """Byte strings, one of which is in the encoded headers if the condition is TRUE. None: there is no such set."""
        return None


@dataclass(frozen=True, slots=True)
class Value:
    """An operand: a header by name, a literal, or (with neither) the result of arithmetic."""

    get: Callable[[Values], HeaderValue]
    family: type[str] | type[bool] | type[float] | None
    """The type of the value if it is not NULL; float stands for int as well. None: the message decides."""
    name: str | None = None
    literal: str | Number | None = None


def header(name: str) -> Value:
    if "." in name:
        return Value(_path(name), None, name=name)
    return Value(operator.methodcaller("get", name), None, name=name)


def _path(name: str) -> Callable[[Values], HeaderValue]:
    """Return a function that reads a.b: the header of that very name, or else the value b in the header a.

    A name may have any number of points.
    """
    return _Path(name).find


class _Path:
    __slots__ = ("_name", "_parts")

    def __init__(self, name: str) -> None:
        self._name = name
        self._parts = tuple(map(intern, name.split(".")))

    def find(self, values: Values) -> HeaderValue:
        found = values.get(self._name, _ABSENT)
        if found is not _ABSENT:
            return found
        found = values.get(self._parts[0])
        for part in self._parts[1:]:
            if not isinstance(found, dict):
                return None
            found = found.get(part)
        return found


class _Reached(Condition):
    """A condition on the value of a name with points. The value is looked up in the message first."""

    __slots__ = ("_name", "_find", "_condition")

    def __init__(self, name: str, condition: Condition) -> None:
        self._name = name
        self._find = _path(name)
        self._condition = condition

    def is_true(self, values: Values) -> bool:
        return self._condition.is_true({self._name: self._find(values)})

    def is_false(self, values: Values) -> bool:
        return self._condition.is_false({self._name: self._find(values)})

    @property
    def needles(self) -> frozenset[bytes] | None:
        return self._condition.needles


def _reached(name: str, condition: Condition) -> Condition:
    """Return the condition for a name: as it is, or wrapped so that the value of a name with points is found first."""
    return _Reached(name, condition) if "." in name else condition


def constant(literal: str | Number) -> Value:
    family = str if isinstance(literal, str) else bool if isinstance(literal, bool) else float
    return Value(_Literal(literal).get, family, literal=literal)


class _Literal:
    __slots__ = ("_literal",)

    def __init__(self, literal: str | Number) -> None:
        self._literal = literal

    def get(self, values: Values) -> HeaderValue:
        return self._literal


def negation(condition: Condition) -> Condition:
    return condition.negated if isinstance(condition, _Not) else _Not(condition)


class _Not(Condition):
    __slots__ = ("negated",)

    def __init__(self, negated: Condition) -> None:
        self.negated = negated

    def is_true(self, values: Values) -> bool:
        return self.negated.is_false(values)

    def is_false(self, values: Values) -> bool:
        return self.negated.is_true(values)

    def may_be_true(self, fingerprints: Fingerprints) -> bool:
        return self.negated.may_be_false(fingerprints)

    def may_be_false(self, fingerprints: Fingerprints) -> bool:
        return self.negated.may_be_true(fingerprints)


def all_of(conditions: Sequence[Condition]) -> Condition:
    return _Both(*conditions) if len(conditions) == 2 else _All(tuple(conditions))


class _All(Condition):
    """TRUE where each of its conditions is TRUE, and FALSE where one is FALSE."""

    __slots__ = ("_conditions",)

    def __init__(self, conditions: tuple[Condition, ...]) -> None:
        self._conditions = conditions

    def is_true(self, values: Values) -> bool:
        for condition in self._conditions:
            if not condition.is_true(values):
                return False
        return True

    def is_false(self, values: Values) -> bool:
        for condition in self._conditions:
            if condition.is_false(values):
                return True
        return False

    def may_be_true(self, fingerprints: Fingerprints) -> bool:
        for condition in self._conditions:
            if not condition.may_be_true(fingerprints):
                return False
        return True

    def may_be_false(self, fingerprints: Fingerprints) -> bool:
        for condition in self._conditions:
            if condition.may_be_false(fingerprints):
                return True
        return False

    @property
    def needles(self) -> frozenset[bytes] | None:
        return _needles_of_all(*map(_needles, self._conditions))


def any_of(conditions: Sequence[Condition]) -> Condition:
    return _Either(*conditions) if len(conditions) == 2 else _Any(tuple(conditions))


class _Any(Condition):
    """TRUE where one of its conditions is TRUE, and FALSE where each is FALSE."""

    __slots__ = ("_conditions",)

    def __init__(self, conditions: tuple[Condition, ...]) -> None:
        self._conditions = conditions

    def is_true(self, values: Values) -> bool:
        for condition in self._conditions:
            if condition.is_true(values):
                return True
        return False

    def is_false(self, values: Values) -> bool:
        for condition in self._conditions:
            if not condition.is_false(values):
                return False
        return True

    def may_be_true(self, fingerprints: Fingerprints) -> bool:
        for condition in self._conditions:
            if condition.may_be_true(fingerprints):
                return True
        return False

    def may_be_false(self, fingerprints: Fingerprints) -> bool:
        for condition in self._conditions:
            if not condition.may_be_false(fingerprints):
                return False
        return True

    @property
    def needles(self) -> frozenset[bytes] | None:
        return _needles_of_any(*map(_needles, self._conditions))


class _Pair(Condition):
    __slots__ = ("_first", "_second")

    def __init__(self, first: Condition, second: Condition) -> None:
        self._first, self._second = first, second


class _Both(_Pair):
    """_All for two conditions, the most frequent number, without a loop."""

    __slots__ = ()

    def is_true(self, values: Values) -> bool:
        return self._first.is_true(values) and self._second.is_true(values)

    def is_false(self, values: Values) -> bool:
        return self._first.is_false(values) or self._second.is_false(values)

    def may_be_true(self, fingerprints: Fingerprints) -> bool:
        return self._first.may_be_true(fingerprints) and self._second.may_be_true(fingerprints)

    def may_be_false(self, fingerprints: Fingerprints) -> bool:
        return self._first.may_be_false(fingerprints) or self._second.may_be_false(fingerprints)

    @property
    def needles(self) -> frozenset[bytes] | None:
        return _needles_of_all(self._first.needles, self._second.needles)


class _Either(_Pair):
    """_Any for two conditions, the most frequent number, without a loop."""

    __slots__ = ()

    def is_true(self, values: Values) -> bool:
        return self._first.is_true(values) or self._second.is_true(values)

    def is_false(self, values: Values) -> bool:
        return self._first.is_false(values) and self._second.is_false(values)

    def may_be_true(self, fingerprints: Fingerprints) -> bool:
        return self._first.may_be_true(fingerprints) or self._second.may_be_true(fingerprints)

    def may_be_false(self, fingerprints: Fingerprints) -> bool:
        return self._first.may_be_false(fingerprints) and self._second.may_be_false(fingerprints)

    @property
    def needles(self) -> frozenset[bytes] | None:
        return _needles_of_any(self._first.needles, self._second.needles)


def _needles_of_all(*found: frozenset[bytes] | None) -> frozenset[bytes] | None:
    """Return the fewest needles of conditions that are all TRUE, or None if nothing is known of any."""
    return min((needles for needles in found if needles is not None), key=len, default=None)


def _needles_of_any(*found: frozenset[bytes] | None) -> frozenset[bytes] | None:
    """Return all needles of conditions of which one is TRUE, or None if nothing is known of one of them."""
    known = [needles for needles in found if needles is not None]
    return frozenset().union(*known) if len(known) == len(found) else None


_needles: Final[Callable[[Condition], frozenset[bytes] | None]] = operator.attrgetter("needles")
"""An attrgetter, because a Python function would add a call for each parenthesis, and the stack has no room for it."""


class _Leaf(Condition):
    """A condition on one header."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def may_be_true(self, fingerprints: Fingerprints) -> bool:
        return fingerprints.get(self._name, UNKNOWN).may_be(self._name, self.is_true, self._may_hold)

    def may_be_false(self, fingerprints: Fingerprints) -> bool:
        return fingerprints.get(self._name, UNKNOWN).may_be(self._name, self.is_false, self._may_fail)

    @abstractmethod
    def _may_hold(self, summary: SummaryFingerprint) -> bool:
        """Return from a summary whether the condition may be TRUE."""

    @abstractmethod
    def _may_fail(self, summary: SummaryFingerprint) -> bool:
        """Return from a summary whether the condition may be FALSE."""


def truth(value: Value, position: int) -> Condition:
    """Return the condition that a value is TRUE. SelectorError: the value can't be a boolean."""
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
        return _ComputedComparison(left, right, compare, _alike if sign == "=" else _are_numbers)
    if isinstance(literal, str):
        return _reached(name, _IsString(name, literal))
    if isinstance(literal, bool):
        return _reached(name, _IsBool(name, literal))
    test = _NumberEquals if sign == "=" else _NumberTest
    return _reached(name, test(name, sign, literal))


def between(value: Value, low: Value, high: Value, position: int) -> Condition:
    return all_of([comparison(">=", value, low, position), comparison("<=", value, high, position)])


def is_null(name: str) -> Condition:
    return _reached(name, _IsNull(name))


def is_in(name: str, strings: frozenset[str]) -> Condition:
    return _reached(name, _IsIn(name, strings))


def is_like(name: str, pattern: str, escape: str | None) -> Condition:
    return _reached(name, _IsLike(name, like_matcher(pattern, escape)))


class _IsNull(_Leaf):
    __slots__ = ()

    def is_true(self, values: Values) -> bool:
        return values.get(self._name) is None

    def is_false(self, values: Values) -> bool:
        return values.get(self._name) is not None

    def _may_hold(self, summary: SummaryFingerprint) -> bool:
        return summary.has_null

    def _may_fail(self, summary: SummaryFingerprint) -> bool:
        return summary.has_values


class _IsBool(_Leaf):
    __slots__ = ("_literal",)

    def __init__(self, name: str, literal: bool) -> None:
        super().__init__(name)
        self._literal = literal

    def is_true(self, values: Values) -> bool:
        return values.get(self._name) is self._literal

    def is_false(self, values: Values) -> bool:
        return values.get(self._name) is (not self._literal)

    def _may_hold(self, summary: SummaryFingerprint) -> bool:
        return summary.has_bool(self._literal)

    def _may_fail(self, summary: SummaryFingerprint) -> bool:
        return summary.has_bool(not self._literal)


class _IsString(_Leaf):
    __slots__ = ("_literal",)

    def __init__(self, name: str, literal: str) -> None:
        super().__init__(name)
        self._literal = literal

    def is_true(self, values: Values) -> bool:
        value = values.get(self._name)
        return isinstance(value, str) and value == self._literal

    def is_false(self, values: Values) -> bool:
        value = values.get(self._name)
        return isinstance(value, str) and value != self._literal

    def _may_hold(self, summary: SummaryFingerprint) -> bool:
        return summary.may_have_string(frozenset((self._literal,)))

    def _may_fail(self, summary: SummaryFingerprint) -> bool:
        return summary.has_strings

    @property
    def needles(self) -> frozenset[bytes]:
        return frozenset((_text(self._literal),))


class _IsIn(_Leaf):
    __slots__ = ("_strings",)

    def __init__(self, name: str, strings: frozenset[str]) -> None:
        super().__init__(name)
        self._strings = strings

    def is_true(self, values: Values) -> bool:
        value = values.get(self._name)
        return isinstance(value, str) and value in self._strings

    def is_false(self, values: Values) -> bool:
        value = values.get(self._name)
        return isinstance(value, str) and value not in self._strings

    def _may_hold(self, summary: SummaryFingerprint) -> bool:
        return summary.may_have_string(self._strings)

    def _may_fail(self, summary: SummaryFingerprint) -> bool:
        return summary.has_strings

    @property
    def needles(self) -> frozenset[bytes]:
        return frozenset(map(_text, self._strings))


class _IsLike(_Leaf):
    __slots__ = ("_is_like",)

    def __init__(self, name: str, is_like: Callable[[str], bool]) -> None:
        super().__init__(name)
        self._is_like = is_like

    def is_true(self, values: Values) -> bool:
        value = values.get(self._name)
        return isinstance(value, str) and self._is_like(value)

    def is_false(self, values: Values) -> bool:
        value = values.get(self._name)
        return isinstance(value, str) and not self._is_like(value)

    def _may_hold(self, summary: SummaryFingerprint) -> bool:
        return summary.has_strings

    def _may_fail(self, summary: SummaryFingerprint) -> bool:
        return summary.has_strings


class _NumberTest(_Leaf):
    __slots__ = ("_sign", "_compare", "_literal")

    def __init__(self, name: str, sign: str, literal: Number) -> None:
        super().__init__(name)
        self._sign = sign
        self._compare = _COMPARE[sign]
        self._literal = literal

    # Most numbers are plain ints, and one test of the type saves a call for them.
    def is_true(self, values: Values) -> bool:
        value = values.get(self._name)
        return (type(value) is int or _is_number(value)) and self._compare(value, self._literal)

    def is_false(self, values: Values) -> bool:
        value = values.get(self._name)
        return (type(value) is int or _is_number(value)) and not self._compare(value, self._literal)

    def _may_hold(self, summary: SummaryFingerprint) -> bool:
        if self._sign == "=":
            return summary.may_have_number(self._literal)
        bound = summary.low if self._sign in ("<", "<=") else summary.high
        return summary.has_numbers and self._compare(bound, self._literal)

    def _may_fail(self, summary: SummaryFingerprint) -> bool:
        if self._sign == "=":
            return summary.has_numbers and not summary.low == self._literal == summary.high
        bound = summary.high if self._sign in ("<", "<=") else summary.low
        return summary.has_numbers and not self._compare(bound, self._literal)

    @property
    def needles(self) -> frozenset[bytes] | None:
        """The name followed by the number, encoded as an int and as a float.

        A name with points may be a value inside a header, where only its last part is the name.
        """
        if self._sign != "=" or not -NARROW_END <= self._literal < NARROW_END:
            return None
        name = self._name.rpartition(".")[2]
        return frozenset(encoded_header(name, number) for number in _equal_numbers(self._literal))


class _NumberEquals(_NumberTest):
    """The test for equality. It compares in place, because a scan asks it once for each message."""

    __slots__ = ()

    def is_true(self, values: Values) -> bool:
        value = values.get(self._name)
        return (type(value) is int or _is_number(value)) and value == self._literal


def _text(string: str) -> bytes:
    return string.encode(errors="surrogatepass")


def _equal_numbers(number: Number) -> list[Number]:
    """Return the int and the floats that a number equals. Zero has two floats, which are encoded differently."""
    found: list[Number] = [int(number)] if int(number) == number else []
    if float(number) == number:
        found += [0.0, -0.0] if not number else [float(number)]
    return found


class _ComputedComparison(Condition):
    """A comparison whose two sides are both computed from the message."""

    __slots__ = ("_left", "_right", "_compare", "_comparable")

    def __init__(
        self, left: Value, right: Value, compare: Compare, comparable: Callable[[HeaderValue, HeaderValue], bool]
    ) -> None:
        self._left, self._right = left.get, right.get
        self._compare = compare
        self._comparable = comparable

    def is_true(self, values: Values) -> bool:
        one, other = self._left(values), self._right(values)
        return self._comparable(one, other) and self._compare(one, other)

    def is_false(self, values: Values) -> bool:
        one, other = self._left(values), self._right(values)
        return self._comparable(one, other) and not self._compare(one, other)


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
