"""Verification: find out whether a journal is whole, from its data logs alone.

`examine` reads one data log and returns its findings; `judge` combines the data logs of a journal. A place that does
not verify is damage if some record knew it to be durable. Behind everything durable, the first such place is the
beginning of the tail, which a crash leaves and the next open cuts. Nothing is written, and a process may own the
journal meanwhile.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from types import MappingProxyType
from typing import Final, NamedTuple

from ..disk.disk import Disk, File
from ..disk.layout import data_log_name
from ..errors import JournalCorrupt
from ..format.decode import decode
from ..format.record import (
    DIRECTORY,
    DROP,
    HEADER_BYTES,
    MESSAGE,
    STATE,
    LostRecord,
    RecordDamaged,
    decode_slice,
    log_sequence_behind,
)
from ..format.state_record import DestinationRecord, DropRecord, StateRecord
from ..journal.data_log import (
    DATA_LOG_HEADER_BYTES,
    DataLogHeader,
    UnknownVersion,
    decode_data_log_header,
    directory_payload,
    used_bytes,
)
from ..journal.scan import Damage, FoundRecord, open_data_logs, scan
from ..numbering import OFFSET_BITS, OFFSET_MASK
from ..structures.sequence_set import SequenceSet


class JournalFinding(NamedTuple):
    """A place in the journal, and its problem."""

    data_log: int
    offset: int
    problem: str


@dataclass(slots=True)
class DataLogFacts:
    """The findings of `examine` in one data log: small, plain, and enough for `judge`."""

    data_log: int
    header: DataLogHeader | None = None
    size_bytes: int = 0
    end: int = 0
    """Offset behind the last record that verifies."""
    next_log_sequence: int = 0
    durable_end: int = 0
    """The greatest durable end in one of its records."""
    is_sealed: bool = False
    has_lost: bool = False
    """Whether a repair gave up a part of it, which its directory still names."""
    records: int = 0
    messages: int = 0
    findings: list[JournalFinding] = field(default_factory=list)
    """Damage that no crash leaves."""
    damages: list[Damage] = field(default_factory=list)
    """Damage that a crash may leave, but only behind everything that is durable."""
    unseen_from: int | None = None
    """Offset behind which nothing was examined, because the owner went on writing there. None: all was examined."""
    existing: list[tuple[int, list[int]]] = field(default_factory=list)
    """(STATE, existing data logs) or (DROP, deleted data logs), as the records say."""

    def leave_unseen(self, offset: int) -> None:
        """Note that nothing behind this offset was examined."""
        self.unseen_from = offset

    def add(self, offset: int, problem: str) -> None:
        self.findings.append(JournalFinding(self.data_log, offset, problem))


NOTHING_KNOWN: Final[Mapping[int, DataLogFacts]] = MappingProxyType({})


class Verdict(NamedTuple):
    findings: tuple[JournalFinding, ...]
    """Damage, ordered by place."""
    tail: JournalFinding | None
    """The end of the journal as an open finds it, if bytes follow: a crash left them, or a process is writing them."""
    tail_bytes: int


def raise_first_damage(disk: Disk, data_logs: Sequence[int], end: int) -> None:
    """Verify every byte of these data logs before the end of the journal.

    JournalCorrupt names the first place that does not verify. Behind the end is the tail, which the caller is about to
    cut.
    """
    journal: list[DataLogFacts] = []
    for data_log in data_logs:
        file = disk.open_for_reading(data_log_name(data_log))
        try:
            journal.append(examine(data_log, file))
        finally:
            file.close()
    damaged = [finding for facts in journal for finding in facts.findings]
    damaged += _unreadable(journal)
    for place in sorted(damaged):
        if place.data_log << OFFSET_BITS | place.offset < end:
            raise JournalCorrupt(*place)


def examine(data_log: int, file: File | OSError) -> DataLogFacts:
    """Verify every byte of one data log. It is read once."""
    facts = DataLogFacts(data_log)
    try:
        if isinstance(file, OSError):
            raise file
        facts.size_bytes = file.size()
        _examine_header(facts, file)
        if facts.header is not None:
            _examine_records(facts, file, facts.header)
    except OSError as error:
        facts.add(facts.end, f"the data log cannot be read ({error.strerror or error})")
    return facts


def _examine_header(facts: DataLogFacts, file: File) -> None:
    try:
        header = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES))
        if header.data_log != facts.data_log:
            raise RecordDamaged(f"the data log was written as data-{header.data_log}.log")
    except RecordDamaged as damage:
        facts.damages.append(Damage(0, used_bytes(file, 0), str(damage), is_tail=True))
        return
    except UnknownVersion as version:
        facts.add(0, str(version))
        return
    facts.header, facts.end = header, DATA_LOG_HEADER_BYTES


def _examine_records(facts: DataLogFacts, file: File, header: DataLogHeader) -> None:
    facts.next_log_sequence = header.first_log_sequence
    names: dict[int, str] = {}
    offsets = array("I")
    for found in scan(file, header, on_unseen=facts.leave_unseen):
        if isinstance(found, Damage):
            facts.damages.append(found)
            continue
        record = found.header
        facts.records += 1
        facts.end = found.offset + record.length
        facts.next_log_sequence = log_sequence_behind(record, found.head)
        facts.durable_end = max(facts.durable_end, record.durable)
        try:
            examine_record(facts, found, names, offsets)
        except RecordDamaged as damage:
            facts.add(found.offset, str(damage))
        offsets.append(found.offset)


def examine_record(facts: DataLogFacts, found: FoundRecord, names: dict[int, str], offsets: array[int]) -> None:
    """Raise RecordDamaged for content that can't be right although its checksums are."""
    record, head = found.header, found.head
    payload = head[HEADER_BYTES:]
    if record.kind == MESSAGE:
        facts.messages += record.entries - len(found.bad_messages)
        if found.bad_messages:
            facts.damages.append(Damage(found.offset, record.length, _bad_messages(found, names)))
        return
    if record.kind == DIRECTORY:
        facts.is_sealed = True
        if not facts.damages and not facts.has_lost and payload != directory_payload(offsets, found.offset):
            raise RecordDamaged("the directory does not name the records that are there")
        return
    match decode(record, head):
        case DestinationRecord(destination):
            names[destination.number] = destination.name
        case StateRecord() as state:
            names |= {destination.number: destination.name for destination in state.destinations}
            facts.existing.append((STATE, state.data_logs))
        case DropRecord() as dropped:
            facts.existing.append((DROP, dropped.data_logs))
        case LostRecord():
            facts.has_lost = True
        case _:
            pass  # decode has accepted it


