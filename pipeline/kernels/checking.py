"""Verification of one data log by columns: the findings of `store/recovery/verify.py`, at the speed of the checksums.

It handles only data logs in which every byte verifies. At the first doubt the store's own code examines the data log
again and names the places.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import asdict
from typing import Any

from ...store.disk.disk import File
from ...store.format.record import RecordDamaged, decode_header
from ...store.journal.data_log import DATA_LOG_HEADER_BYTES, DataLogHeader, UnknownVersion, decode_data_log_header
from ...store.journal.scan import Damage, FoundRecord
from ...store.recovery.verify import DataLogFacts, JournalFinding, examine, examine_record
from .heads import NotVectorizable, directory_of, heads_of, messages_of, verify_messages


def examine_by_columns(data_log: int, file: File | OSError) -> DataLogFacts:
    """Examine a data log as `examine` does. Reads it once, or twice if it is damaged."""
    if isinstance(file, OSError):
        return examine(data_log, file)
    try:
        found = _whole(data_log, file)
    except (OSError, RecordDamaged, UnknownVersion, NotVectorizable):
        found = None
    return found if found is not None else examine(data_log, file)


def _whole(data_log: int, file: File) -> DataLogFacts | None:
    """Return the facts of a sealed data log in which every byte verifies. For any other, return None or raise."""
    header = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES))
    offsets = directory_of(file, header)
    if offsets is None or header.data_log != data_log:
        return None
    facts = DataLogFacts(data_log, header, file.size(), file.size())
    names: dict[int, str] = {}
    for heads in heads_of(file, header, offsets):
        head = heads.head
        messages = messages_of(heads, heads.slices)
        verify_messages(heads, messages)
        facts.messages += len(messages.record)
        facts.durable_end = max(facts.durable_end, int(head["durable"].max()))
        for record in heads.rare.tolist():
            begin = int(heads.at[record])
            part = bytes(heads.region[begin : begin + int(heads.head_bytes[record])])
            examine_record(facts, FoundRecord(heads.begin + begin, decode_header(part), part), names, array("I"))
    seal = decode_header(file.read(int(offsets[-1]), DATA_LOG_HEADER_BYTES))
    facts.durable_end = max(facts.durable_end, seal.durable)
    facts.is_sealed = True
    facts.records = len(offsets)
    facts.next_log_sequence = header.first_log_sequence + len(offsets)
    return facts


def to_text(facts: DataLogFacts) -> str:
    """Return the facts as JSON, which a worker sends to the driver."""
    fields: dict[str, Any] = {name: getattr(facts, name) for name in DataLogFacts.__slots__}
    fields["header"] = None
    if facts.header is not None:
        fields["header"] = facts.header._asdict() | {"store_id": facts.header.store_id.hex()}
    fields["damages"] = [asdict(damage) for damage in facts.damages]
    return json.dumps(fields)


def from_text(text: str) -> DataLogFacts:
    """Return the facts in the result of to_text."""
    fields = json.loads(text)
    header = fields["header"]
    if header is not None:
        fields["header"] = DataLogHeader(**header | {"store_id": bytes.fromhex(header["store_id"])})
    fields["findings"] = [JournalFinding(*finding) for finding in fields["findings"]]
    fields["damages"] = [Damage(**damage) for damage in fields["damages"]]
    fields["existing"] = [(kind, data_logs) for kind, data_logs in fields["existing"]]
    return DataLogFacts(**fields)
