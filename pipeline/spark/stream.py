"""The stream: facts in the order in which they were written, each batch from the end of the last one.

    spark.readStream.format("forebay").option("lease", "audit").load("/brokers/*")

An offset names, for each store, the place (data log and offset) up to which everything was read, and the data logs that
were read since the previous offset. So a repeated batch reads the same bytes. Records become visible once they are
written, not once they are synced.

Options, besides those of the table facts: `lease` names a reader for which the store keeps unread data logs, until
`leaseSeconds` (3600) after the reader was last seen; `maxBytesPerTrigger` bounds a batch; `startingOffset` is
"earliest" or "latest".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from ...store.disk.disk import Disk, OsDisk
from ...store.disk.layout import JOURNAL, data_log_id
from ...store.environment.clock import SystemClock
from ...store.inspect.facts import ScanOptions
from ...store.journal.data_log import DATA_LOG_HEADER_BYTES
from ...store.maintenance.leases import Lease, write_lease
from ..errors import NotRead
from ..kernels.fleet import Part, Store, find_stores
from ..kernels.progress import Place, ahead
from .options import Options, StreamOptions
from .partitions import StorePart, packed
from .worker import freeze_imports

RENEWAL_MS: Final = 1000
"""While its reader stays in one data log, a lease is written at most this often."""

Offset = dict[str, Any]
"""By root of each store: data_log, offset, and passed, the data logs between the previous offset and this one."""


class ForebayStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one query, in a process of its driver. `read` runs in workers and shares nothing with it."""

    def __init__(
        self,
        directories: tuple[str, ...],
        asked: dict[str, str],
        wanted: ScanOptions,
        reports: bool,
        options: StreamOptions,
    ) -> None:
        self._directories = directories
        self._asked = asked
        self._wanted = wanted
        self._reports = reports
        self._options = options
        self._target: Offset | None = None
        # By root, the place of the lease and when it was written.
        self._leased: dict[str, tuple[Place, int]] = {}

    # ------------------------------------------------------------------ offsets

    def initialOffset(self) -> Offset:
        offset: Offset = {}
        for store in self._stores():
            place = self._first(OsDisk(store.root))
            self._lease(store.root, place)
            offset[store.root] = _said(place, [])
        return offset

    def _stores(self) -> list[Store]:
        return find_stores(self._directories)

    def _first(self, disk: Disk) -> Place:
        ids = sorted(filter(None, map(data_log_id, disk.list(JOURNAL))))
        first = Place(ids[0] if ids else 1, DATA_LOG_HEADER_BYTES)
        return ahead(disk, first, None)[0] if self._options.is_latest else first

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return how far one may read now. A store that appeared after the stream began is read from its beginning."""
        left = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        offset: Offset = {}
        for root in sorted({*start, *(store.root for store in self._stores())}):
            begin = _place(start[root]) if root in start else self._first(OsDisk(root))
            if self._target is not None and root not in self._target:
                continue
            place, passed, size = begin, list[int](), 0
            if left is None or left > 0:
                place, passed, size = ahead(OsDisk(root), begin, left)
            if self._target is not None and place > _place(self._target[root]):
                place = max(_place(self._target[root]), begin)
                passed = [data_log for data_log in passed if data_log < place.data_log]
            left = None if left is None else max(left - size, 0)
            self._lease(root, begin)
            offset[root] = _said(place, passed) if place != begin else start.get(root, _said(begin, []))
        return start if all(_place(offset[root]) == _place(start.get(root)) for root in offset) else offset

    def reportLatestOffset(self) -> Offset:
        """Return the ends of the journals. The distance from the end of a batch to them is the stream's lag."""
        return {
            store.root: _said(ahead(OsDisk(store.root), self._first(OsDisk(store.root)), None)[0], [])
            for store in self._stores()
        }

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self._options.max_bytes) if self._options.max_bytes is not None else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self.reportLatestOffset()

    # ------------------------------------------------------------------ reading

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the same partitions for the same offsets, whatever was written or deleted meanwhile."""
        found = []
        for root, said in end.items():
            begin = _place(start[root]) if root in start else None
            last = _place(said)
            if begin is None:
                begin = self._first(OsDisk(root))
            self._lease(root, begin, is_first=True)
            store = Store(root.rpartition("/")[2], root)
            found += [(store, part) for part in _parts(begin, last, said["passed"])]
        return packed(found, Options(self._directories))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from ..kernels.batches import Request, batches

        if not isinstance(partition, StorePart):
            return
        freeze_imports()
        for store, parts in partition.stores:
            request = Request(store.broker, self._asked, self._wanted, self._reports)
            for part in parts:
                yield from batches(OsDisk(store.root), request, part)

    # ------------------------------------------------------------------ the lease

    def commit(self, end: Offset) -> None:
        """Let the store delete all data logs before the offset."""
        for root, said in end.items():
            self._lease(root, _place(said), is_commit=True)

    def _lease(self, root: str, place: Place, *, is_first: bool = False, is_commit: bool = False) -> None:
        """Keep everything from the place on. is_first: only if there is no lease yet."""
        if self._options.lease is None:
            return
        now_ms = SystemClock().time_ms()
        known = self._leased.get(root)
        if known is not None:
            leased, since_ms = known
            if is_first:
                place = leased
            place = max(place, leased) if is_commit else place
            if place.data_log == leased.data_log and 0 <= now_ms - since_ms < RENEWAL_MS:
                return
        lease = Lease(self._options.lease, place.data_log, place.offset, now_ms + self._options.lease_ms)
        try:
            write_lease(OsDisk(root), lease)
        except OSError as error:
            raise NotRead(
                root.rpartition("/")[2], place.data_log, place.offset, f"its lease cannot be written ({error.strerror})"
            ) from error
        self._leased[root] = place, now_ms

    def stop(self) -> None:
        """Do nothing: the lease lasts until it expires, because the query may be started again."""


def _place(said: Mapping[str, Any] | None) -> Place:
    return Place(said["data_log"], said["offset"]) if said is not None else Place(0, 0)


def _said(place: Place, passed: list[int]) -> dict[str, Any]:
    return {"data_log": place.data_log, "offset": place.offset, "passed": passed}


def _parts(begin: Place, end: Place, passed: Sequence[int]) -> Iterator[Part]:
    """Yield the parts between two places."""
    if begin == end:
        return
    data_logs = sorted({begin.data_log, *passed, end.data_log})
    for data_log in data_logs:
        first = begin.offset if data_log == begin.data_log else DATA_LOG_HEADER_BYTES
        last = end.offset if data_log == end.data_log else None
        if last is None or first < last:
            yield Part(data_log, is_newest=data_log == end.data_log, begin=first, end=last)
