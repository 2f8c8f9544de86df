"""Fingerprints of blocks: a selector may pass over a block only where none of its messages matches."""

from __future__ import annotations

import math
from random import Random

import pytest

from forebay.dispatch.selectors.selector import compile_selector
from forebay.store.format.message_properties import encode_properties, header_values, header_values_of_each
from forebay.store.index.fingerprint import (
    STRING_CHARACTERS_MAX,
    UNKNOWN,
    BlockSurvey,
    ExactFingerprint,
    Fingerprint,
    SummaryFingerprint,
    fingerprint_of,
    fingerprint_of_all,
)
from forebay.store.message import HeaderValue
from forebay.store.numbering import BLOCK_MESSAGES

Values = dict[str, HeaderValue]
NAMES = ("a", "b")
PAIRS = 100_000


def stored(values: Values) -> Values:
    """Return headers as a scan finds them."""
    return header_values(encode_properties(values), frozenset(NAMES)) if values else {}


def fingerprints(messages: list[Values], names: tuple[str, ...] = NAMES) -> dict[str, Fingerprint]:
    survey = BlockSurvey(frozenset(names), 0)
    properties = [encode_properties(values) for values in messages]
    # A scan takes in by columns what it can, and decodes what is in RAM together.
    whole, together, one_by_one = properties[::3], properties[1::3], properties[2::3]
    survey.take_in([*range(len(whole))], header_values_of_each(whole, frozenset(names)))
    survey.decode([*range(len(whole), len(whole) + len(together))], together, frozenset(names))
    for index, data in enumerate(one_by_one, len(whole) + len(together)):
        survey.add(index, header_values(data, frozenset(names)))
    assert survey.examined == (1 << len(messages)) - 1
    return {name: fingerprint_of(data) for name, data in survey.pack().items()}


def surveyed(messages: list[Values]) -> dict[str, bytes]:
    """Return the fingerprints of a block as the index stores them."""
    survey = BlockSurvey(frozenset(NAMES), 0)
    for index, values in enumerate(messages):
        survey.add(index, stored(values))
    return survey.pack()


def fingerprint(*values: HeaderValue) -> Fingerprint:
    return fingerprints([{} if value is None else {"a": value} for value in values])["a"]


def may_match(selector: str, *values: HeaderValue) -> bool:
    return compile_selector(selector).may_match({"a": fingerprint(*values)})


# ---------------------------------------------------------------------- no match is ever passed over


def a_value(random: Random) -> HeaderValue:
    kind = random.randrange(14)
    if kind < 4:
        return random.randrange(-3, 30)
    if kind < 7:
        return (
            random.choice(("", "x", "xy", "y%", "zebra", "żółw", "x" * 17, "x" * 16 + "y"))
            + "abc"[: random.randrange(3)]
        )
    if kind < 8:
        return random.choice((0.5, -0.0, 2.5, 1e300, math.inf, -math.inf, math.nan, 2.0**53))
    if kind < 9:
        return random.choice((2**53 + 1, -(2**53) - 1, 2**64 + 1, 10**400, -(10**400)))
    if kind < 11:
        return random.random() < 0.5
    if kind < 13:
        return None
    others: list[HeaderValue] = [b"bytes", ["list"], {"x": 1}, "y" * 300]
    return random.choice(others)


def a_block(random: Random) -> list[Values]:
    """Few different values, or many; often all of one kind."""
    pool = [a_value(random) for _ in range(random.choice((1, 2, 12, 40)))]
    if random.random() < 0.3:
        pool = [random.randrange(100) for _ in range(20)]
    elif random.random() < 0.3:
        pool = [f"id-{random.randrange(1000)}" for _ in range(20)]
    messages: list[Values] = []
    for _ in range(random.choice((1, 3, 24))):
        messages.append({name: random.choice(pool) for name in NAMES if random.random() < 0.9})
    return messages


def an_operand(random: Random) -> str:
    number = random.choice(("1", "2", "7.0", "2.5", "9007199254740993", "1e300", "-1", str(random.randrange(100))))
    string = random.choice(("'x'", "'xy'", "'zebra'", "'xxxxxxxxxxxxxxxxy'", f"'id-{random.randrange(1000)}'"))
    return random.choice((number, number, string, string, "TRUE", "a", "b", "a + 1", "10 / b"))


