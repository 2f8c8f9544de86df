"""Bugs of topics, transactions, relocation, full disks, resize and explanations: see planted_bug.py."""

from __future__ import annotations

from planted_bug import in_file

FEATURE_BUGS = (
    *in_file(
        "store/format/branch.py",
        (
            "a commit record does not say what it acknowledges",
            '            _runs(branch.runs()),\n            _NUMBER.pack(time_ms) if branch.timed else b"",\n',
            '            _runs(()),\n            _NUMBER.pack(time_ms) if branch.timed else b"",\n',
            "tests/crash/test_transaction_crash.py",
        ),
        (
            "a prepared branch does not say what it acknowledges",
            "in branch.identities),\n            _runs(branch.runs()),\n",
            "in branch.identities),\n            _runs(()),\n",
            "tests/crash/test_transaction_crash.py",
        ),
        (
            "bytes behind a commit are overlooked",
            '    if (len(data) - at) % _IDENTITY.size:\n        raise RecordDamaged("bytes follow a commit")\n',
            "    data = data[: len(data) - (len(data) - at) % _IDENTITY.size]\n",
            "tests/store/transactions/test_transaction_store.py::test_any_cut_of_a_transaction_s_bytes_is_damage",
        ),
    ),
    *in_file(
        "store/transactions.py",
        (
            "data logs of an open transaction are deleted",
            "        return self._open_slices.keys() | self._prepared_bytes.keys()\n",
            "        return ()\n",
            "tests/store/transactions/test_transaction_store.py",
        ),
        (
            "a state record does not tell where a prepared branch was moved to",
            "            self.adopt(branch)  # it may lie elsewhere by now\n",
            "            if branch.number not in self._branches:\n                self.adopt(branch)\n",
            "tests/store/maintenance/test_relocation_prepared.py",
        ),
        (
            "a moved branch is not written down",
            "            self._branches.count(branch)\n"
            "            self._journal.append(PREPARE, 0, 0, encode_branch(branch))\n",
            "            self._branches.count(branch)\n",
            "tests/store/maintenance/test_relocation_prepared.py",
        ),
        (
            "what was open at a crash is still open",
            "        for branch in self.open:\n            self.forget(branch.number)\n",
            "",
            "tests/store/transactions/test_transaction_store.py",
        ),
        (
            "a commit record may go before its messages",
            "            index.use(data_log).committed_data_logs.add(home)\n",
            "            index.use(data_log)\n",
            "tests/store/transactions/test_transaction_store.py",
        ),
        (
            "a commit believes the slice of another transaction",
            "    if not header.is_transactional or part.first_sequence != number:\n",
            "    if not header.is_transactional:\n",
            "tests/store/transactions/test_transaction_store.py::test_the_slice_of_another_transaction_is_not_taken_for_one_of_a_commit",
        ),
        (
            "a rollback of a prepared branch is not written",
            "            self._journal.append(ROLLBACK, 0, 0, encode_rollback(branch.number))\n",
            "",
            "tests/crash/test_transaction_crash.py",
        ),
        (
            "a branch that no state record names waits for ever",
            "        for number in set(self._branches) - stated - set(state.open_transactions):\n",
            "        for number in ():\n",
            "tests/store/transactions/test_transaction_store.py",
        ),
    ),
    *in_file(
        "store/maintenance/prepared.py",
        (
            "a branch that has its outcome is moved",
            "        return self._branches.find(branch.number) is branch\n",
            "        return True\n",
            "tests/store/maintenance/test_relocation_prepared.py",
        ),
    ),
    *in_file(
        "store/recovery/replay.py",
        (
            "a copy of a prepared branch's slice counts beside its original",
            "            if not record.flags & RELOCATED:  # a copy counts once a prepare record names it\n",
            "            if True:\n",
            "tests/store/maintenance/test_relocation_prepared.py",
        ),
        (
            "survivors are not replayed",
            "        if header is not None and self._index.use(data_log).pending_messages > live:\n",
            "        if header is None and self._index.use(data_log).pending_messages > live:\n",
            "tests/store/maintenance/test_relocation.py",
        ),
        (
            "the end of a subscription is not replayed",
            "                self._subscriptions.unsubscribe(payload.number)\n",
            "                pass\n",
            "tests/crash/test_topic_crash.py",
        ),
        (
            "a copy is replayed as if it were new",
            "        elif record.flags & RELOCATED:\n",
            "        elif record.flags & RELOCATED and part.first_sequence >= lane.next_sequence:\n",
            "tests/store/maintenance/test_relocation.py",
        ),
    ),
    *in_file(
        "store/message_store.py",
        (
            "a prepared branch is not restated",
            "sorted(data_logs), self.branches.prepared)\n",
            "sorted(data_logs))\n",
            "tests/store/transactions/test_transaction_store.py",
        ),
        (
            "an open transaction is not restated",
            "        state.open_transactions = [branch.number for branch in self.branches.open]\n",
            "",
            "tests/crash/test_transaction_crash.py",
        ),
        (
            "a checkpoint forgets transactions",
            "        branches = [*self.branches.prepared, *self.branches.open]\n",
            "        branches: list[Branch] = []\n",
            "tests/store/transactions/test_transaction_store.py",
        ),
    ),
    *in_file(
        "dispatch/transactions/transaction.py",
        (
            "a commit is not synced",
            "                position = store.journal.end\n        engine.after_write(position)\n",
            "                position = store.journal.end\n",
            "tests/crash/test_transaction_crash.py",
        ),
        (
            "what a transaction acknowledged is delivered to others",
            "            area.parked.add(sequence)\n            self._held",
            "            self._held",
            "tests/dispatch/transactions/test_transaction.py",
        ),
        (
            "a rollback loses what was acknowledged",
            "        engine.redelivery.take_back(returned, 0.0)\n",
            "",
            "tests/dispatch/transactions/test_transaction.py",
        ),
    ),
    *in_file(
        "store/index/topic_lane.py",
        (
            "a subscription sees what was sent before it",
            "        self.next_sequence = self.first_sequence = topic.next_sequence\n",
            "        self.next_sequence = self.first_sequence = 0\n",
            "tests/dispatch/topics/test_topic.py",
        ),
        (
            "what an ended subscription had pending stays",
            "        for first, last in self.pending.blocks:\n            self.topic.touched.add(first, last)\n",
            "",
            "tests/dispatch/topics/test_topic.py",
        ),
        (
            "an ack of one subscription is one of all",
            "            needed |= subscriber.mask(number)\n",
            "            needed = subscriber.mask(number)\n",
            "tests/dispatch/topics/test_topic.py::test_one_offline_subscription_keeps_ten_thousand_messages",
        ),
        (
            "an ack of a subscription may go before its message",
            "                self.topic.uses[ack_data_log].acked_data_logs.add(data_log)\n",
            "                pass\n",
            "tests/dispatch/topics/test_topic.py::test_an_ack_stays_while_another_subscription_keeps_its_message",
        ),
    ),
    *in_file(
        "store/message_store.py",
        (
            "a subscription is not written",
            "                self.journal.append(SUBSCRIBE, 0, 1, encode_subscription(facts))\n",
            "                encode_subscription(facts)\n",
            "tests/dispatch/topics/test_topic.py::test_an_ack_stays_while_another_subscription_keeps_its_message",
        ),
        (
            "the end of a subscription is not written",
            "                self.journal.append(UNSUBSCRIBE, 0, 1, encode_unsubscribe(number))\n",
            "                encode_unsubscribe(number)\n",
            "tests/crash/test_topic_crash.py",
        ),
        (
            "numbers of messages that nobody wanted are given again",
            "            self.journal.append_ack(lane.priority, lane.destination, first, messages)\n",
            "",
            "tests/dispatch/topics/test_topic.py",
        ),
    ),
    *in_file(
        "store/index/subscriptions.py",
        (
            "subscriptions are not restated",
            "        state.subscriptions = [found.facts for found in self.by_number.values() if found.is_durable]\n",
            "        state.subscriptions = []\n",
            "tests/dispatch/topics/test_topic.py",
        ),
        (
            "the number of an ended subscription is given again",
            "        state.next_number = self.next_number\n",
            "",
            "tests/dispatch/topics/test_topic.py::test_the_number_of_a_subscription_is_never_given_again",
        ),
    ),
    *in_file(
        "store/recovery/recovery.py",
        (
            "what a killed recovery set aside is not made durable by the next",
            "            self._disk.sync_directory(QUARANTINE)\n        self._result.next",
            "            pass\n        self._result.next",
            "tests/store/recovery/test_recovery.py::test_what_a_killed_recovery_set_aside_does_not_come_back_with_a_power_cut",
        ),
    ),
    *in_file(
        "store/maintenance/relocation.py",
        (
            "a message that was acknowledged meanwhile is copied",
            "                if not is_whole and not live.lane.is_pending(message[0]):\n                    continue\n",
            "",
            "tests/store/maintenance/test_relocation.py::test_message_acknowledged_while_it_is_read_stays_gone",
        ),
        (
            "acks go though no survivors record takes their place",
            "            journal.append(SURVIVORS, 0, len(ranges), payload)\n",
            "",
            "tests/store/maintenance/test_relocation.py",
        ),
        (
            "a survivors record names what was acknowledged meanwhile",
            "            ranges = [left for run in ranges for left in self._still_live(run)]\n"
            "        if sum(run.messages for run in ranges) != use.pending_messages:\n"
            "            unfound",
            "            self._look()\n        if not ranges:\n            unfound",
            "tests/store/maintenance/test_relocation.py",
        ),
        (
            "a copy has another timestamp",
            "        first, _, _, timestamp = messages[0]\n",
            "        first, _, _, timestamp = messages[-1]\n",
            "tests/store/maintenance/test_relocation.py",
        ),
        (
            "a copy of a topic's messages does not say who needs them",
            "                self._append_needs(Survivors(lane.number, first, len(messages)), needs)\n",
            "                pass\n",
            "tests/store/maintenance/test_relocation_kinds.py",
        ),
        (
            "who needs a topic's messages is forgotten with the acks that survivors stand for",
            "                self._append_needs(run, found)\n",
            "                pass\n",
            "tests/store/maintenance/test_relocation_kinds.py::test_who_needs_a_topics_messages_outlives_the_acks_that_survivors_stand_for",
        ),
        (
            "what transactions sent is not looked up in the index",
            "                    if not source.has_transactional:\n",
            "                    if True:\n",
            "tests/store/maintenance/test_relocation_kinds.py::test_stuck_messages_of_transactions_free_their_data_logs",
        ),
        (
            "a needs record may lie in the data log before its copy",
            "                journal.keep_together(needs_bytes(len(needs)) + slice_bytes, 2)\n",
            "",
            "tests/store/maintenance/test_relocation_kinds.py::test_needs_record_and_its_copy_lie_in_one_data_log",
        ),
        (
            "a message that is too damaged to be copied is not named",
            "            if unreadable:\n                sequence",
            "            if len(unreadable) > 1:\n                sequence",
            "tests/store/maintenance/test_relocation.py::test_message_that_does_not_verify_stays_where_it_is_and_its_data_log_is_named",
        ),
    ),
    *in_file(
        "store/index/index.py",
        (
            "the acks that a survivors record stands for go on pinning",
            "            use.acked_data_logs.discard(data_log)\n        if",
            "            pass\n        if",
            "tests/store/maintenance/test_relocation.py::test_survivors_record_stands_for_acks_that_are_gone",
        ),
    ),
    *in_file(
        "store/index/lane.py",
        (
            "a copy may go before what it was copied from",
            "            self.cache.widen(block)\n        block.move(",
            "            self.cache.widen(block)\n        use.acked_data_logs.clear()\n        block.move(",
            "tests/store/maintenance/test_relocation.py",
        ),
    ),
    *in_file(
        "store/journal/journal.py",
        (
            "sends use the reserve",
            "self.roll(size, is_adding=is_adding)",
            "self.roll(size, is_adding=False)",
            "tests/crash/test_full_disk.py",
        ),
        (
            "the reserve is used up once for all",
            "self.is_full = self._is_makeshift or not self._fill_reserve()",
            "self.is_full = self._is_makeshift",
            "tests/crash/test_full_disk.py",
        ),
        (
            "acks take the space that is kept for drops",
            "        if self.is_full and kind != DROP:\n",
            "        if self.is_full and kind < 0:\n",
            "tests/crash/test_full_disk.py",
        ),
        (
            "the store grows beyond its limit",
            "            limit = min(limit, self.store_limit_bytes - sum(self.sizes.values()))\n",
            "            limit = min(limit, self.store_limit_bytes)\n",
            "tests/crash/test_full_disk.py::test_send_above_the_limit_is_refused_at_once_and_acks_go_on",
        ),
    ),
    *in_file(
        "store/journal/reserve.py",
        (
            "a checkpoint on a full disk gets nothing of the reserve",
            "        if _INDEX_PART not in self._held:\n",
            "        if _INDEX_PART in self._held:\n",
            "tests/crash/test_full_disk.py",
        ),
        (
            "a closed store leaves its reserve behind",
            "        self._wanted.clear()\n        self.clear()\n",
            "        self._wanted.clear()\n",
            "tests/crash/test_full_disk.py",
        ),
    ),
    *in_file(
        "dispatch/core/non_persistent.py",
        (
            "a non-persistent message that RAM lets go of is lost",
            "        self.overflow.keep(self.store_lane, messages)\n        self.overflow.write(self.store_lane)\n",
            "        self.overflow.write(self.store_lane)\n",
            "tests/dispatch/topics/test_volatile.py",
        ),
        (
            "a non-persistent message that was refused still counts",
            "            lane.retract()\n",
            "",
            "tests/dispatch/topics/test_volatile.py",
        ),
        (
            "messages of both kinds are delivered one kind after the other",
            "            lane.take_turn(persistent.published)\n",
            "            pass\n",
            "tests/dispatch/topics/test_volatile.py",
        ),
    ),
    *in_file(
        "cache/budget.py",
        (
            "a limit that falls is already what it should become",
            "            self.limit_bytes = max(target_bytes, min(self.limit_bytes, owed_bytes + SPARE_BYTES))\n",
            "            self.limit_bytes = target_bytes\n",
            "tests/dispatch/engine/test_falling_limit.py",
        ),
        (
            "while the limit falls a guarantee is not there",
            "            if covered < charge_bytes and held_bytes > budget.ceiling_bytes + covered:\n",
            "            if held_bytes > budget.ceiling_bytes + covered:\n",
            "tests/dispatch/engine/test_falling_limit.py",
        ),
        (
            "the last bytes below a limit that falls are for nobody",
            "        if budget.owed_bytes + charge_bytes > budget.limit_bytes:\n            return False\n",
            "        if charge_bytes:\n            return False\n",
            "tests/dispatch/engine/test_resize.py::test_while_it_is_awaited_nobody_is_without_a_delivery_and_nothing_else_is_charged",
        ),
    ),
    *in_file(
        "dispatch/engine/resizing.py",
        (
            "the index loses its guarantee before all of it fits",
            "                    if engine.store.index.resize(shares.index_cache_bytes):\n",
            "                    if engine.store.index.resize(shares.index_cache_bytes) or True:\n",
            "tests/dispatch/engine/test_resize.py::test_an_index_that_finds_no_disk_is_awaited_and_acks_go_on",
        ),
        (
            "a limit that falls makes no checkpoint for the index",
            "                engine.store.checkpoint()\n",
            "                pass\n",
            "tests/dispatch/engine/test_resize.py::test_dirty_blocks_are_written_and_leave",
        ),
        (
            "messages above the new limit are still taken",
            "            engine.limit_messages(settings)\n",
            "",
            "tests/dispatch/engine/test_resize.py",
        ),
    ),
    *in_file(
        "cache/spill/overflow.py",
        (
            "a non-persistent message that comes back finds no room while the limit falls",
            "                kept = buffer.put(number, message, is_moved=True)\n",
            "                kept = buffer.put(number, message)\n",
            "tests/dispatch/engine/test_resize.py",
        ),
    ),
    *in_file(
        "dispatch/explain/queues.py",
        (
            "a message that is put off counts as free",
            "        timed = self.delayed.messages + self.due_later.messages + self.expired.messages\n",
            "        timed = self.due_later.messages + self.expired.messages\n",
            "tests/dispatch/explain/test_explain_dispatch.py",
        ),
        (
            "what has come back is passed over",
            "            is_next = is_next and not (target.returned and target.returned.first < direct)\n",
            "",
            "tests/dispatch/explain/test_explain_dispatch.py::test_whatever_is_said_the_next_take_agrees",
        ),
        (
            "a selector is said to match what it does not",
            "            if _may_match(consumer, delivery):\n",
            "            if delivery:\n",
            "tests/dispatch/explain/test_explain_dispatch.py",
        ),
    ),
    *in_file(
        "dispatch/admin/expiry.py",
        (
            "what comes due while a load passes it over is lost",
            "                        load.last = behind - 1\n",
            "",
            "tests/dispatch/redelivery/test_delay.py",
        ),
        (
            "what has expired is handed out where it is in RAM",
            "        elif has_times(message[1]):\n",
            "        elif message[1] is None:\n",
            "tests/dispatch/redelivery/test_expiry.py",
        ),
        (
            "what a consumer holds expires in its hands",
            "            for sequence in reader.in_flight:\n                free.remove(sequence, sequence)\n",
            "",
            "tests/dispatch/redelivery/test_expiry.py",
        ),
    ),
    *in_file(
        "store/message_store.py",
        (
            "a checkpoint forgets how late it was",
            "        state.latest_ms = self.index.latest_ms\n",
            "",
            "tests/dispatch/redelivery/test_delay.py",
        ),
    ),
    *in_file(
        "store/maintenance/relocation.py",
        (
            "a copy does not say that its messages have times",
            "            flags |= TIMED\n",
            "            pass\n",
            "tests/dispatch/redelivery/test_expiry.py",
        ),
    ),
)
