"""Selectors against slow oracles: the definition of LIKE, and an interpreter with three truth values; and any text."""

from __future__ import annotations

import math
import operator
import random
import time
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.dispatch.selectors.like import like_matcher
from forebay.dispatch.selectors.selector import compile_selector
from forebay.store.errors import SelectorError
from forebay.store.format.message_properties import encode_properties
from forebay.store.format.message_properties import header_values as read_headers
from forebay.store.message import HeaderValue

Values = dict[str, HeaderValue]

MANY = settings(max_examples=max(500, settings().max_examples))


def like_oracle(text: str, pattern: str, escape: str | None) -> bool:
    """By definition: the set of prefixes of the text that a prefix of the pattern matches."""
    ends = {0}
    at = 0
    while at < len(pattern):
        one, following = pattern[at], pattern[at + 1 : at + 2]
        if one == escape and following and following in "_%" + escape:
            ends = {end + 1 for end in ends if text[end : end + 1] == following}
            at += 1
        elif one == "%":
            ends = {further for end in ends for further in range(end, len(text) + 1)}
        elif one == "_":
            ends = {end + 1 for end in ends if end < len(text)}
        else:
            ends = {end + 1 for end in ends if text[end : end + 1] == one}
        at += 1
    return len(text) in ends


@MANY
@given(st.text("ab_%!", max_size=9), st.text("ab_%!", max_size=9), st.sampled_from([None, "!", "a", "_", "%"]))
def test_like_agrees_with_its_definition(text: str, pattern: str, escape: str | None) -> None:
    assert like_matcher(pattern, escape)(text) == like_oracle(text, pattern, escape)


@pytest.mark.parametrize(
    "text,pattern,escape,expected",
    [
        ("a%b", "a!%b", "!", True),
        ("axb", "a!%b", "!", False),
        ("a!b", "a!!b", "!", True),
        ("a!b", "a!b", "!", True),
        ("ab!", "ab!", "!", True),
        ("abab", "ab%ab", None, True),
        ("aba", "ab%ba", None, False),
        ("abc", "a%bc%c", None, False),
        ("line\nline", "line%_ine", None, True),
        ("a.c", "a.c", None, True),
        ("abc", "a.c", None, False),
        ("x🜁y", "x_y", None, True),
    ],
)
def test_like_takes_escape_only_before_a_wildcard_or_itself(
    text: str, pattern: str, escape: str | None, expected: bool
) -> None:
    assert like_matcher(pattern, escape)(text) is expected


# Against a slow interpreter that knows the third value

Node = tuple[Any, ...]
NAMES = ["region", "kg", "n", "ok", "größe", "$x", "a", "a.b", "a.b.c", "größe.$x", "missing"]

numbers = st.one_of(
    st.integers(0, 5), st.integers(0, 1 << 63), st.floats(0, 1e300, allow_nan=False), st.sampled_from([0.5, 1.0, 2.0])
)
strings = st.text("ae'_% \n%", max_size=4)
header_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-4, 4),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.sampled_from([-1.5, 0.0, 1.0, 2.5]),
    strings,
    st.binary(max_size=2),
)
nested = st.recursive(
    header_values,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(["b", "c", "b.c", "$x"]), inner, max_size=3), st.lists(inner, max_size=2)
    ),
    max_leaves=4,
)
inside_a = st.fixed_dictionaries({"b": st.one_of(header_values, st.fixed_dictionaries({"c": header_values}))})
messages = st.builds(
    lambda headers, inner: headers | inner,
    st.dictionaries(st.sampled_from(NAMES[:-1]), nested, max_size=4),
    st.one_of(st.just({}), st.fixed_dictionaries({"a": inside_a})),
)
named = st.tuples(st.just("name"), st.sampled_from(NAMES))
number_operands = st.recursive(
    st.one_of(named, st.tuples(st.just("literal"), numbers)),
    lambda inner: st.one_of(
        st.tuples(st.just("negative"), inner),
        st.tuples(st.sampled_from("+-*/"), inner, inner),
    ),
    max_leaves=5,
)
operands = st.one_of(number_operands, st.tuples(st.just("literal"), st.one_of(strings, st.booleans())))
name_texts = st.sampled_from(NAMES)
conditions = st.recursive(
    st.one_of(
        st.tuples(st.sampled_from(["=", "<>"]), operands, operands),
        st.tuples(st.sampled_from(["<", "<=", ">", ">="]), number_operands, number_operands),
        st.tuples(st.just("between"), st.booleans(), number_operands, number_operands, number_operands),
        st.tuples(st.just("in"), st.booleans(), name_texts, st.lists(strings, min_size=1, max_size=4)),
        st.tuples(st.just("like"), st.booleans(), name_texts, strings, st.sampled_from([None, "e", "'"])),
        st.tuples(st.just("null"), st.booleans(), name_texts),
        named,
        st.tuples(st.just("literal"), st.booleans()),
    ),
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
    ),
    max_leaves=12,
)

