"""Contents: columns that say the same as pairs."""

from __future__ import annotations

from forebay.store.format.contents import Contents

PAIRS = [(b"", b"first"), (b"properties", b"second"), (b"only", b""), (b"", b"")]


def test_contents_give_back_the_pairs_they_were_made_of() -> None:
    contents = Contents.of(PAIRS)
    assert list(contents.pairs()) == PAIRS and len(contents) == len(PAIRS)
    assert contents.lengths() == [5, 16, 4, 0]


def test_a_part_leaves_the_whole_as_it_was() -> None:
    contents = Contents.of(PAIRS)
    contents.part(1, 3).append(b"later", b"")
    assert list(contents.part(1, 3).pairs()) == PAIRS[1:3] and list(contents.part(2).pairs()) == PAIRS[2:]
    assert list(contents.at([3, 1]).pairs()) == [PAIRS[3], PAIRS[1]]
    assert list(contents.pairs()) == PAIRS


def test_a_cut_returns_what_comes_next_and_drops_what_comes_behind() -> None:
    contents = Contents.of(PAIRS)
    rest = contents.cut(1, 3)
    assert list(contents.pairs()) == PAIRS[:1] and list(rest.pairs()) == PAIRS[1:3]
    assert list(rest.followed_by(contents).pairs()) == PAIRS[1:3] + PAIRS[:1]


def test_arrived_messages_have_dense_sequences_and_one_time() -> None:
    assert Contents.of(PAIRS[:2]).arrived(7, 5) == [(7, b"", b"first", 5), (8, b"properties", b"second", 5)]
