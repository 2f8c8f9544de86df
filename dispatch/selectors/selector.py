"""Selector: a JMS SQL-92 condition on headers, compiled once and asked for every message.

The text may come from anyone: it is cut into tokens and parsed by hand, with
explicit stacks, under the limits below, and the only error is SelectorError.
A compiled selector is immutable, holds no message, and is safe in all
threads; nothing of it is ever on disk but its text.

Semantics are those of JMS 2.0, section 3.8.1, with two choices of our own.
A comparison of values of different types is UNKNOWN, so that `NOT (a = 'x')`
is not TRUE where a is a number. Integers are written in decimal, with or
without Java's L; octal and hexadecimal are refused.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from enum import IntEnum
from threading import Lock
from typing import Final, NamedTuple

from cachetools import LRUCache, cached

from ...store.errors import SelectorError
from .conditions import (
    Condition,
    Predicate,
    Value,
    all_of,
    any_of,
    arithmetic,
    between,
    comparison,
    constant,
    header,
    is_in,
    is_like,
    is_null,
    negation,
    signed,
    truth,
)
from .lexer import END, NAME, NUMBER, STRING, Token, canonical_text, tokenize

FIELD_NAMES: Final = frozenset({"JMSPriority", "JMSMessageID", "JMSTimestamp", "JMSDeliveryMode", "JMSXGroupID"})
"""Names that mean the message itself, never a header: its priority (int), its id (str), its time of sending
(int, milliseconds since 1970), 'PERSISTENT' or 'NON_PERSISTENT', and its group (str). JMSType and JMSCorrelationID
are headers."""

CHARACTERS_MAX: Final = 4_096
"""Characters of a selector, as given and in its canonical form."""
NESTING_MAX: Final = 64
"""Parentheses open at once."""
NODES_MAX: Final = 512
"""Operands and operators; a list behind IN counts as one."""
IN_LIST_MAX: Final = 1_024
"""Strings in one list behind IN."""
NEEDLES_MAX: Final = 4
"""More of them would cost more than the headers that they save decoding."""
CACHE_SELECTORS: Final = 1_024
"""Compiled selectors kept for the next subscription with the same text. One counts again for every 64 characters,
because a long one can hold 130 KiB."""


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled selector. Equal, and equally hashed, where the canonical texts are equal."""

    text: str
    """Canonical: keywords in capitals, no needless space. It compiles again, to an equal selector."""

    names: frozenset[str] = field(compare=False)
    """Every name that it asks for."""

    matches: Predicate = field(compare=False, repr=False)
    """matches(values) -> bool: True only where the condition is TRUE, not where it is FALSE or UNKNOWN.

    values maps names to header values, and only its `get` is called. Those of
    `field_names` are the caller's to put in, over any header so named. Never
    raises. About 0.1 microseconds a comparison.
    """

    needles: tuple[bytes, ...] = field(default=(), compare=False)
    """Where it matches, the UTF-8 of some header's value is one of these: what holds none need not be decoded to be
    passed over. Empty: nothing is known."""

    @property
    def field_names(self) -> frozenset[str]:
        """Those of FIELD_NAMES that it asks for."""
        return self.names & FIELD_NAMES

    @property
    def header_names(self) -> frozenset[str]:
        """The others: where there are none, no header need be decoded."""
        return self.names - FIELD_NAMES


@cached(LRUCache(CACHE_SELECTORS, getsizeof=lambda selector: 1 + len(selector.text) // 64), lock=Lock())
def compile_selector(text: str) -> Selector:
    """The selector that text spells, perhaps one compiled before. SelectorError, with a place, for anything else.

    An empty text is an error too: no selector is not a selector. 10 to 20
    microseconds a comparison, and milliseconds at the limits.
    """
    if len(text) > CHARACTERS_MAX:
        raise SelectorError(f"{len(text)} characters are above the limit of {CHARACTERS_MAX}", CHARACTERS_MAX)
    tokens = tokenize(text)
    canonical = canonical_text(tokens)
    if len(canonical) > CHARACTERS_MAX:
        raise SelectorError(f"{len(canonical)} characters are above the limit of {CHARACTERS_MAX}", CHARACTERS_MAX)
    parser = _Parser(tokens)
    condition = parser.parse()
    return Selector(canonical, frozenset(parser.names), condition.is_true, _needles(parser.names, condition))


def _needles(names: Set[str], condition: Condition) -> tuple[bytes, ...]:
    strings = condition.strings or frozenset()
    if names & FIELD_NAMES or len(strings) > NEEDLES_MAX:
        return ()
    return tuple(sorted(string.encode(errors="surrogatepass") for string in strings))


class _Rank(IntEnum):
    """How tightly an operator binds; nothing binds across an open parenthesis."""

    OPEN = 0
    OR = 1
    AND = 2
    NOT = 3
    COMPARISON = 4
    SUM = 5
    PRODUCT = 6
    SIGN = 7


_INFIX: Final = {
    "OR": _Rank.OR,
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), _Rank.COMPARISON),
    **dict.fromkeys(("+", "-"), _Rank.SUM),
    **dict.fromkeys(("*", "/"), _Rank.PRODUCT),
}


