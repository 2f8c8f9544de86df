"""Splits a selector into tokens, and spells the canonical text of tokens.

The lexer is written by hand: one pass from left to right, linear in the length. Words follow Java's rule for
identifiers (letters of any script, `_`, `$`, currency signs, then also digits and combining marks); keywords count in
any case, names and literals exactly as they stand. Words joined by points are one name.
"""

from __future__ import annotations

import unicodedata
from typing import Final, NamedTuple

from ...store.errors import SelectorError

NAME: Final = "a name"
STRING: Final = "a string"
NUMBER: Final = "a number"
END: Final = "the end"

KEYWORDS: Final = frozenset("AND BETWEEN ESCAPE FALSE IN IS LIKE NOT NULL OR TRUE".split())
_SIGNS: Final = ("<>", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "(", ")", ",")
_FOREIGN: Final = {
    "==": "equality is written =, not ==",
    "!=": "inequality is written <>, not !=",
    "<=>": "comparison with NULL is written IS NULL",
    "&&": "both conditions together are written AND, not &&",
    "||": "one condition or the other is written OR, not ||",
    "!": "negation is written NOT, not !",
    '"': "a string stands between single quotes, 'like this', and a name between none",
    "`": "a name stands between no quotes",
    "%": "there is no remainder: the arithmetic is + - * /",
    "~": "a pattern is written LIKE, such as name LIKE 'a%'",
}
"""Signs of other languages, and the sign to use here instead. A longer sign comes before its own beginning."""
_SPACE: Final = " \t\n\r\f"
_DIGITS: Final = "0123456789"
_NAME_START: Final = frozenset("Lu Ll Lt Lm Lo Nl Sc Pc".split())
_NAME_PART: Final = _NAME_START | {"Nd", "Mn", "Mc"}

LONG_LIMIT: Final = 1 << 63
"""The first integer above Java's long; the lexer accepts it because it may follow a minus."""
_LONG_DIGITS: Final = 19


class Token(NamedTuple):
    kind: str
    """NAME, STRING, NUMBER or END, or the keyword or sign itself. Errors show the kind, never a literal."""
    value: str | int | float
    text: str
    position: int


def tokenize(text: str) -> list[Token]:
    """Return all tokens, then END. SelectorError at the first character that begins no token."""
    tokens = []
    at = 0
    while at < len(text):
        first = text[at]
        if first in _SPACE:
            at += 1
            continue
        if first == "'":
            token = _string(text, at)
        elif first in _DIGITS or first == ".":
            token = _number(text, at)
        elif unicodedata.category(first) in _NAME_START:
            token = _word(text, at)
        else:
            token = _sign(text, at)
        tokens.append(token)
        at += len(token.text)
    tokens.append(Token(END, "", "", len(text)))
    return tokens


def canonical_text(tokens: list[Token]) -> str:
    """Return the text of tokens, with keywords in capitals and spaces only between two words.

    tokenize() of the result gives the same tokens.
    """
    parts: list[str] = []
    after_word = False
    for token in tokens:
        is_word = token.kind not in _SIGNS
        if is_word and after_word and token.kind != END:
            parts.append(" ")
        parts.append(token.text)
        after_word = is_word
    return "".join(parts)


def _string(text: str, start: int) -> Token:
    end = text.find("'", start + 1)
    while text[end + 1 : end + 2] == "'" and end > 0:
        end = text.find("'", end + 2)
    if end < 0:
        raise SelectorError("this string has no closing quote", start)
    raw = text[start : end + 1]
    return Token(STRING, raw[1:-1].replace("''", "'"), raw, start)


def _number(text: str, start: int) -> Token:
    whole_end = end = _after_digits(text, start)
    if text[end : end + 1] == ".":
        end = _after_digits(text, end + 1)
        if end - start == 1:
            raise SelectorError("a point needs a digit beside it", start)
    if text[end : end + 1] in ("e", "E"):
        exponent = end + 2 if text[end + 1 : end + 2] in ("+", "-") else end + 1
        end = _after_digits(text, exponent)
        if end == exponent:
            raise SelectorError("an exponent needs digits", start)
    value = _exact(text[start:end], start) if end == whole_end else _approximate(text[start:end], start)
    if end == whole_end and text[end : end + 1] in ("l", "L"):
        end += 1
    if end < len(text) and unicodedata.category(text[end]) in _NAME_PART:
        raise SelectorError("a number runs into a word", end)
    return Token(NUMBER, value, text[start:end], start)


def _exact(digits: str, position: int) -> int:
    if digits[0] == "0" and len(digits) > 1:
        raise SelectorError("an integer with a leading zero is octal in Java: write it in decimal", position)
    # Count the digits first: for long strings of digits, int() may raise an error of its own.
    if len(digits) > _LONG_DIGITS or int(digits) > LONG_LIMIT:
        raise SelectorError("an integer beyond 64 bits", position)
    return int(digits)


def _approximate(digits: str, position: int) -> float:
    value = float(digits)
    if value == float("inf"):
        raise SelectorError("a number beyond the range of a double", position)
    return value


def _after_digits(text: str, at: int) -> int:
    while at < len(text) and text[at] in _DIGITS:
        at += 1
    return at


def _after_word(text: str, start: int) -> int:
    end = start + 1
    while end < len(text) and unicodedata.category(text[end]) in _NAME_PART:
        end += 1
    return end


def _word(text: str, start: int) -> Token:
    end = _after_word(text, start)
    while text[end : end + 1] == "." and unicodedata.category(text[end + 1 : end + 2] or " ") in _NAME_START:
        end = _after_word(text, end + 1)
    word = text[start:end]
    # Only ASCII is folded: "ın".upper() is "IN", and still a name.
    keyword = word.upper() if word.isascii() else word
    if keyword in KEYWORDS:
        return Token(keyword, keyword, keyword, start)
    return Token(NAME, word, word, start)


def _sign(text: str, start: int) -> Token:
    for sign, advice in _FOREIGN.items():
        if text.startswith(sign, start):
            raise SelectorError(advice, start)
    for sign in _SIGNS:
        if text.startswith(sign, start):
            return Token(sign, sign, sign, start)
    raise SelectorError(f"character U+{ord(text[start]):04X} has no meaning here", start)
