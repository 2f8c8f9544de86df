"""What transactions keep of the journal, and the bytes of their records."""

from __future__ import annotations

import pytest
from message_stores import uses_of

from forebay.store.format.branch import (
    Branch,
    decode_branch,
    decode_commit,
    decode_rollback,
    encode_branch,
    encode_commit,
)
from forebay.store.format.record import RecordDamaged
from forebay.store.maintenance.removable import removable


def test_a_commit_pins_as_an_ack_does() -> None:
    uses = uses_of(log1=(1, set()), log2=(0, set()), log3=(0, {2}), log4=(0, set()))
    uses[2].committed_data_logs.add(1)
    assert removable(uses, 4) == []
    uses[1].pending_messages = 0
    assert removable(uses, 4) == [1, 2, 3]
    assert removable(uses, 4, {1}) == []


def test_any_cut_of_a_transaction_s_bytes_is_damage() -> None:
    branch = Branch(2**40, b"xid")
    branch.add(20, 2 << 32 | 64, 3, 500)
    branch.acknowledge(36, 5, 9)
    encoded = encode_branch(branch)
    branch.give_sequences(lambda lane: 511)
    assert [placed.first for placed in branch.committed()] == [512] and branch.holes == {20: 1}
    commit = encode_commit(branch)
    assert decode_commit(commit).slices == list(branch.committed())
    for length in range(len(encoded)):
        with pytest.raises(RecordDamaged):
            decode_branch(encoded[:length])
    for length in range(len(commit)):
        with pytest.raises(RecordDamaged):
            decode_commit(commit[:length])
    with pytest.raises(RecordDamaged, match="bytes follow"):
        decode_commit(commit + b"\0")
    for wrong in (bytes(8), b"\xff" * 8):
        with pytest.raises(RecordDamaged, match="acknowledges nothing|cannot be"):
            decode_commit(commit[:-8] + wrong)
        with pytest.raises(RecordDamaged, match="acknowledges nothing|cannot be"):
            decode_branch(encoded[:-8] + wrong)
    with pytest.raises(RecordDamaged):
        decode_rollback(bytes(7))