def _bad_messages(found: FoundRecord, names: dict[int, str]) -> str:
    part = decode_slice(found.header, found.head)
    runs = SequenceSet()
    for index in found.bad_messages:
        runs.add(index, index)
    # In a transaction the commit gives the first sequence, so only places in the slice are known.
    base = 0 if found.header.is_transactional else part.first_sequence
    sequences = ", ".join(f"{base + first}" + (f" to {base + last}" if first < last else "") for first, last in runs)
    where = f"of transaction {part.first_sequence:x}, place" if found.header.is_transactional else "sequence"
    number = part.destination_number
    destination = repr(names[number]) if number in names else f"destination {number}"
    return (
        f"{len(found.bad_messages)} of {found.header.entries} messages do not verify: "
        f"{destination}, priority {part.priority}, {where} {sequences}"
    )


def examine_all(
    disk: Disk,
    examine_one: Callable[[int, File | OSError], DataLogFacts] = examine,
    known: Mapping[int, DataLogFacts] = NOTHING_KNOWN,
) -> Iterator[DataLogFacts]:
    """Yield the facts of each data log in order; examine an unsealed one again once a later one has begun.

    The owner of the journal may have written to its end meanwhile. examine_one: `examine`, or an equivalent. known:
    earlier findings for sealed data logs; those that still exist are not read again.
    """
    unsealed: tuple[DataLogFacts, File | OSError] | None = None
    for data_log, file in open_data_logs(disk):
        facts = known.get(data_log) or examine_one(data_log, file)
        if unsealed is not None:
            earlier, still_open = unsealed
            # Yield it even if it was deleted: the record of its deletion may be behind what was read of this data log.
            yield earlier if facts.header is None else examine_one(earlier.data_log, still_open)
        unsealed = None if facts.is_sealed else (facts, file)
        if facts.is_sealed:
            yield facts
    if unsealed is not None:
        yield unsealed[0]


