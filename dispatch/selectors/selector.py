"""Selector: a JMS SQL-92 condition on headers, compiled once and evaluated for every message.

The text may come from an attacker. It is split into tokens and parsed by hand, under the limits below, and the only
error is SelectorError. A compiled selector is immutable and holds no message, so all threads may use it. The disk only
ever has its text.

The semantics are those of JMS 2.0, section 3.8.1, with three choices of our own. A comparison of values of different
types is UNKNOWN, so `NOT (a = 'x')` is not TRUE if a is a number. Integers are decimal, with or without Java's L; octal
and hexadecimal are refused. A name with points reaches into headers that are dicts, unless a header has that very name.
"""

from __future__ import annotations

from collections.abc import Set
from math import ceil
from sys import intern
from threading import Lock
from typing import Final

from cachetools import LRUCache, cached

from ...store.errors import SelectorError
from .conditions import (
    Condition,
    Fingerprints,
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
"""Names that mean a field of the message, never a header: its priority (int), its id (str), its time of sending
(int, milliseconds since 1970), 'PERSISTENT' or 'NON_PERSISTENT', and its group (str). JMSType and JMSCorrelationID
are headers."""

CHARACTERS_MAX: Final = 4_096
"""Most characters of a selector, as given and in its canonical form."""
NESTING_MAX: Final = 64
"""Most parentheses that are open at once."""
NODES_MAX: Final = 512
"""Most operands and operators of a selector; a list behind IN counts as one."""
IN_LIST_MAX: Final = 1_024
"""Most strings in one list behind IN."""
NEEDLES_MAX: Final = 4
"""Most needles of a selector. Searching for more would cost more than decoding the headers."""
CACHE_SELECTORS: Final = 64
"""Most compiled selectors that are kept for later subscriptions with the same text. A selector counts once for every 64
characters, because a long one can take 130 KiB. So a process keeps at most 150 KiB."""
NAMES_KEPT: Final = 64
"""Most sets of names that selectors share. Further selectors have sets of their own."""

SELECTOR_BYTES: Final = 202
CHARACTER_BYTES: Final = 6
NODE_BYTES: Final = 56
NAMES_BYTES: Final = 272
"""Most bytes that a selector takes, then each character of its text, each operand and operator, and a set of names that
it does not share; measured with tracemalloc. Literals, needles, names and pieces of patterns repeat the text up to four
times."""
POINT_NODES: Final = 6.0
LIKE_NODES: Final = 9.0
STRING_NODES: Final = 1.6
SIGN_NODES: Final = 3.5
"""Additional operands that a name with points, a LIKE, a string behind IN or a sign of arithmetic counts as."""

_NO_NAMES: Final[frozenset[str]] = frozenset()


class Selector:
    """A compiled selector. Two selectors with the same canonical text are equal."""

    __slots__ = (
        "text",
        "names",
        "matches",
        "needles",
        "field_names",
        "header_names",
        "condition",
        "_nodes",
        "_own_sets",
    )

    def __init__(self, text: str, names: frozenset[str], condition: Condition, nodes: int) -> None:
        # The canonical text: keywords in capitals, no needless space. It compiles to an equal selector.
        self.text = text
        # Every name in the selector.
        self.names = names = _shared(own := names)
        # The condition behind `matches`. A caller with many messages calls its `is_true` directly.
        self.condition = condition
        # matches(values) -> bool: True only where the condition is TRUE, not where it is FALSE or UNKNOWN.
        #
        # `values` has header values by name. For each name of `field_names`, the caller puts in the field of the
        # message in place of a header. Never raises.
        self.matches: Predicate = condition.is_true
        # Byte strings, one of which is in the encoded headers of any message that matches: the string value of a
        # header, or a name and the number behind it. Headers without any of them need not be decoded. Empty: there
        # is no such set.
        self.needles = _needles(names, condition)
        has_fields = not names.isdisjoint(FIELD_NAMES)
        # The names in the selector that mean a field of the message.
        self.field_names = _shared(names & FIELD_NAMES) if has_fields else _NO_NAMES
        headers = names - FIELD_NAMES if has_fields else names
        roots = {name.partition(".")[0] for name in headers if "." in name}
        # The headers that the condition may read: for `a.b` both a.b and a. No other header need be decoded.
        self.header_names = _shared(headers | roots) if has_fields or roots else names
        self._own_sets = (names is own) * (1 if self.header_names is names else 2)
        self._nodes = nodes

    @property
    def charge_bytes(self) -> int:
        """Most bytes of RAM that the selector takes. O(1)."""
        characters = len(self.text) * (1 if self.text.isascii() else 4)
        return SELECTOR_BYTES + NAMES_BYTES * self._own_sets + NODE_BYTES * self._nodes + CHARACTER_BYTES * characters

    def may_match(self, fingerprints: Fingerprints) -> bool:
        """Return False only where no message of a block matches that has these fingerprints.

        fingerprints: a fingerprint of each header, by name; one that is absent is unknown. Never raises.
        """
        return self.condition.may_be_true(fingerprints)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


@cached(LRUCache(NAMES_KEPT), lock=Lock())
def _shared(names: frozenset[str]) -> frozenset[str]:
    """Return an equal set of another selector, if there is one, because most selectors name the same few headers."""
    return names


@cached(LRUCache(CACHE_SELECTORS, getsizeof=lambda selector: 1 + len(selector.text) // 64), lock=Lock())
def compile_selector(text: str) -> Selector:
    """Compile a selector, or return the one that was compiled from the same text. SelectorError, with the position.

    An empty text is an error too. O(length), milliseconds at the limits.
    """
    if len(text) > CHARACTERS_MAX:
        raise SelectorError(f"{len(text)} characters are above the limit of {CHARACTERS_MAX}", CHARACTERS_MAX)
    tokens = tokenize(text)
    canonical = canonical_text(tokens)
    if len(canonical) > CHARACTERS_MAX:
        raise SelectorError(f"{len(canonical)} characters are above the limit of {CHARACTERS_MAX}", CHARACTERS_MAX)
    parser = _Parser(tokens)
    condition = parser.parse()
    return Selector(canonical, frozenset(parser.names), condition, parser.nodes)


def _needles(names: Set[str], condition: Condition) -> tuple[bytes, ...]:
    """Return the needles of a selector; none if it names a field of the message, which is not among the headers."""
    needles = condition.needles or frozenset()
    if names & FIELD_NAMES or len(needles) > NEEDLES_MAX:
        return ()
    return tuple(sorted(needles))


_NOT_A_VALUE: Final = "a condition is not a value: it can only be joined with AND, OR and NOT"

_Node = Value | Condition
_COMPARISONS: Final = frozenset(("=", "<>", "<", "<=", ">", ">="))
_TESTS: Final = _COMPARISONS | {"BETWEEN", "IN", "LIKE", "IS", "NOT"}


class _Parser:
    """A recursive-descent parser: four calls for each open parenthesis, of which there are at most NESTING_MAX.

        expression = test {("AND" | "OR") test}                   AND binds tighter
        test       = {"NOT"} sum [comparison | BETWEEN | IN | LIKE | IS NULL]
        sum        = operand {("+" | "-" | "*" | "/") operand}    * and / bind tighter
        operand    = {"+" | "-"} (name | literal | "(" expression ")")

    Each rule returns a Value or a Condition. An operator raises SelectorError if an operand is of the wrong kind.
    Operators of one rank in a row become one flat node.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self.names: set[str] = set()
        self._tokens = tokens
        self._at = 0
        self._count = 0
        self._open = 0
        self._extra = 0.0

    @property
    def nodes(self) -> int:
        """The number of operands and operators. Expensive ones count more than once."""
        return self._count + ceil(self._extra)

    def parse(self) -> Condition:
        """Return the condition that all tokens together mean. SelectorError."""
        node = self._expression()
        token = self._next()
        if token.kind == ")":
            raise SelectorError("this parenthesis was not opened", token.position)
        if token.kind != END:
            raise _no_operator(token)
        return _condition(node, 0)

    def _expression(self) -> _Node:
        alternatives: list[_Node] = []
        ors: list[Token] = []
        while True:
            tests = [self._test()]
            ands: list[Token] = []
            while self._peek() == "AND":
                ands.append(self._next_node())
                tests.append(self._test())
            alternatives.append(all_of([_condition(test, ands[0].position) for test in tests]) if ands else tests[0])
            if self._peek() != "OR":
                break
            ors.append(self._next_node())
        return any_of([_condition(one, ors[0].position) for one in alternatives]) if ors else alternatives[0]

    def _test(self) -> _Node:
        negations = self._chain("NOT")
        node, is_compared = self._sum(), False
        while self._peek() in _TESTS:
            token = self._next_node()
            is_negated = token.kind == "NOT"
            kind = self._next().kind if is_negated else token.kind
            if kind == "BETWEEN" or token.kind in _COMPARISONS:
                if is_compared:
                    raise SelectorError("comparisons cannot be chained: join them with AND", token.position)
                operands = [node, self._sum()]
                if kind == "BETWEEN":
                    if self._peek() != "AND":
                        raise SelectorError("BETWEEN takes two bounds joined by AND", token.position)
                    self._next_node()
                    operands.append(self._sum())
                condition, is_compared = _compared(kind, _values(operands, token.position), token.position), True
            else:
                condition = self._header_test(kind, token, node)
            node = negation(condition) if is_negated else condition
        if not negations:
            return node
        condition = _condition(node, negations[0].position)
        return negation(condition) if len(negations) % 2 else condition

    def _header_test(self, kind: str, token: Token, node: _Node) -> Condition:
        """Parse the rest of IN, LIKE or IS [NOT] NULL. token: its first token, which may be NOT."""
        if kind not in ("IN", "LIKE") and token.kind != "IS":
            raise _unexpected(token, "an operator")
        if isinstance(node, Condition) or node.name is None:
            raise SelectorError("LIKE, IN and IS NULL take a name on their left", token.position)
        if kind == "IN":
            strings = self._in_list()
            self._extra += STRING_NODES * len(strings)
            return is_in(node.name, strings)
        if kind == "LIKE":
            self._extra += LIKE_NODES
            return is_like(node.name, self._string(), self._escape())
        is_negated = self._peek() == "NOT"
        self._at += is_negated
        self._expect("NULL")
        condition = is_null(node.name)
        return negation(condition) if is_negated else condition

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

    def _escape(self) -> str | None:
        if self._peek() != "ESCAPE":
            return None
        token = self._next()
        escape = self._string()
        if len(escape) != 1:
            raise SelectorError("ESCAPE takes one character", token.position)
        return escape

    def _string(self) -> str:
        return str(self._expect(STRING).value)

    def _sum(self) -> _Node:
        terms: list[_Node] = []
        signs: list[Token] = []
        while True:
            factors = [self._operand()]
            factor_signs: list[Token] = []
            while self._peek() in ("*", "/"):
                self._extra += SIGN_NODES
                factor_signs.append(self._next_node())
                factors.append(self._operand())
            terms.append(_computed(factors, factor_signs))
            if self._peek() not in ("+", "-"):
                return _computed(terms, signs)
            self._extra += SIGN_NODES
            signs.append(self._next_node())

    def _operand(self) -> _Node:
        signs = self._chain("+", "-")
        if self._peek() != "(":
            node: _Node = self._value()
        else:
            opened = self._next()
            self._open += 1
            if self._open > NESTING_MAX:
                raise SelectorError(f"parentheses are nested deeper than {NESTING_MAX}", opened.position)
            node = self._expression()
            token = self._next()
            if token.kind == END:
                raise SelectorError("this parenthesis is not closed", opened.position)
            if token.kind != ")":
                raise _no_operator(token)
            self._open -= 1
        if not signs:
            return node
        position = signs[0].position
        [value] = _values([node], position)
        return signed(value, sum(sign.kind == "-" for sign in signs) % 2 == 1, position)

    def _value(self) -> Value:
        if self._peek() == "NOT":
            # A NOT before a test is parsed elsewhere. Here an operator that takes values is followed by a NOT.
            raise SelectorError(_NOT_A_VALUE, self._tokens[self._at - 1].position)
        token = self._next_node()
        if token.kind == NAME:
            root, point, _ = token.text.partition(".")
            if point and root in FIELD_NAMES:
                raise SelectorError(f"{root} is a field of the message and has no parts", token.position)
            name = intern(token.text)
            self._extra += POINT_NODES * bool(point)
            self.names.add(name)
            return header(name)
        if token.kind in (STRING, NUMBER):
            return constant(token.value)
        if token.kind in ("TRUE", "FALSE"):
            return constant(token.kind == "TRUE")
        raise _unexpected(token, "a value")

    def _peek(self) -> str:
        return self._tokens[self._at].kind

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _next_node(self) -> Token:
        """Return the next token and count it as an operand or operator."""
        token = self._next()
        self._count += 1
        if self._count > NODES_MAX:
            raise SelectorError(f"more than {NODES_MAX} operands and operators", token.position)
        return token

    def _chain(self, *kinds: str) -> list[Token]:
        """Return the next tokens while they are of these kinds, and count them."""
        tokens = []
        while self._peek() in kinds:
            tokens.append(self._next_node())
        return tokens

    def _expect(self, kind: str) -> Token:
        token = self._next()
        if token.kind != kind:
            raise _unexpected(token, kind)
        return token


def _condition(node: _Node, position: int) -> Condition:
    """Return the node, which must be a condition or a boolean, as a condition."""
    return node if isinstance(node, Condition) else truth(node, position)


def _values(nodes: list[_Node], position: int) -> list[Value]:
    """Return the nodes, which must be values."""
    values = [node for node in nodes if isinstance(node, Value)]
    if len(values) < len(nodes):
        raise SelectorError(_NOT_A_VALUE, position)
    return values


def _compared(kind: str, values: list[Value], position: int) -> Condition:
    if kind == "BETWEEN":
        value, low, high = values
        return between(value, low, high, position)
    left, right = values
    return comparison(kind, left, right, position)


def _computed(nodes: list[_Node], signs: list[Token]) -> _Node:
    """Join nodes by signs of one rank; a single node stays what it is."""
    if not signs:
        return nodes[0]
    position = signs[0].position
    return arithmetic(_values(nodes, position), [sign.kind for sign in signs], position)


def _no_operator(token: Token) -> SelectorError:
    """Return the error for a token that can't follow a complete condition or value."""
    is_arithmetic = token.kind in ("+", "-", "*", "/")
    return SelectorError(_NOT_A_VALUE, token.position) if is_arithmetic else _unexpected(token, "an operator")


def _unexpected(token: Token, expected: str) -> SelectorError:
    return SelectorError(f"expected {expected}, found {token.kind}", token.position)