def a_condition(random: Random, depth: int = 2) -> str:
    if depth and random.random() < 0.5:
        sides = [a_condition(random, depth - 1) for _ in range(random.choice((2, 2, 3)))]
        joined = random.choice((" AND ", " OR ")).join(f"({side})" for side in sides)
        return f"NOT ({joined})" if random.random() < 0.4 else joined
    name, turn = random.choice(NAMES), random.randrange(8)
    if turn < 4:
        sign = random.choice(("=", "=", "<>", "<", "<=", ">", ">="))
        operand = an_operand(random)
        if sign not in ("=", "<>") and operand[0] in "'T":
            operand = "5"
        test = f"{operand} {sign} {name}" if random.random() < 0.2 else f"{name} {sign} {operand}"
    elif turn == 4:
        test = f"{name} {random.choice(('', 'NOT '))}BETWEEN {random.randrange(20)} AND {random.randrange(40)}"
    elif turn == 5:
        test = f"{name} {random.choice(('', 'NOT '))}IN ('x', 'id-{random.randrange(1000)}')"
    elif turn == 6:
        test = f"{name} {random.choice(('', 'NOT '))}LIKE '{random.choice(('x%', '%y', 'id-1_', '%'))}'"
    else:
        test = f"{name} IS {random.choice(('', 'NOT '))}NULL"
    return f"NOT ({test})" if random.random() < 0.2 else test


def compare_with_a_linear_scan(seed: int, pairs: int) -> tuple[int, int]:
    """Return how many blocks were passed over, and how many had no match."""
    random = Random(seed)
    skipped = empty = done = 0
    while done < pairs:
        blocks = [a_block(random) for _ in range(10)]
        known = [fingerprints(messages) for messages in blocks]
        for _ in range(50):
            selector = compile_selector(a_condition(random))
            for messages, named in zip(blocks, known, strict=True):
                matches = any(map(selector.matches, messages))
                may = selector.may_match(named)
                assert may or not matches, (selector.text, messages)
                skipped += not may
                empty += not matches
                done += 1
    return skipped, empty


@pytest.mark.slow
def test_no_random_selector_passes_over_a_block_in_which_it_matches() -> None:
    skipped, empty = compare_with_a_linear_scan(1, PAIRS)
    assert skipped > empty / 3, "fingerprints that tell next to nothing prove nothing"


@pytest.mark.soak
def test_no_random_selector_of_a_million_passes_over_a_match() -> None:
    for seed in range(2, 12):
        compare_with_a_linear_scan(seed, PAIRS)


def test_what_several_blocks_tell_together_never_rules_out_a_match_in_one_of_them() -> None:
    random = Random(8)
    skipped = 0
    for _ in range(400):
        some = [messages for messages in (a_block(random) for _ in range(8)) if len(messages) > 8][:3] or [[{}]]
        surveys = [surveyed(messages) for messages in some]
        together = {name: fingerprint_of_all([packed[name] for packed in surveys]) for name in NAMES}
        for _ in range(20):
            selector = compile_selector(a_condition(random))
            may = selector.may_match(together)
            assert may or not any(selector.matches(values) for messages in some for values in messages), selector.text
            skipped += not may
    assert skipped > 100


def test_blocks_with_neighbouring_numbers_are_ruled_out_together() -> None:
    packed = [surveyed([{"a": number} for number in range(first, first + 512)])["a"] for first in (0, 512, 1024)]
    together = {"a": fingerprint_of_all(packed)}
    assert not compile_selector("a = 1536 OR a < 0 OR a IS NULL OR a = 'x'").may_match(together)
    assert compile_selector("a = 1535").may_match(together)
    for other in (b"", b"\x01", surveyed([{"a": 1}])["a"], packed[0][:2] + b"\0" + packed[0][3:]):
        assert fingerprint_of_all([*packed, other]) is UNKNOWN


# ---------------------------------------------------------------------- what fingerprints tell


MANY_STRINGS = tuple(f"id-{number:06}" for number in range(BLOCK_MESSAGES))
MANY_NUMBERS = tuple(range(1000, 1000 + BLOCK_MESSAGES))


def test_few_values_are_kept_as_they_are_so_that_every_selector_gets_an_exact_answer() -> None:
    assert isinstance(fingerprint("us", "us", "ca"), ExactFingerprint)
    assert not may_match("a <> 'us'", *["us"] * 512)
    assert may_match("a <> 'us'", "us", "eu")
    assert not may_match("a LIKE 'e%'", "us", "ca")
    assert not may_match("a IS NULL", "us", "ca")
    assert may_match("a IS NULL", "us", None)
    assert not may_match("NOT (a = 1)", 1, 1.0)


def test_many_numbers_are_told_apart_by_bounds_and_by_a_filter() -> None:
    assert isinstance(fingerprint(*MANY_NUMBERS), SummaryFingerprint)
    for missing in ("a < 1000", "a > 1511", "a = 999", "a BETWEEN 5 AND 999", "a = 'x'", "a IS NULL", "a = TRUE"):
        assert not may_match(missing, *MANY_NUMBERS), missing
    for present in ("a <= 1000", "a >= 1511", "a = 1200", "a = 1200.0", "a <> 1200", "NOT (a > 1200)"):
        assert may_match(present, *MANY_NUMBERS), present
    odd = tuple(range(1, 100, 2))
    assert sum(may_match(f"a = {even}", *odd) for even in range(2, 100, 2)) < 5


