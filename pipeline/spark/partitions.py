"""Packs parts of stores into the partitions that Spark's tasks read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql.datasource import InputPartition

from ..kernels.fleet import Part, Store
from .options import Options

PARTITION_BYTES_MIN: Final = 64 << 20
"""No partition is made smaller than this to keep more cores busy."""


class StorePart(InputPartition):
    """The work of one task: parts of stores, or whole stores, whose lists of parts are empty."""

    def __init__(self, stores: list[tuple[Store, list[Part]]]) -> None:
        super().__init__(None)
        self.stores = stores


def packed(found: Sequence[tuple[Store, Part]], options: Options) -> list[InputPartition]:
    """Pack parts into partitions of about the same size, at most about partition_bytes, in order.

    If there are more bins than concurrent tasks, they are a multiple of them: otherwise the last ones would leave cores
    idle.
    """
    total = sum(part.size_bytes for _, part in found)
    bins, at_once = -(-total // options.partition_bytes), options.parallelism
    if bins > at_once:
        bins = -(-bins // at_once) * at_once
    else:
        bins = max(bins, min(at_once, -(-total // PARTITION_BYTES_MIN)), 1)
    filled = [0] * bins
    chosen: list[list[tuple[Store, Part]]] = [[] for _ in range(bins)]
    for one in sorted(found, key=lambda item: -item[1].size_bytes):
        least = filled.index(min(filled))
        filled[least] += one[1].size_bytes
        chosen[least].append(one)
    partitions: list[InputPartition] = []
    for members in chosen:
        stores: dict[Store, list[Part]] = {}
        for store, part in sorted(members, key=lambda item: (item[0], item[1].data_log)):
            stores.setdefault(store, []).append(part)
        if stores:
            partitions.append(StorePart(list(stores.items())))
    return partitions