class _Pending(NamedTuple):
    """An operator that waits for its right side, or an open parenthesis."""

    rank: _Rank
    kind: str
    position: int


class _Parser:
    """An operator-precedence parser: two stacks and no recursion, so that no text can exhaust the interpreter's.

    Neighbours of one rank wait together and are joined at once, which makes a
    chain of AND, OR, + or * one flat node.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self.names: set[str] = set()
        self._tokens = tokens
        self._at = 0
        self._count = 0
        self._open = 0
        self._done: list[Value | Condition] = []
        self._pending: list[_Pending] = []

    def parse(self) -> Condition:
        self._read_operand()
        while self._read_infix():
            self._read_operand()
        assert len(self._done) == 1 and not self._pending
        return self._condition(0)

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _expect(self, kind: str) -> Token:
        token = self._next()
        if token.kind != kind:
            raise _unexpected(token, kind)
        return token

    def _read_operand(self) -> None:
        """Signs, NOTs and open parentheses, then one value."""
        while True:
            token = self._next()
            if token.kind == "(":
                self._open += 1
                if self._open > NESTING_MAX:
                    raise SelectorError(f"parentheses are nested deeper than {NESTING_MAX}", token.position)
                self._pending.append(_Pending(_Rank.OPEN, "(", token.position))
            elif token.kind == "NOT":
                self._wait(_Rank.NOT, token)
            elif token.kind in ("+", "-"):
                self._wait(_Rank.SIGN, token)
            else:
                self._count_node(token)
                self._done.append(self._value(token))
                return

    def _value(self, token: Token) -> Value:
        if token.kind == NAME:
            self.names.add(token.text)
            return header(token.text)
        if token.kind in (STRING, NUMBER):
            return constant(token.value)
        if token.kind in ("TRUE", "FALSE"):
            return constant(token.kind == "TRUE")
        raise _unexpected(token, "a value")

    def _read_infix(self) -> bool:
        """Closing parentheses and tests such as IS NULL, then one operator (True) or the end (False)."""
        while True:
            token = self._next()
            if token.kind == END:
                self._join(above=_Rank.OPEN)
                if self._pending:
                    raise SelectorError("this parenthesis is not closed", self._pending[-1].position)
                return False
            if token.kind == ")":
                self._join(above=_Rank.OPEN)
                if not self._pending:
                    raise SelectorError("this parenthesis was not opened", token.position)
                self._pending.pop()
                self._open -= 1
            elif token.kind == "AND":
                self._read_and(token)
                return True
            elif token.kind in _INFIX:
                rank = _INFIX[token.kind]
                self._join(above=rank)
                self._wait(rank, token)
                return True
            elif self._read_test(token):
                return True

    def _read_and(self, token: Token) -> None:
        """AND between conditions, or between the bounds of the BETWEEN that waits."""
        self._join(above=_Rank.COMPARISON)
        if self._pending and self._pending[-1].kind in ("BETWEEN", "NOT BETWEEN"):
            self._wait(_Rank.COMPARISON, token)
        else:
            self._join(above=_Rank.AND)
            self._wait(_Rank.AND, token)

    def _read_test(self, token: Token) -> bool:
        """[NOT] BETWEEN (True: its bounds follow), [NOT] IN, [NOT] LIKE or IS [NOT] NULL (False: complete)."""
        negated = token.kind == "NOT"
        kind = self._next().kind if negated else token.kind
        if kind == "BETWEEN":
            self._join(above=_Rank.COMPARISON)
            self._wait(_Rank.COMPARISON, token, "NOT BETWEEN" if negated else "BETWEEN")
            return True
        self._join(above=_Rank.NOT)
        self._count_node(token)
        if kind == "IN":
            condition = is_in(self._tested_name(token), self._in_list())
        elif kind == "LIKE":
            condition = is_like(self._tested_name(token), self._string(), self._escape())
        elif kind == "IS" and not negated:
            name = self._tested_name(token)
            negated = self._tokens[self._at].kind == "NOT"
            self._at += negated
            self._expect("NULL")
            condition = is_null(name)
        else:
            raise _unexpected(token, "an operator")
        self._done.append(negation(condition) if negated else condition)
        return False

    def _tested_name(self, token: Token) -> str:
        value = self._done.pop()
        if isinstance(value, Condition) or value.name is None:
            raise SelectorError("LIKE, IN and IS NULL take a name on their left", token.position)
        return value.name

    def _in_list(self) -> frozenset[str]:
        self._expect("(")
        strings = [self._string()]
        while (token := self._next()).kind == ",":
            if len(strings) == IN_LIST_MAX:
                raise SelectorError(f"a list behind IN is longer than {IN_LIST_MAX}", token.position)
            strings.append(self._string())
        if token.kind != ")":
            raise _unexpected(token, "',' or ')'")
        return frozenset(strings)

    def _string(self) -> str:
        return str(self._expect(STRING).value)

    def _escape(self) -> str | None:
        if self._tokens[self._at].kind != "ESCAPE":
            return None
        token = self._next()
        escape = self._string()
        if len(escape) != 1:
            raise SelectorError("ESCAPE takes one character", token.position)
        return escape

    def _wait(self, rank: _Rank, token: Token, kind: str | None = None) -> None:
        self._count_node(token)
        self._pending.append(_Pending(rank, kind or token.kind, token.position))

    def _count_node(self, token: Token) -> None:
        self._count += 1
        if self._count > NODES_MAX:
            raise SelectorError(f"more than {NODES_MAX} operands and operators", token.position)

    def _join(self, above: _Rank) -> None:
        """Apply what waits with a rank above this one, the tightest first, up to an open parenthesis."""
        while self._pending and self._pending[-1].rank > above:
            rank = self._pending[-1].rank
            chain: list[_Pending] = []
            while self._pending and self._pending[-1].rank == rank:
                chain.insert(0, self._pending.pop())
            self._done.append(self._joined(rank, chain))

    def _joined(self, rank: _Rank, chain: list[_Pending]) -> Value | Condition:
        kinds = [pending.kind for pending in chain]
        position = chain[0].position
        if rank == _Rank.NOT:
            condition = self._condition(position)
            return negation(condition) if len(chain) % 2 else condition
        if rank == _Rank.SIGN:
            [value] = self._values(1, position)
            return signed(value, kinds.count("-") % 2 == 1, position)
        if rank in (_Rank.AND, _Rank.OR):
            conditions = [self._condition(position) for _ in range(len(chain) + 1)][::-1]
            return all_of(conditions) if rank == _Rank.AND else any_of(conditions)
        values = self._values(len(chain) + 1, position)
        if rank in (_Rank.SUM, _Rank.PRODUCT):
            return arithmetic(values, kinds, position)
        if kinds in (["BETWEEN", "AND"], ["NOT BETWEEN", "AND"]):
            value, low, high = values
            condition = between(value, low, high, position)
            return condition if kinds[0] == "BETWEEN" else negation(condition)
        if len(chain) > 1:
            raise SelectorError("comparisons cannot be chained: join them with AND", chain[1].position)
        if kinds[0] not in _INFIX:
            raise SelectorError("BETWEEN takes two bounds joined by AND", position)
        left, right = values
        return comparison(kinds[0], left, right, position)

    def _condition(self, position: int) -> Condition:
        """The newest finished node, which must be a condition."""
        node = self._done.pop()
        return node if isinstance(node, Condition) else truth(node, position)

    def _values(self, count: int, position: int) -> list[Value]:
        """The newest finished nodes, oldest first, which must be values."""
        nodes = self._done[-count:]
        del self._done[-count:]
        values = [node for node in nodes if isinstance(node, Value)]
        if len(values) < count:
            raise SelectorError("a condition is not a value: it can only be joined with AND, OR and NOT", position)
        return values


def _unexpected(token: Token, expected: str) -> SelectorError:
    return SelectorError(f"expected {expected}, found {token.kind}", token.position)
