"""Facts as Arrow record batches: the rows of `store/inspect/facts.py`, made a region at a time.

A sealed, undamaged data log goes through `kernels/heads.py`. Everything else, and rare records, go through the store's
own scan, row by row. Both give the same rows in the same order. A batch has the rows of at most 8 MiB of journal, or of
one larger record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...store.disk.disk import Disk, File
from ...store.disk.layout import data_log_name
from ...store.format.record import ACK, KIND_NAMES, MESSAGE, RELOCATED, TRANSACTIONAL, RecordDamaged, decode_header
from ...store.inspect.facts import (
    RELOCATE,
    DecodedProperties,
    DestinationNames,
    Fact,
    ScanOptions,
    UnreadableRange,
    decoded_properties,
    facts_of,
    headers_text,
    rows_of,
)
from ...store.journal.data_log import (
    DATA_LOG_HEADER_BYTES,
    DataLogHeader,
    RecordWalk,
    UnknownVersion,
    decode_data_log_header,
)
from ...store.journal.scan import FoundRecord
from ...store.message import id_prefix
from ...store.numbering import LANE_MASK, LANE_SHIFT
from ..errors import NotRead
from .fleet import Part
from .heads import Heads, Messages, NotVectorizable, directory_of, heads_of, messages_of, verify_messages
from .schema import TIME_MS_MAX, arrow_schema

DAMAGED: Final = "damaged"
"""Kind of a row for a part that gave no rows."""
OWN_TAGS: Final = 8
"""Properties that begin with this tag or a greater one have more than headers."""

_ROWS_AT_ONCE: Final = 4096
_BYTES_AT_ONCE: Final = 8 << 20
_ONE_TEXT: Final = np.zeros(1, np.int64)
"""Index of the first text, for all rows."""
_KINDS: Final = (KIND_NAMES[MESSAGE], RELOCATE, KIND_NAMES[ACK])


@dataclass(frozen=True, slots=True)
class Request:
    """The requested rows, and their form. `columns`: name and type of each, in order."""

    broker: str
    columns: Mapping[str, str]
    wanted: ScanOptions = ScanOptions()
    reports: bool = False
    """Whether damage gives rows instead of `NotRead`."""
    keep: Callable[[Any], Any] | None = None
    """Selects the wanted rows of a batch."""


def batches(disk: Disk, request: Request, part: Part, names: DestinationNames | None = None) -> Iterator[Any]:
    """Yield the record batches of one data log.

    For each part without rows, raise NotRead, or yield a row with `reports`.

    names: those told before part.begin.
    """
    shape = _Shape(request, part.data_log)
    if part.problem is not None:
        yield from shape.rows([UnreadableRange(0, part.size_bytes, part.problem)])
        return
    try:
        file = disk.open_for_reading(data_log_name(part.data_log))
    except FileNotFoundError:
        yield from shape.rows(
            [UnreadableRange(0, part.size_bytes, "the data log was deleted after the reading was planned")]
        )
        return
    except OSError as error:
        yield from shape.rows([UnreadableRange(0, part.size_bytes, f"it cannot be read ({error.strerror or error})")])
        return
    try:
        yield from _of_file(file, shape, part, names)
    except OSError as error:
        yield from shape.rows(
            [UnreadableRange(part.begin, part.size_bytes, f"it cannot be read ({error.strerror or error})")]
        )
    finally:
        file.close()


def _of_file(file: File, shape: _Shape, part: Part, names: DestinationNames | None) -> Iterator[Any]:
    try:
        header = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES))
        if header.data_log != part.data_log:
            raise RecordDamaged(f"the data log was written as data-{header.data_log}.log")
        if part.salt is not None and header.salt != part.salt:
            raise RecordDamaged("another data log has this name now")
    except RecordDamaged as damage:
        if not part.is_newest or part.salt is not None:  # otherwise it is just being begun
            yield from shape.rows([UnreadableRange(0, part.size_bytes, str(damage))])
        return
    except UnknownVersion as version:
        yield from shape.rows([UnreadableRange(0, part.size_bytes, str(version))])
        return
    names = DestinationNames() if names is None else names
    offset: int | None = part.begin
    sequence: int | None = None
    offsets = directory_of(file, header, is_newest=part.is_newest and part.end is None)
    if offsets is not None:
        try:
            for heads in heads_of(file, header, offsets):
                offset, sequence = heads.begin, heads.next_log_sequence - len(heads.at)
                if part.end is not None and heads.begin >= part.end:
                    return
                yield from shape.of_heads(heads, file, header, names, part)
            last = int(offsets[-1])
            offset, sequence = last, header.first_log_sequence + len(offsets) - 1
        except NotVectorizable:
            pass
    elif part.begin > DATA_LOG_HEADER_BYTES:
        sequence = _learned(file, header, names, part.begin)
    yield from shape.rows(_scanned(file, header, shape.request.wanted, names, part, offset, sequence))


def _learned(file: File, header: DataLogHeader, names: DestinationNames, end: int) -> int | None:
    """Learn the names in the records before an offset. Return the log sequence of the record that begins there."""
    walk = RecordWalk(file, header, DATA_LOG_HEADER_BYTES, next_log_sequence=header.first_log_sequence)
    for _, record, head in walk:
        names.add_from(record, head)
        if walk.end >= end:
            break
    return walk.next_log_sequence if walk.end == end else None


def _scanned(
    file: File,
    header: DataLogHeader,
    wanted: ScanOptions,
    names: DestinationNames,
    part: Part,
    offset: int | None,
    sequence: int | None,
) -> Iterator[Fact | UnreadableRange]:
    """Yield the rows from the record with that log sequence on. None: from the first one."""
    scanned = facts_of(file, header, wanted, names, offset=offset, next_log_sequence=sequence, is_newest=part.is_newest)
    for fact in scanned:
        if part.end is not None and fact.offset >= part.end:
            return
        if fact.offset >= part.begin or isinstance(fact, UnreadableRange):
            yield fact
    if part.next_log_sequence is not None and part.end is None:
        walk = RecordWalk(
            file, header, offset or DATA_LOG_HEADER_BYTES, next_log_sequence=sequence or header.first_log_sequence
        )
        for _ in walk:
            pass
        if (
            walk.problem is None
            and walk.next_log_sequence is not None
            and walk.next_log_sequence < part.next_log_sequence
        ):
            problem = (
                f"it ends before log sequence {walk.next_log_sequence}, "
                f"the next one begins with {part.next_log_sequence}"
            )
            yield UnreadableRange(walk.end, 0, problem)


class _Shape:
    """Makes batches of rows for one request and data log."""

    def __init__(self, request: Request, data_log: int) -> None:
        self.request = request
        self.data_log = data_log
        self._schema = arrow_schema(dict(request.columns))

    def rows(self, rows: Iterable[Fact | UnreadableRange]) -> Iterator[Any]:
        """Make batches of single rows."""
        gathered: list[Fact | UnreadableRange] = []
        size = 0
        for row in rows:
            if isinstance(row, UnreadableRange) and not self.request.reports:
                if gathered:
                    yield from self._of_rows(gathered)
                raise NotRead(self.request.broker, self.data_log, row.offset, row.problem)
            gathered.append(row)
            size += 0 if isinstance(row, UnreadableRange) or row.body is None else len(row.body)
            if len(gathered) >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
                yield from self._of_rows(gathered)
                gathered, size = [], 0
        if gathered:
            yield from self._of_rows(gathered)

    def _of_rows(self, rows: Sequence[Fact | UnreadableRange]) -> Iterator[Any]:
        facts = [
            row if isinstance(row, Fact) else Fact(row.offset, row.length, DAMAGED) for row in rows
        ]  # fmt: skip
        columns = []
        for field in self._schema:
            values: list[Any]
            if field.name == "broker":
                values = [self.request.broker] * len(rows)
            elif field.name == "data_log":
                values = [self.data_log] * len(rows)
            elif field.name == "problem":
                values = [row.problem if isinstance(row, UnreadableRange) else None for row in rows]
            else:
                values = [getattr(fact, field.name) for fact in facts]
                if pa.types.is_timestamp(field.type):
                    values = [None if value is None or value > TIME_MS_MAX else value * 1000 for value in values]
            columns.append(pa.array(values, field.type))
        yield from self._kept(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def of_heads(
        self, heads: Heads, file: File, header: DataLogHeader, names: DestinationNames, part: Part
    ) -> Iterator[Any]:
        """Return the batch of some records. Raises NotVectorizable: nothing was made."""
        rows = _Rows(self.request, self.data_log, heads, file, header, names, part)
        if rows.count:
            columns = [rows.column(field.name, field.type) for field in self._schema]
            yield from self._kept(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _kept(self, batch: Any) -> Iterator[Any]:
        if self.request.keep is not None:
            batch = self.request.keep(batch)
        if batch.num_rows:
            yield batch


def _is_asked(heads: Heads, part: Part) -> NDArray[np.bool_]:
    """Return for each record whether it begins in the part of the data log that is asked for."""
    offsets = heads.begin + heads.at
    is_asked = offsets >= part.begin
    if part.end is not None:
        is_asked &= offsets < part.end
    return is_asked


class _Rows:
    """The rows of some verified records, column by column."""

    def __init__(
        self,
        request: Request,
        data_log: int,
        heads: Heads,
        file: File,
        header: DataLogHeader,
        names: DestinationNames,
        part: Part,
    ) -> None:
        self._request = request
        self._data_log = data_log
        self._heads = heads
        self._store_id = header.store_id
        self._names = names
        head = heads.head
        counts = head["count"].astype(np.int64)  # rows of each record; an ack of one run has 1 here
        is_asked = _is_asked(heads, part)
        slices, runs = heads.slices, heads.runs
        if not request.wanted.relocated:
            is_copy = head["flags"][slices] & RELOCATED != 0
            if is_copy.any():
                counts[slices[is_copy]] = 0
                slices = slices[~is_copy]
        if not is_asked.all():
            counts[~is_asked] = 0
            slices, runs = slices[is_asked[slices]], runs[is_asked[runs]]
        self.messages: Messages = messages_of(heads, slices)
        if request.wanted.bodies:
            verify_messages(heads, self.messages)
        self._rare_records = heads.rare
        self._rare: list[Fact] = []
        for record in heads.rare.tolist():
            facts = self._rare_rows(record, file)
            if is_asked[record]:
                counts[record] = len(facts)
                self._rare += facts
        self.count = int(counts.sum())
        # The record of each row.
        self._record: NDArray[np.int64] | slice = slice(None)
        if (counts != 1).any():
            self._record = np.repeat(np.arange(len(counts)), counts)
        # Places of the rows that are messages; below, of runs of an ack, and of the rest.
        self._at_messages = self._rows_of(slices)
        self._at_runs = self._rows_of(runs)
        self._at_rare = self._rows_of(heads.rare)

    def _rows_of(self, records: NDArray[np.int64]) -> NDArray[np.int64]:
        if isinstance(self._record, slice) or not len(records):
            return records
        is_one = np.zeros(len(self._heads.at), np.bool_)
        is_one[records] = True
        return np.flatnonzero(is_one[self._record])

    def _rare_rows(self, record: int, file: File) -> list[Fact]:
        """Return the rows of a record that is neither a slice nor an ack of one run. It may have names."""
        heads = self._heads
        begin = int(heads.at[record])
        head = bytes(heads.region[begin : begin + int(heads.head_bytes[record])])
        found = FoundRecord(heads.begin + begin, decode_header(head), head)
        try:
            self._names.add_from(found.header, head)
            rows = list(rows_of(found, file, self._store_id, self._names, self._request.wanted))
        except RecordDamaged as damage:
            raise NotVectorizable from damage
        return [row for row in rows if isinstance(row, Fact)]

    def column(self, name: str, kind: Any) -> Any:
        """Return one column. Columns that nobody requests are never made."""
        make: Callable[[Any], Any] = getattr(self, f"of_{name}")
        return make(kind)

    # ------------------------------------------------------------------ parts of columns

    @cached_property
    def _flags(self) -> NDArray[np.uint8]:
        return self._heads.head["flags"][self._record]

    @cached_property
    def _sequences(self) -> NDArray[np.int64]:
        sequences = self._heads.head["first"].astype(np.int64)[self._record]
        if self.messages.place.any():
            sequences[self._at_messages] += self.messages.place
        return sequences

    @cached_property
    def _is_numbered(self) -> NDArray[np.bool_]:
        """Whether each message has a sequence in its slice."""
        numbered: NDArray[np.bool_] = (self._flags & TRANSACTIONAL == 0) & self._is_message
        return numbered

    @cached_property
    def _is_message(self) -> NDArray[np.bool_]:
        found = np.ones(self.count, np.bool_)
        found[self._at_runs] = found[self._at_rare] = False
        return found

    @cached_property
    def _lanes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Lane numbers, and the index of each row's lane. For rare rows the index is meaningless."""
        head = self._heads.head
        lanes = head["destination"].astype(np.int64) << LANE_SHIFT | (head["flags"] & 15).astype(np.int64)
        first = lanes[-1]
        lanes[self._rare_records] = first
        if (lanes == first).all():
            return lanes[:1], _ONE_TEXT
        found, which = np.unique(lanes, return_inverse=True)
        return found, which[self._record]

    @cached_property
    def _told(self) -> dict[int, DecodedProperties]:
        """Decoded properties, for messages with more than headers, or for all if headers are requested."""
        messages, region = self.messages, self._heads.region
        has = np.flatnonzero(messages.properties)
        if not len(has):
            return {}
        if not self._request.wanted.bodies:
            has = has[np.frombuffer(region, np.uint8)[messages.begin[has]] >= OWN_TAGS]
        told = {}
        try:
            for at in has.tolist():
                begin = int(messages.begin[at])
                told[at] = decoded_properties(bytes(region[begin : begin + int(messages.properties[at])]))
        except RecordDamaged as damage:
            raise NotVectorizable from damage
        return told

    def _of_rare(self, name: str) -> list[Any]:
        return [getattr(fact, name) for fact in self._rare]

    def _numbers(self, values: NDArray[Any], is_there: NDArray[np.bool_] | None, name: str, kind: Any) -> Any:
        """Return a column of numbers. Rare rows have their own values."""
        if self._rare:
            rare = self._of_rare(name)
            is_there = np.ones(self.count, np.bool_) if is_there is None else is_there.copy()
            values[self._at_rare] = [0 if value is None else value for value in rare]
            is_there[self._at_rare] = [value is not None for value in rare]
        return pa.array(values, kind, mask=None if is_there is None else ~is_there)

    def _texts(self, texts: list[str | None], which: NDArray[Any], name: str, kind: Any) -> Any:
        """Return a column of few different texts. Rare rows have their own."""
        if not self._rare and len(texts) == 1:
            return pa.repeat(pa.scalar(texts[0], kind), self.count)
        if self._rare:
            which = np.broadcast_to(which, self.count).copy()
            which[self._at_rare] = np.arange(len(texts), len(texts) + len(self._rare))
            texts = texts + self._of_rare(name)
        if not any(text is not None for text in texts):
            return pa.nulls(self.count, kind)
        return pa.array(texts, kind).take(pa.array(which))

    def _replaced(self, column: Any, values: Mapping[int, Any], kind: Any) -> Any:
        """Return the column with other values for some messages."""
        if not values:
            return column
        mask = np.zeros(self.count, np.bool_)
        mask[self._at_messages[list(values)]] = True
        return pc.replace_with_mask(column, pa.array(mask), pa.array(list(values.values()), kind))

    # ------------------------------------------------------------------ the columns

    def of_broker(self, kind: Any) -> Any:
        return pa.repeat(pa.scalar(self._request.broker, kind), self.count)

    def of_data_log(self, kind: Any) -> Any:
        return pa.array(np.full(self.count, self._data_log, np.int32), kind)

    def of_problem(self, kind: Any) -> Any:
        return pa.nulls(self.count, kind)

    def of_offset(self, kind: Any) -> Any:
        return pa.array((self._heads.begin + self._heads.at)[self._record], kind)

    def of_length(self, kind: Any) -> Any:
        return pa.array(self._heads.head["length"].astype(np.int64)[self._record], kind)

    def of_kind(self, kind: Any) -> Any:
        is_copy = (self._flags & RELOCATED != 0) & self._is_message
        if not len(self._at_runs) and not is_copy.any():
            return self._texts([_KINDS[0]], _ONE_TEXT, "kind", kind)
        which = is_copy.astype(np.int64)
        which[self._at_runs] = 2
        return self._texts(list(_KINDS), which, "kind", kind)

    def of_destination(self, kind: Any) -> Any:
        lanes, which = self._lanes
        texts: list[str | None] = [self._names.of(int(lane) >> LANE_SHIFT)[0] for lane in lanes]
        return self._texts(texts, which, "destination", kind)

    def of_subscription(self, kind: Any) -> Any:
        lanes, which = self._lanes
        texts = [self._names.of(int(lane) >> LANE_SHIFT)[1] for lane in lanes]
        return self._texts(texts, which, "subscription", kind)

    def of_sequence(self, kind: Any) -> Any:
        is_there = self._is_numbered.copy()
        is_there[self._at_runs] = True
        return self._numbers(self._sequences.copy(), None if is_there.all() else is_there, "sequence", kind)

    def of_message_id(self, kind: Any) -> Any:
        lanes, which = self._lanes
        prefixes = [
            id_prefix(self._store_id, int(lane) >> LANE_SHIFT, int(lane) & LANE_MASK) for lane in lanes
        ]  # fmt: skip
        is_numbered = self._is_numbered
        numbers = pa.array(self._sequences, mask=None if is_numbered.all() else ~is_numbered).cast(kind)
        prefix = pa.scalar(prefixes[0], kind) if len(prefixes) == 1 else pa.array(prefixes, kind).take(pa.array(which))
        ids = pc.binary_join_element_wise(prefix, numbers, "")
        own = {at: told.message_id for at, told in self._told.items() if told.message_id is not None}
        return self._replaced(ids, own, kind)

    def of_timestamp(self, kind: Any) -> Any:
        times = self._heads.head["timestamp"][self._record].astype(np.int64)
        is_there = self._is_message & (times >= 0) & (times <= TIME_MS_MAX)
        times *= 1000
        return pa.array(times, pa.int64(), mask=None if is_there.all() else ~is_there).view(kind)

    def of_priority(self, kind: Any) -> Any:
        return self._numbers((self._flags & 15).astype(np.int32), None, "priority", kind)

    def of_expires_at(self, kind: Any) -> Any:
        times = {at: told.expires_at for at, told in self._told.items() if told.expires_at is not None}
        known = {at: time * 1000 for at, time in times.items() if time <= TIME_MS_MAX}
        return self._replaced(pa.nulls(self.count, pa.int64()), known, pa.int64()).view(kind)

    def of_transaction(self, kind: Any) -> Any:
        which, texts = _ONE_TEXT, list[str | None]([None])
        at = self._at_messages[self._flags[self._at_messages] & TRANSACTIONAL != 0]
        if len(at):
            which = np.zeros(self.count, np.int64)
            numbers, inverse = np.unique(self._heads.head["first"][self._record][at], return_inverse=True)
            texts += [f"{number:x}" for number in numbers.tolist()]
            which[at] = inverse + 1
        return self._texts(texts, which, "transaction", kind)

    def of_producer(self, kind: Any) -> Any:
        own = {at: told.producer for at, told in self._told.items() if told.producer is not None}
        return self._replaced(pa.nulls(self.count, kind), own, kind)

    def of_messages(self, kind: Any) -> Any:
        counts = np.ones(self.count, np.int64)
        counts[self._at_runs] = self._heads.head["messages"][self._record][self._at_runs]
        return self._numbers(counts, None, "messages", kind)

    def of_content_bytes(self, kind: Any) -> Any:
        if len(self._at_messages) == self.count:
            return pa.array(self.messages.content, kind)
        sizes, is_there = np.zeros(self.count, np.int64), np.zeros(self.count, np.bool_)
        sizes[self._at_messages] = self.messages.content
        is_there[self._at_messages] = True
        return pa.array(sizes, kind, mask=~is_there)

    def of_headers(self, kind: Any) -> Any:
        texts: list[str | None] = [None] * self.count
        told = self._told
        for at, row in enumerate(self._at_messages.tolist()):
            texts[row] = headers_text(told[at].headers) if at in told else "{}"
        return pa.array(texts, kind)

    def of_body(self, kind: Any) -> Any:
        messages, region = self.messages, self._heads.region
        bodies: list[bytes | None] = [None] * self.count
        begins = (messages.begin + messages.properties).tolist()
        ends = (messages.begin + messages.content).tolist()
        for row, begin, end in zip(self._at_messages.tolist(), begins, ends, strict=True):
            bodies[row] = bytes(region[begin:end])
        return pa.array(bodies, kind)