def test_whole_numbers_almost_without_gaps_need_no_filter_and_numbers_with_gaps_do() -> None:
    def size(*values: HeaderValue) -> int:
        survey = BlockSurvey(frozenset("a"), 0)
        for index, value in enumerate(values):
            survey.add(index, {"a": value})
        return len(survey.pack()["a"])

    some_missing = tuple(number for number in MANY_NUMBERS if number % 5)
    all_dense: list[tuple[HeaderValue, ...]] = [MANY_NUMBERS, some_missing, (*MANY_NUMBERS[1:], None, True)]
    for dense in all_dense:
        assert size(*dense) < 60
    assert all(may_match(f"a = {present}", *some_missing) for present in some_missing)
    assert not may_match("a = 999", *some_missing) and not may_match("a = 'x'", *some_missing)
    quarters = tuple(number / 4 for number in MANY_NUMBERS)
    all_sparse: list[tuple[HeaderValue, ...]] = [MANY_NUMBERS[::2], quarters, (*MANY_NUMBERS[1:], "x")]
    for sparse in all_sparse:
        assert size(*sparse) > 300
    assert sum(may_match(f"a = {number / 4 + 0.1}", *quarters) for number in MANY_NUMBERS[:-1]) < 50
    assert not may_match("a = 'y'", *MANY_NUMBERS[1:], "x")


def test_many_strings_are_told_apart_by_bounds_and_by_a_filter() -> None:
    assert all(may_match(f"a = '{present}'", *MANY_STRINGS) for present in MANY_STRINGS)
    assert not may_match("a = 'id-000999'", *MANY_STRINGS)
    assert not may_match("a IN ('aaa', 'zzz')", *MANY_STRINGS)
    random = Random(5)
    scattered = tuple(f"{random.getrandbits(64):016x}" for _ in range(BLOCK_MESSAGES))
    perhaps = sum(may_match(f"a = '{random.getrandbits(64):016x}'", *scattered) for _ in range(2000))
    assert perhaps < 200


def test_a_fingerprint_takes_at_most_a_byte_a_message() -> None:
    long = tuple(f"{number:0{STRING_CHARACTERS_MAX}}" for number in range(BLOCK_MESSAGES))
    blocks: list[tuple[HeaderValue, ...]] = [MANY_NUMBERS, MANY_STRINGS, long, tuple(range(8)), long[:8]]
    for values in blocks:
        survey = BlockSurvey(frozenset("a"), 0)
        for index, value in enumerate(values):
            survey.add(index, stored({"a": value}))
        assert 0 < len(survey.pack()["a"]) <= BLOCK_MESSAGES


@pytest.mark.parametrize("value", [["list"], {"x": 1}, "y" * (STRING_CHARACTERS_MAX + 1)])
def test_a_value_that_no_fingerprint_describes_makes_it_unknown(value: HeaderValue) -> None:
    assert fingerprint(1, value) is UNKNOWN


@pytest.mark.parametrize("value", [b"bytes", math.nan, 10**400])
def test_such_a_value_among_many_makes_it_unknown(value: HeaderValue) -> None:
    assert fingerprint(value, *MANY_NUMBERS[:100]) is UNKNOWN


def test_a_header_without_a_fingerprint_may_match_everything() -> None:
    assert compile_selector("a = 1 AND b = 2").may_match({})
    assert compile_selector("a = 1 AND b = 2").may_match({"b": fingerprint(2)})
    assert not compile_selector("a = 1 AND b = 2").may_match({"b": fingerprint(1)})
    assert compile_selector("a = 1 OR JMSPriority = 4").may_match({"a": fingerprint(2)})


def test_bytes_that_are_no_fingerprint_tell_nothing() -> None:
    random = Random(3)
    survey = BlockSurvey(frozenset("a"), 0)
    for index in range(100):
        survey.add(index, {"a": index})
    whole = survey.pack()["a"]
    for data in (b"", b"\x00", b"\x01", b"\x02", b"\x03abc", whole[:40], *(random.randbytes(60) for _ in range(500))):
        compile_selector("a = 5 OR NOT (a < 7) OR a LIKE 'x'").may_match({"a": fingerprint_of(data)})
    assert fingerprint_of(whole[:40]) is UNKNOWN


def test_a_name_that_reaches_into_a_header_may_match_everything() -> None:
    assert compile_selector("a.b = 1").may_match({"a": fingerprint(1), "a.b": fingerprint(2)})
    assert compile_selector("NOT (a.b IS NULL) OR a.b LIKE 'x'").may_match({"a": fingerprint(None)})