RANK = {"or": 1, "and": 2, "not": 3, "+": 5, "-": 5, "*": 6, "/": 6, "negative": 7}


def words(node: Node, floor: int = 0) -> list[str]:
    """The tokens of a node, in parentheses where it binds less tightly than its place asks for."""
    kind, *rest = node
    rank = RANK.get(kind, 8 if kind in ("name", "literal") else 4)
    if kind == "name":
        inner = [rest[0]]
    elif kind == "literal":
        inner = [spelled(rest[0])]
    elif kind == "negative":
        inner = ["-", *words(rest[0], rank)]
    elif kind == "not":
        inner = ["NOT", *words(rest[0], rank)]
    elif kind == "between":
        negated, value, low, high = rest
        inner = [*words(value, 5), *["NOT"] * negated, "BETWEEN", *words(low, 5), "AND", *words(high, 5)]
    elif kind == "in":
        negated, name, members = rest
        listed = [word for member in members for word in (",", spelled(member))][1:]
        inner = [name, *["NOT"] * negated, "IN", "(", *listed, ")"]
    elif kind == "like":
        negated, name, pattern, escape = rest
        inner = [name, *["NOT"] * negated, "LIKE", spelled(pattern)]
        inner += ["ESCAPE", spelled(escape)] if escape else []
    elif kind == "null":
        inner = [rest[1], "IS", *["NOT"] * rest[0], "NULL"]
    else:
        left, right = rest
        # Both chains of and/or mean the same, so the right side needs no parentheses there: a flat chain is tested too.
        right_floor = rank if kind in ("and", "or") else rank + 1
        inner = [*words(left, 5 if rank == 4 else rank), kind.upper(), *words(right, right_floor)]
    return ["(", *inner, ")"] if rank < floor else inner


def spelled(literal: str | int | float) -> str:
    if isinstance(literal, bool):
        return str(literal).upper()
    return "'" + literal.replace("'", "''") + "'" if isinstance(literal, str) else repr(literal)


def printed(node: Node, choose: random.Random) -> str:
    """The tokens with random space between them, and keywords in random case."""
    parts = []
    for word in words(node):
        if word.isascii() and word.isalpha() and word.isupper():
            word = "".join(choose.choice((letter, letter.lower())) for letter in word)
        parts.append(choose.choice((" ", "  ", "\n\t", "\f")) + word)
    return "".join(parts)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def read(values: Values, name: str) -> Any:
    """The header of that very name, or else what lies under its parts."""
    if name in values:
        return values[name]
    found: Any = values
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def evaluate(node: Node, values: Values) -> Any:
    """A value, with None for NULL."""
    kind, *rest = node
    if kind == "name":
        return read(values, rest[0])
    if kind == "literal":
        return rest[0]
    arguments = [evaluate(inner, values) for inner in rest]
    if not all(is_number(argument) for argument in arguments):
        return None
    try:
        if kind == "negative":
            return -arguments[0]
        left, right = arguments
        if kind == "/":
            exact = isinstance(left, int) and isinstance(right, int)
            return math.trunc(Fraction(left, right)) if exact else left / right
        return {"+": operator.add, "-": operator.sub, "*": operator.mul}[kind](left, right)
    except (ZeroDivisionError, OverflowError):
        return None


