"""Bugs of the store floor: see planted_bug.py."""

from __future__ import annotations

from planted_bug import in_file

CRASHES = "tests/crash/test_crash.py"

STORE_BUGS = (
    *in_file(
        "store/format/record.py",
        (
            "a sequence or a lane that cannot be is believed",
            "    if lane & 15 >= PRIORITIES or lane >> 4 >= NUMBERS or first + messages > SEQUENCES:\n",
            "    if lane < 0:\n",
            "tests/store/recovery/test_forged.py",
        ),
        (
            "a priority that cannot be is believed",
            "    if flags & 15 >= PRIORITIES:\n",
            "    if flags < 0:\n",
            "tests/store/format/test_record.py",
        ),
    ),
    *in_file(
        "store/format/state.py",
        (
            "a name may hold control characters",
            "        if not name or not name.isprintable():\n",
            "        if not name:\n",
            "tests/store/format/test_state.py",
        ),
    ),
    *in_file(
        "store/disk/disk.py",
        (
            "a sync of a directory does nothing",
            "        os.fsync(descriptor)\n    finally:",
            "        os.fstat(descriptor)\n    finally:",
            "tests/store/disk/test_disk.py",
        ),
    ),
    *in_file(
        "store/disk/os_file.py",
        (
            "a sync leaves the bytes in the system's cache",
            "        _flush(self._descriptor)\n",
            "        os.fstat(self._descriptor)\n",
            "tests/store/disk/test_disk.py",
        ),
        (
            "a short write is taken for whole",
            "_write(self._descriptor, data, length) != length:",
            "_write(self._descriptor, data, length) < 0:",
            "tests/store/disk/test_disk.py",
        ),
        (
            "a seek leaves the window where it was",
            "        self._window_end = -1  # it may lie elsewhere\n",
            "",
            "tests/store/disk/test_write_window.py",
        ),
        (
            "a write behind the window goes where the descriptor stands",
            "            if self._written_to != self._position:\n",
            "            if False:\n",
            "tests/store/disk/test_write_window.py",
        ),
        (
            "a window is opened whatever the file system is",
            "self._mappable = length if keeps_space else 0",
            "self._mappable = length",
            "tests/store/disk/test_write_window.py",
        ),
        (
            "a short read is taken for the end",
            "            if not more:\n                break\n            data += more\n",
            "            break\n",
            "tests/store/disk/test_disk.py",
        ),
    ),
    *in_file(
        "store/disk/layout.py",
        (
            "a second process opens the same directory",
            "            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
            "            os.fstat(self._descriptor)\n",
            "tests/store/disk/test_files.py",
        ),
        (
            "a second handle of one process opens the same directory",
            "        if _held.setdefault(directory, self) is not self:\n",
            "        if _held.setdefault(directory, self) is None:\n",
            "tests/store/disk/test_files.py",
        ),
    ),
    *in_file(
        "store/journal/journal.py",
        (
            "the newest data log is not synced",
            "                newest.sync()\n",
            "",
            CRASHES,
        ),
        (
            "a sealed data log is not synced",
            "                for file in sealed:\n                    file.sync()\n",
            "",
            CRASHES,
        ),
        (
            "the directory is not synced after a data log was created",
            "        self._unsynced_names += 1\n",
            "",
            CRASHES,
        ),
        (
            "the directory is not synced after data logs were unlinked",
            "                self._disk.remove(data_log_name(data_log))\n        self._disk.sync_directory(JOURNAL)\n",
            "                self._disk.remove(data_log_name(data_log))\n",
            "tests/store/journal/test_journal.py",
        ),
        (
            "what is appended during a sync counts as durable",
            "self.durable = max(self.durable, end)",
            "self.durable = max(self.durable, self.end)",
            "tests/store/journal/test_journal.py",
        ),
        (
            "who waits for another one's sync is let go before it has ended",
            "        with self.sync_lock:\n            if position is not None",
            "        if self.sync_lock.locked():\n"
            "            return\n"
            "        with self.sync_lock:\n"
            "            if position is not None",
            "tests/store/journal/test_journal.py",
        ),
        (
            "a failed sync is tried again",
            '                    raise self.fail(f"a journal sync failed',
            "                    newest.sync()\n"
            "                if newest is None:\n"
            '                    raise self.fail(f"a journal sync failed',
            "tests/store/journal/test_journal.py",
        ),
        (
            "after a failed write the store goes on",
            '        raise self.fail(f"a journal write failed ({error.strerror})") from error',
            '        raise StoreFailed(f"a journal write failed ({error.strerror})") from error',
            "tests/store/journal/test_journal.py",
        ),
        (
            "the epoch stays after a write that found no space",
            "            self.epoch += 1\n",
            "",
            "tests/store/journal/test_journal.py",
        ),
        (
            "a record says that all before it is durable",
            "        head = self._salt, self._word, self.epoch, self.durable\n",
            "        head = self._salt, self._word, self.epoch, self.end\n",
            "tests/crash/test_crash.py::test_power_cut_without_syncs_leaves_what_some_moment_left",
        ),
        (
            "an ack names one message less than it settles",
            "self.durable, priority, destination, first, count)\n        try:",
            "self.durable, priority, destination, first, max(count - 1, 1))\n        try:",
            CRASHES,
        ),
        (
            "the directory of a sealed data log leaves out a record",
            "directory_payload(self._offsets, old_end)",
            "directory_payload(self._offsets[1:], old_end)",
            "tests/store/recovery/test_verify.py",
        ),
        (
            "a call that was interrupted leaves journal and index apart",
            '        self.fail("a call was interrupted while it wrote")\n',
            "        self.syncs += 0\n",
            "tests/crash/test_interruption.py",
        ),
    ),
    *in_file(
        "store/message_store.py",
        (
            "senders never wait for a checkpoint that is behind",
            "        return self.adds >= self.checkpoint_adds + self._max_checkpoint_adds or self.index.is_crowded\n",
            "        return self.index.is_crowded\n",
            "tests/store/recovery/test_replay_bound.py",
        ),
        (
            "the state record forgets how often messages came back",
            "        return self._described(state)\n",
            "        self._described(state).attempts = {}\n        return state\n",
            "tests/store/index/test_attempts.py",
        ),
        (
            "a checkpoint forgets how often messages came back",
            "        return self._described(State([], {}, data_logs, branches, next_log_sequence=next_sequence))\n",
            "        state = self._described(State([], {}, data_logs, branches, next_log_sequence=next_sequence))\n"
            "        state.attempts = {}\n        return state\n",
            "tests/store/index/test_attempts.py",
        ),
    ),
    *in_file(
        "store/index/delivery_counts.py",
        (
            "counts of acknowledged messages stay",
            "            self._firsts[at] = pending[0]\n            return True\n",
            "            return True\n",
            "tests/store/index/test_attempts.py::test_map_empties_with_the_last_ack_in_whatever_order",
        ),
        (
            "the highest counts are forgotten first",
            "ranked[len(ranked) - int(KEPT_SHARE * len(ranked)) :]",
            "ranked[: int(KEPT_SHARE * len(ranked))]",
            "tests/store/index/test_attempts.py",
        ),
    ),
    *in_file(
        "store/journal/reserve.py",
        (
            "dead letters use up what acks need on a full disk",
            "    if makeshift_bytes is not None and kind in LESSER_KINDS and",
            "    if makeshift_bytes is not None and offset < 0 and",
            "tests/dispatch/redelivery/test_dead_letters.py",
        ),
    ),
    *in_file(
        "store/journal/marker.py",
        (
            "the mark is not synced before its rename",
            "        file.sync()\n",
            "",
            "tests/store/journal/test_mark.py",
        ),
        (
            "the directory is not synced after the mark's rename",
            "    disk.sync_directory(STATE_DIRECTORY)\n",
            "",
            "tests/store/journal/test_mark.py",
        ),
    ),
    *in_file(
        "store/format/record.py",
        (
            "the checksum of a record's head is not verified",
            "    if crc32(head[4 : header.head_bytes], salt) != header.crc:\n",
            "    if len(head) < header.head_bytes:\n",
            "tests/store/journal/test_data_log.py",
        ),
    ),
    *in_file(
        "store/journal/data_log.py",
        (
            "the checksum of a body in the tail is not verified",
            "            if found != crc:\n",
            "            if found < 0:\n",
            CRASHES,
        ),
        (
            "the checksum of a single message's body in the tail is not verified",
            "                if at >= verify_at and crc32(chunk[content:end]) != crc:\n                    break\n",
            "",
            CRASHES,
        ),
        (
            "the checksum of a single message's head is not verified",
            "                if crc32(chunk[at + 4 : content], salt) != head_crc:\n                    break\n",
            "",
            "tests/store/journal/test_data_log.py",
        ),
        (
            "the log sequence is not looked at",
            "        if self.next_sequence is not None and header.sequence != self.next_sequence:\n",
            "        if self.next_sequence is not None and header.sequence < 0:\n",
            "tests/store/journal/test_data_log.py",
        ),
        (
            "a record of an older epoch is accepted",
            "        if header.epoch < self.epoch:\n",
            "        if header.epoch < 0:\n",
            "tests/store/journal/test_data_log.py",
        ),
        (
            "the search behind damage finds nothing",
            "        if record is not None:\n            yield place, record\n",
            "        if record is not None and not record.kind:\n            yield place, record\n",
            "tests/store/journal/test_data_log.py",
        ),
    ),
    *in_file(
        "store/journal/reading.py",
        (
            "a body of another place is delivered",
            "                (found != sequence and not data",
            "                (found < 0 and not data",
            "tests/store/journal/test_reading.py",
        ),
        (
            "a body of another place in a slice is delivered",
            "    if part.first_sequence + extent.skip != extent.first_sequence and not",
            "    if part.first_sequence > extent.first_sequence and not",
            "tests/store/journal/test_reading.py",
        ),
        (
            "a damaged body is delivered",
            "            elif crc32(content) != crc:\n",
            "            elif len(content) != length:\n",
            "tests/store/journal/test_reading.py",
        ),
    ),
    *in_file(
        "store/recovery/recovery.py",
        (
            "recovery serves what is not synced",
            "                file.sync()\n                size = file.size()\n",
            "                size = file.size()\n",
            CRASHES,
        ),
        (
            "recovery does not sync the names it found",
            "        self._disk.sync_directory(JOURNAL)\n        start =",
            "        start =",
            "tests/store/recovery/test_recovery.py",
        ),
        (
            "a torn tail is not cut",
            "                file.truncate(cut_bytes or torn_bytes)\n",
            "",
            CRASHES,
        ),
        (
            "a cut is not synced",
            "                file.truncate(cut_bytes or torn_bytes)\n                file.sync()\n",
            "                file.truncate(cut_bytes or torn_bytes)\n",
            CRASHES,
        ),
        (
            "corruption is taken for a torn tail",
            "        return self.durable > end.position\n",
            "        return False\n",
            "tests/store/recovery/test_recovery.py",
        ),
        (
            "a missing data log is not missed",
            "        missing = sorted(self.replay.expected - set(result.sizes))\n",
            "        missing: list[int] = []\n",
            "tests/store/recovery/test_recovery.py",
        ),
        (
            "a damaged data log is deleted instead of set aside",
            '            self._disk.rename(data_log_name(data_log), f"{QUARANTINE}/data-{data_log}.log")\n',
            "            self._disk.remove(data_log_name(data_log))\n",
            "tests/store/recovery/test_recovery.py",
        ),
        (
            "the id of a data log in quarantine is given again",
            "        self._result.next_data_log = max((*ids, *aside), default=0) + 1\n",
            "        self._result.next_data_log = max(ids, default=0) + 1\n",
            "tests/store/recovery/test_recovery.py",
        ),
        (
            "an index from before a cleanup is believed",
            "        return None if self._needs_dropped() else end\n",
            "        return end\n",
            "tests/store/recovery/test_recovery.py",
        ),
        (
            "a rebuilt index has messages of data logs that were dropped",
            "        if self._needs_dropped():\n            self._left_out",
            "        if False:\n            self._left_out",
            "tests/crash/test_crash.py::test_power_cut_while_data_logs_are_deleted_brings_back_nothing_acknowledged",
        ),
    ),
    *in_file(
        "store/recovery/replay.py",
        (
            "drop records are not replayed",
            "                self.expected.difference_update(payload.data_logs)\n",
            "                pass\n",
            CRASHES,
        ),
    ),
    *in_file(
        "store/message_store.py",
        (
            "the epoch is not raised by an open",
            "        epoch = found.epoch + 1\n",
            "        epoch = found.epoch\n",
            "tests/store/recovery/test_recovery.py",
        ),
        (
            "no mark is written at open",
            "        write_marker(self._disk, Marker(self._store_id, epoch, found.end, False))\n",
            "",
            "tests/store/recovery/test_recovery.py",
        ),
        (
            "each data log has the same salt",
            '        return int.from_bytes(self._clock.random_bytes(4), "little")\n',
            "        return 1\n",
            "tests/store/recovery/test_recovery.py",
        ),
        (
            "next sequences are not restated",
            "        sequences = {number: lane.next_sequence for number, lane in self.index.lanes.items()}\n",
            "        sequences: dict[int, int] = {}\n",
            "tests/store/index/test_message_store.py",
        ),
        (
            "destinations are not restated",
            "        state.destinations = list(self.destinations.values())\n",
            "",
            CRASHES,
        ),
        (
            "an ack of a run leaves its last message out",
            "            journal.append_ack(lane.priority, lane.destination, first, last - first + 1)\n",
            "            journal.append_ack(lane.priority, lane.destination, first, last - first or 1)\n",
            CRASHES,
        ),
        (
            "the index is stored before the journal is synced",
            "                self.journal.sync(position)\n                puts = ",
            "                puts = ",
            CRASHES,
        ),
        (
            "a closed store is not marked as closed",
            "self._checkpoint_end, True))",
            "self._checkpoint_end, False))",
            "tests/store/index/test_message_store.py",
        ),
    ),
    *in_file(
        "store/maintenance/cleaner.py",
        (
            "a data log is unlinked before its drop record is synced",
            "                self._journal.sync()\n                is_done = self.discard(doomed)\n",
            "                is_done = self.discard(doomed)\n",
            CRASHES,
        ),
        (
            "a data log is unlinked before there is a drop record",
            "                if doomed:\n                    self._journal.append(DROP",
            "                if doomed:\n"
            "                    self.discard(doomed)\n"
            "                    self._journal.append(DROP",
            CRASHES,
        ),
        (
            "a data log from which the next open replays is deleted",
            "        return min(self._journal.data_log, self._replay_position() >> OFFSET_BITS)\n",
            "        return self._journal.data_log\n",
            "tests/store/index/test_message_store.py",
        ),
    ),
    *in_file(
        "store/maintenance/removable.py",
        (
            "the acks of a data log that stays may go",
            "            if not remaining.isdisjoint(uses[data_log].acked_data_logs)\n",
            "            if not remaining.isdisjoint(())\n",
            "tests/crash/test_crash.py::test_power_cut_while_data_logs_are_deleted_brings_back_nothing_acknowledged",
        ),
        (
            "acks pin over one link of the chain only",
            "        remaining |= needed\n",
            "",
            "tests/store/maintenance/test_cleanup.py",
        ),
    ),
    *in_file(
        "store/index/lane.py",
        (
            "an ack does not note which data log held its message",
            "        if data_log != ack_data_log:\n"
            "            uses[ack_data_log].acked_data_logs.add(data_log)\n"
            "        self.pending",
            "        self.pending",
            "tests/store/index/test_index.py",
        ),
    ),
    *in_file(
        "store/index/block_cache.py",
        (
            "what a checkpoint could not store is forgotten",
            "        else:\n            self.touch(holder, block)\n",
            "",
            "tests/store/index/test_index.py",
        ),
    ),
    *in_file(
        "store/metadata/sqlite.py",
        (
            "the checksum of the index's root is not verified",
            "        if _root_crc(head, root) != crc:\n",
            "        if _root_crc(head, root) < 0:\n",
            "tests/store/metadata/test_metadata_damage.py",
        ),
        (
            "count and checksum of the index's blocks are not verified",
            "        if checksum != BlockChecksum(*expected):\n",
            "        if checksum.blocks < 0:\n",
            "tests/store/metadata/test_metadata_damage.py",
        ),
        (
            "the checksum of a block is not verified",
            "        if not isinstance(packed, bytes) or zlib.crc32(packed) != crc:\n",
            "        if not isinstance(packed, bytes):\n",
            "tests/store/metadata/test_metadata_damage.py",
        ),
    ),
    *in_file(
        "store/maintenance/archive.py",
        (
            "the archive deletes instead of moving",
            "                self._disk.rename(data_log_name(data_log), self._kept_name(data_log))\n",
            "                self._disk.remove(data_log_name(data_log))\n",
            "tests/store/maintenance/test_archive.py",
        ),
        (
            "a copy in the archive is not synced",
            "                target.sync()\n",
            "",
            "tests/store/maintenance/test_archive.py",
        ),
        (
            "the archive is not synced before the journal loses the name",
            "        self._place.sync_directory(self._directory)\n",
            "",
            "tests/store/maintenance/test_archive.py",
        ),
    ),
    *in_file(
        "store/tmp/file.py",
        (
            "the checksum of a spilled message is not verified",
            "                and crc32(view[at + _CRC_BYTES : end], salt) == crc  #",
            "                and salt >= 0  #",
            "tests/store/tmp/test_tmp_storage_failures.py",
        ),
    ),
)