def judge(journal: Sequence[DataLogFacts], known_durable_end: int = 0) -> Verdict:
    """Combine the data logs of one journal, in order of their ids. It reads nothing.

    known_durable_end: the durable end that is known from elsewhere, before the data logs were read.
    """
    durable_end = max([known_durable_end, *(facts.durable_end for facts in journal)])
    findings = [finding for facts in journal for finding in facts.findings]
    tail: JournalFinding | None = None
    for place in sorted(_places(journal)):
        if place.data_log << OFFSET_BITS | place.offset >= durable_end:
            tail = place
            break
        findings.append(place)
    store_id = next((facts.header.store_id for facts in journal if facts.header is not None), None)
    for facts in journal:
        if facts.header is not None and facts.header.store_id != store_id:
            findings.append(JournalFinding(facts.data_log, 0, "the data log belongs to another store"))
    if tail is None:
        findings += _cut_short(journal, findings, known_durable_end)
    return Verdict(tuple(sorted(findings)), tail, _bytes_behind(journal, tail) if tail is not None else 0)


def _cut_short(
    journal: Sequence[DataLogFacts], findings: Sequence[JournalFinding], known_durable_end: int
) -> Iterator[JournalFinding]:
    """Yield the end of a journal that was durable beyond it, unless there is a finding behind its last record."""
    newest = journal[-1] if journal else DataLogFacts(0)
    data_log, offset = known_durable_end >> OFFSET_BITS, known_durable_end & OFFSET_MASK
    if newest.data_log << OFFSET_BITS | newest.end >= known_durable_end or newest.unseen_from is not None:
        return
    if data_log > newest.data_log:
        yield JournalFinding(data_log, 0, f"the data log is missing, and was durable up to offset {offset}")
    elif not any((found.data_log, found.offset) >= (data_log, newest.end) for found in findings):
        yield JournalFinding(data_log, newest.end, f"the data log ends, and was durable up to offset {offset}")


def _places(journal: Sequence[DataLogFacts]) -> Iterator[JournalFinding]:
    """Yield each place where the journal, read from its beginning, does not have the next record."""
    for data_log in _missing(journal):
        yield JournalFinding(data_log, 0, "the data log is missing, and was not dropped")
    yield from _unreadable(journal)


def _unreadable(journal: Sequence[DataLogFacts]) -> Iterator[JournalFinding]:
    for facts, later in zip_longest(journal, journal[1:]):
        for damage in facts.damages:
            yield JournalFinding(facts.data_log, damage.offset, damage.problem)
        is_cut = bool(facts.damages) and facts.damages[-1].is_tail
        if (
            later is None
            or later.data_log != facts.data_log + 1
            or facts.header is None
            or later.header is None
            or is_cut
        ):
            continue
        due, first = facts.next_log_sequence, later.header.first_log_sequence
        if due != first:
            problem = f"the data log ends before log sequence {due}, the next one begins with {first}"
            yield JournalFinding(facts.data_log, facts.end, problem)
        elif not facts.is_sealed and facts.end < facts.size_bytes:
            yield JournalFinding(
                facts.data_log, facts.end, "zeros follow the last record, though there is a next data log"
            )


def _bytes_behind(journal: Sequence[DataLogFacts], tail: JournalFinding) -> int:
    ends = {
        facts.data_log: max([facts.end, *(damage.offset + damage.length for damage in facts.damages)])
        for facts in journal
        if facts.data_log >= tail.data_log
    }
    return sum(ends.values()) - tail.offset


def _missing(journal: Sequence[DataLogFacts]) -> list[int]:
    """Return the data logs that should exist, by the newest state record and the drop records behind it."""
    existing: set[int] = set()
    for facts in journal:
        for kind, data_logs in facts.existing:
            existing = {*data_logs, facts.data_log} if kind == STATE else existing.difference(data_logs)
    return sorted(existing.difference(facts.data_log for facts in journal))