def compared(sign: str, left: Any, right: Any) -> bool | None:
    def family(value: Any) -> str:
        return "number" if is_number(value) else type(value).__name__

    if family(left) != family(right) or family(left) in ("NoneType", "bytes", "list", "dict"):
        return None
    if sign in ("=", "<>"):
        return bool(left == right) == (sign == "=")
    if not is_number(left):
        return None
    return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign])


def inverted(value: bool | None) -> bool | None:
    return None if value is None else not value


def judge(node: Node, values: Values) -> bool | None:
    """TRUE, FALSE, or None for UNKNOWN, straight from the definitions."""
    kind, *rest = node
    if kind in ("name", "literal"):
        value = evaluate(node, values)
        return value if isinstance(value, bool) else None
    if kind == "not":
        return inverted(judge(rest[0], values))
    if kind in ("and", "or"):
        both = [judge(inner, values) for inner in rest]
        decisive = kind == "or"
        return decisive if decisive in both else None if None in both else not decisive
    if kind == "between":
        negated, value, low, high = rest
        result = judge(("and", (">=", value, low), ("<=", value, high)), values)
        return inverted(result) if negated else result
    if kind == "null":
        negated, name = rest
        return (read(values, name) is None) is not negated
    if kind in ("in", "like"):
        negated, name, *arguments = rest
        text = read(values, name)
        if not isinstance(text, str):
            return None
        found = bool(text in arguments[0] if kind == "in" else like_oracle(text, *arguments))
        return not found if negated else found
    left, right = (evaluate(inner, values) for inner in rest)
    return compared(kind, left, right)


@pytest.mark.parametrize("value", [b"", [], {}, {"b": 1}], ids=repr)
def test_bytes_a_list_and_a_dict_compare_with_nothing_and_are_not_null(value: Any) -> None:
    for text in ("region = region", "region <> region", "NOT (region = region)", "region IS NULL"):
        assert not compile_selector(text).matches({"region": value}), text


@MANY
@given(conditions, st.lists(messages, min_size=1, max_size=4), st.integers(0, 1 << 30))
def test_selector_agrees_with_a_slow_interpreter(condition: Node, batch: list[Values], seed: int) -> None:
    choose = random.Random(seed)
    text = printed(condition, choose)
    selector, same = compile_selector(text), compile_selector(printed(condition, choose))
    negation = compile_selector(f"NOT ({text})")
    assert selector == same
    assert compile_selector(selector.text) == selector
    for values in batch:
        expected = judge(condition, values)
        assert selector.matches(dict(values)) is (expected is True), text
        assert negation.matches(dict(values)) is (expected is False), text
        encoded = encode_properties(values)
        if expected is True and selector.needles:
            assert any(needle in encoded for needle in selector.needles), text
        named_alone = {name: values[name] for name in selector.header_names & values.keys()}
        assert selector.matches(named_alone) is (expected is True), f"{text}, without the other headers"
        if values:
            alone = read_headers(encoded, selector.header_names)
            assert selector.matches(alone) is (expected is True), f"{text}, read without the other headers"


# Hostile patterns and texts


@pytest.mark.parametrize(
    "pattern", ["%a" * 2_000, "%" * 4_000, "%" + "_" * 4_000, "%" + "a_" * 1_900 + "b%", "_%" * 2_000]
)
def test_hostile_like_costs_no_more_than_text_times_pattern(pattern: str) -> None:
    test = like_matcher(pattern, None)
    before = time.process_time()
    test("a" * 50_000)
    assert time.process_time() - before < 1.0


fragments = st.lists(
    st.sampled_from(
        "a b kg JMSPriority 'x' '' ' 1 2L 1.5 .5 7E3 . 010 ( ) , = <> < <= > >= + - * / AND OR NOT BETWEEN IN LIKE "
        "ESCAPE IS NULL TRUE FALSE '%_' é \x00 %".split(" ")
    ),
    max_size=14,
).map(" ".join)
any_text = st.text(st.characters(exclude_categories=[]), max_size=40)


@MANY
@given(st.one_of(fragments, any_text), messages)
def test_any_text_compiles_or_is_refused(text: str, values: Values) -> None:
    try:
        selector = compile_selector(text)
    except SelectorError as refusal:
        assert 0 <= refusal.position <= len(text)
        return
    assert isinstance(selector.matches(dict(values)), bool)
    assert compile_selector(selector.text) == selector
