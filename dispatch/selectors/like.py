"""Match a text with the pattern of LIKE: `_` is any one character, `%` any number of them, or none.

Pattern and text may come from an attacker, so the matchers use no regular expression and never backtrack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_ANY_ONE: Final = "any one"
_ANY_RUN: Final = "any run"


def like_matcher(pattern: str, escape: str | None) -> Callable[[str], bool]:
    """Return a predicate that tells whether a text matches the pattern.

    `_` is any one character and `%` any run of them; `escape` makes the next `_`, `%` or itself plain.
    O(text x pattern / 30), whatever both hold.
    """
    elements = _like_elements(pattern, escape)
    if _ANY_ONE in elements:
        return _like_states(elements)
    pieces = [""]
    for element in elements:
        if element == _ANY_RUN:
            pieces.append("")
        else:
            pieces[-1] += element
    return _like_pieces(pieces)


def _like_elements(pattern: str, escape: str | None) -> list[str]:
    """Return the pattern as plain characters, _ANY_ONE and _ANY_RUN."""
    elements = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        following = pattern[at + 1 : at + 2]
        if character == escape and following in ("_", "%", escape):
            elements.append(following)
            at += 1
        else:
            elements.append({"_": _ANY_ONE, "%": _ANY_RUN}.get(character, character))
        at += 1
    return elements


def _like_pieces(pieces: list[str]) -> Callable[[str], bool]:
    """Return a matcher of plain pieces with any text between them. The first place found for a piece is right."""
    first, last = pieces[0], pieces[-1]
    middle = [piece for piece in pieces[1:-1] if piece]
    if len(pieces) == 1:
        return first.__eq__
    if not middle and not last:
        return lambda text: text.startswith(first)
    if not middle and not first:
        return lambda text: text.endswith(last)
    if not first and not last and len(middle) == 1:
        needle = middle[0]
        return lambda text: needle in text
    length_min = len(first) + len(last)

    def matches(text: str) -> bool:
        if len(text) < length_min or not text.startswith(first) or not text.endswith(last):
            return False
        at, end = len(first), len(text) - len(last)
        for piece in middle:
            at = text.find(piece, at, end)
            if at < 0:
                return False
            at += len(piece)
        return True

    return matches


def _like_states(elements: list[str]) -> Callable[[str], bool]:
    """Return a matcher that keeps all places which the pattern can have reached, as bits of one int.

    Bit n says that the first n elements are matched. A two-pointer matcher backtracks, and `%` before a thousand `_`
    costs it a thousand steps a character; this costs a few operations on a small int.
    """
    advance: dict[str, int] = {}
    advance_any = stay = 0
    place = 1
    for element in elements:
        if element == _ANY_RUN:
            stay |= place
            continue
        if element == _ANY_ONE:
            advance_any |= place
        else:
            advance[element] = advance.get(element, 0) | place
        place <<= 1
    advance = {character: places | advance_any for character, places in advance.items()}

    def matches(text: str) -> bool:
        reached = 1
        for character in text:
            reached = (reached & advance.get(character, advance_any)) << 1 | reached & stay
            if not reached:
                return False
        return reached & place != 0

    return matches
