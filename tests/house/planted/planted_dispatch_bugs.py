"""Bugs of the floors above the store: see planted_bug.py."""

from __future__ import annotations

from planted_bug import in_file

CRASHES = "tests/crash/test_crash.py"

DISPATCH_BUGS = (
    *in_file(
        "dispatch/topics/unmatched.py",
        (
            "what makes no sense is acknowledged for a selector",
            "if judge.verdict(run.area, message) is False]",
            "if not judge.verdict(run.area, message)]",
            "tests/store/recovery/test_quarantine.py",
        ),
    ),
    *in_file(
        "dispatch/core/queue_area.py",
        (
            "what makes no sense is kept from a selector when it is moved",
            "        except RecordDamaged:\n            return None",
            "        except RecordDamaged:\n            return False",
            "tests/store/recovery/test_quarantine.py",
        ),
    ),
    *in_file(
        "cache/budget.py",
        (
            "a reservation passes the limit",
            "        elif held_bytes > budget.ceiling_bytes:\n"
            "            return False\n"
            "        budget.held_bytes = held_bytes\n",
            "        budget.held_bytes = held_bytes\n",
            "tests/cache/test_budget.py",
        ),
        (
            "the guarantee of one holder is given to others",
            "        self.ceiling_bytes -= guaranteed_bytes\n",
            "",
            "tests/cache/test_budget.py",
        ),
    ),
    *in_file(
        "cache/message_cache.py",
        (
            "a message that leaves a cache is released twice",
            "        if message is not None:\n            self.holder.release(charge_bytes(message))\n",
            "        if message is not None:\n"
            "            self.holder.release(charge_bytes(message))\n"
            "            self.holder.release(min(charge_bytes(message), self.holder.held_bytes))\n",
            "tests/cache/test_message_caches.py",
        ),
        (
            "whoever needs memory is thrown out while the first head is read",
            "and self._lanes:  # what is on its way here is charged already\n",
            "and self.holder.held_bytes:\n",
            "tests/cache/test_head_queue_cache.py::"
            "test_who_needs_memory_while_its_first_messages_are_read_is_told_that_it_has_none",
        ),
    ),
    *in_file(
        "dispatch/core/target_list.py",
        (
            "an evicted message keeps its charge",
            "        self.direct_bytes -= charge_bytes(message)\n        self.references",
            "        self.references",
            "tests/dispatch/core/test_target_list.py",
        ),
        (
            "an evicted message is forgotten",
            "        self.references.add(message[0], message[0])\n",
            "",
            "tests/dispatch/core/test_target_list.py",
        ),
    ),
    *in_file(
        "dispatch/core/reclaim.py",
        (
            "small messages are written to tmp-storage two by two",
            "            missing_bytes = max(missing_bytes, WORTH_BYTES)\n",
            "            pass\n",
            "tests/cache/test_linked_caches.py::"
            "test_small_messages_that_leave_ram_one_by_one_take_little_memory_for_their_places",
        ),
        (
            "eviction gives nothing back",
            "            targets.targets.release(charge)\n",
            "",
            "tests/dispatch/core/test_target_list.py",
        ),
    ),
    *in_file(
        "dispatch/core/lists.py",
        (
            "a message that was returned is lost",
            "                    target.returned.add(sequence, sequence)\n",
            "",
            "tests/dispatch/consumer/test_consumer.py",
        ),
        (
            "lower priorities come first",
            "key=lambda target: (-target.area.lane.priority,",
            "key=lambda target: (target.area.lane.priority,",
            "tests/dispatch/producer/test_queue.py",
        ),
    ),
    *in_file(
        "dispatch/core/redelivery.py",
        (
            "a redelivery does not count as an attempt",
            "            self._count(area, held)\n            rule = ",
            "            rule = ",
            "tests/dispatch/consumer/test_consumer.py",
        ),
        (
            "a hand-out that may end the process is not written",
            "    if counted:\n",
            "    if counted and not counted:\n",
            "tests/store/index/test_attempts.py",
        ),
        (
            "a delay of a returned message is ignored",
            "        if seconds:\n",
            "        if seconds < 0:\n",
            "tests/dispatch/consumer/test_consumer.py",
        ),
        (
            "the last attempt is not the last",
            "        if rule.is_last(delivery.attempts):\n",
            "        if rule.is_last(delivery.attempts - 1):\n",
            "tests/dispatch/redelivery/test_dead_letters.py",
        ),
        (
            "a policy's delay is ignored",
            "max(delay, rule.wait_seconds(delivery.attempts))",
            "delay",
            "tests/dispatch/redelivery/test_back_off.py",
        ),
        (
            "back-off lets the rest of a group pass",
            "            area.queue.dealer.comes_back(delivery, is_delayed=bool(seconds))\n",
            "            pass\n",
            "tests/dispatch/redelivery/test_dead_letter_meetings.py",
        ),
    ),
    *in_file(
        "dispatch/admin/dead_letters.py",
        (
            "a dead letter of a dead-letter queue goes round in circles",
            "                max_attempts = None\n",
            "                pass\n",
            "tests/dispatch/redelivery/test_dead_letters.py",
        ),
        (
            "what was dead when the process ended is delivered once more",
            "                    area.dead.add(counted.first, counted.last)\n",
            "                    pass\n",
            "tests/dispatch/redelivery/test_dead_letters.py",
        ),
        (
            "a group waits for ever for a dead letter",
            "            area.queue.dealer.settled(area, first, last - first + 1)\n",
            "            pass\n",
            "tests/dispatch/redelivery/test_dead_letter_meetings.py",
        ),
        (
            "dead letters are refused like sends",
            "    journal.accepts_dead_letters = True\n",
            "    journal.accepts_dead_letters = False\n",
            "tests/dispatch/redelivery/test_dead_letters.py",
        ),
    ),
    *in_file(
        "cache/spill/shared_buffer.py",
        (
            "what one subscriber takes while it waits to be spilled is gone for the others",
            "            if needed:\n",
            "            if not needed:\n",
            "tests/cache/test_shared_overflow.py",
        ),
    ),
    *in_file(
        "cache/spill/overflow.py",
        (
            "what is spilled for many subscribers is there for one of them",
            "        holders = self.buffer.holders(pool, batch)\n",
            "        holders = self.buffer.holders(pool, batch)[:1]\n",
            "tests/cache/test_shared_overflow.py",
        ),
    ),
    *in_file(
        "dispatch/topics/fan_out.py",
        (
            "a message is spilled before all subscribers have it, and once more for the others",
            "        buffer.arriving = (self.pool, sequence)\n",
            "",
            "tests/cache/test_shared_overflow.py",
        ),
        (
            "some subscribers get what another has no room for",
            "                self._take_back(area, sequence)\n",
            "                pass\n",
            "tests/dispatch/topics/test_fan_out.py",
        ),
        (
            "subscribers number non-persistent messages for themselves",
            "                area.skip_to(sequence)\n",
            "",
            "tests/dispatch/topics/test_fan_out.py",
        ),
        (
            "the files of a subscription that ended stay",
            "            forget_lane(engine, area)\n",
            "",
            "tests/dispatch/topics/test_fan_out.py",
        ),
    ),
    *in_file(
        "dispatch/consumer/consumer.py",
        (
            "a closed consumer keeps its messages",
            "        self._engine.redelivery.take_back(held)\n",
            "",
            "tests/dispatch/consumer/test_consumer.py",
        ),
        (
            "prefetch is ignored",
            "        return min(max_messages, self._prefetch - self.in_flight)\n",
            "        return max_messages\n",
            "tests/dispatch/consumer/test_consumer.py",
        ),
        (
            "a scan for a selector ends before its time is up",
            "            if search.is_scanned and search.is_over:\n",
            "            if search.is_scanned:\n",
            "tests/dispatch/consumer/test_selective_consumer.py",
        ),
    ),
    *in_file(
        "dispatch/loading/eager.py",
        (
            "a load passes over the message behind it",
            "        target.frontier = max(target.frontier, load.last + 1)\n",
            "        target.frontier = max(target.frontier, load.last + 2)\n",
            "tests/dispatch/loading/test_eager_loader.py",
        ),
        (
            "a load reads into memory that nobody reserved",
            "        if not self._reading.reserve(buffer_bytes):\n"
            "            area.targets.release(wanted)\n"
            "            return False\n",
            "        buffer_bytes = 0\n",
            "tests/dispatch/loading/test_eager_loader.py",
        ),
        (
            "a load brings what was purged meanwhile",
            "        return self.purges != self.target.area.purges\n",
            "        return False\n",
            "tests/dispatch/admin/test_purge.py",
        ),
        (
            "a load that is given up keeps its charge",
            "        self._area.targets.release(load.reserved_bytes)\n",
            "",
            "tests/dispatch/loading/test_eager_loader.py",
        ),
    ),
    *in_file(
        "dispatch/core/load_requests.py",
        (
            "a consumer that pauses goes on loading for itself",
            "            if not is_steady or not _may_be_left(target):\n",
            "            if not _may_be_left(target):\n",
            "tests/dispatch/loading/test_standing_back.py",
        ),
        (
            "a list that nobody takes from stays empty",
            "            if trial.seen_bytes == target.taken_bytes or not _may_be_left(target):\n",
            "            if not _may_be_left(target):\n",
            "tests/dispatch/loading/test_standing_back.py",
        ),
        (
            "an event loop loads for itself",
            "        and all(consumer.is_synchronous for consumer in target.consumer_group.consumers)\n",
            "",
            "tests/dispatch/loading/test_standing_back.py",
        ),
    ),
    *in_file(
        "dispatch/engine/engine.py",
        (
            "with always a message is delivered before it is durable",
            "            while self.unpublished and self.unpublished[0][0] <= durable:\n",
            "            while self.unpublished and durable:\n",
            "tests/dispatch/producer/test_publication.py",
        ),
        (
            "a confirmed call is not synced",
            "            self.store.journal.sync(position)\n            if self.unpublished",
            "            if self.unpublished",
            CRASHES,
        ),
        (
            "a forked child goes on writing",
            "        self.is_closed = True\n        self._is_stopping = True\n        self.store.journal.stop()\n",
            "        self._is_stopping = True\n",
            "tests/concurrency/test_threads.py",
        ),
    ),
    *in_file(
        "dispatch/producer/sender.py",
        (
            "with always a single message is delivered before it is durable",
            "                    engine.unpublished.append((engine.store.journal.end, area, (message,)))\n",
            "                    area.arrive(message)\n",
            "tests/dispatch/producer/test_publication.py",
        ),
    ),
    *in_file(
        "dispatch/admin/purge.py",
        (
            "a purge removes what is in flight",
            "        taken = held.next_from(begin)\n",
            "        taken = held.next_from(end)\n",
            "tests/dispatch/admin/test_purge.py",
        ),
    ),
    *in_file(
        "dispatch/admission/limits.py",
        (
            "what was reserved in a limited queue is never free again",
            "        self._reserved_messages -= messages\n        self._reserved_bytes -= size_bytes\n",
            "",
            "tests/dispatch/producer/test_admission.py",
        ),
        (
            "small messages pass a large one that waits",
            "            admitted = 0 if self._waiting else self._reserve(sizes)\n",
            "            admitted = self._reserve(sizes)\n",
            "tests/dispatch/producer/test_admission.py",
        ),
    ),
    *in_file(
        "dispatch/core/queue_area.py",
        (
            "two consumers get one message",
            "        return sequence not in area.in_flight and sequence",
            "        return sequence",
            "tests/dispatch/consumer/test_consumer.py",
        ),
        (
            "the first of equal consumers is called first every time",
            "            self.consumers = self.consumers[1:] + self.consumers[:1]\n",
            "",
            "tests/dispatch/distribution/test_fairness.py",
        ),
        (
            "a list that lags is chased for ever, although there is room for all",
            "is_near=sole.has_room_for_all",
            "is_near=False",
            "tests/cache/test_pending_cache.py",
        ),
    ),
    *in_file(
        "dispatch/distribution/grouped.py",
        (
            "what comes back goes to the hand of an owner who has not come to it",
            "        if self.groups.is_ahead(area, first, group):\n",
            "        if True:\n",
            "tests/dispatch/distribution/test_groups.py",
        ),
        (
            "a group goes to another while its owner holds a message of it",
            "        idle = [bucket for bucket in owned if bucket not in in_use][:most]\n",
            "        idle = list(owned)[:most]\n",
            "tests/dispatch/distribution/test_groups.py",
        ),
        (
            "a group goes on while a transaction holds a message of its closed owner",
            "                    self.groups.halt(delivery._area, delivery.sequence, group)\n",
            "                    pass\n",
            "tests/dispatch/distribution/test_groups.py",
        ),
        (
            "what was dealt to a closed consumer is lost",
            "            hand.stock.offer(own.area, dealt)\n",
            "",
            "tests/dispatch/distribution/test_groups.py",
        ),
        (
            "what another consumer_group's owner kept is not offered when it closes",
            "        self._offer_withheld(consumer)\n        del self.hands[consumer]\n",
            "        del self.hands[consumer]\n",
            "tests/dispatch/distribution/test_groups.py",
        ),
        (
            "a delayed message holds back nobody",
            "        if is_delayed:\n",
            "        if is_delayed and not group:\n",
            "tests/dispatch/distribution/test_groups.py",
        ),
    ),
    *in_file(
        "dispatch/distribution/ranks.py",
        (
            "a slow consumer keeps its precedence",
            " and not other.is_slow",
            "",
            "tests/dispatch/distribution/test_consumer_priority.py",
        ),
    ),
    *in_file(
        "dispatch/distribution/exclusive.py",
        (
            "nobody takes over from an exclusive consumer",
            "    if queue.exclusive is consumer:\n        _choose(queue)\n",
            "",
            "tests/dispatch/distribution/test_exclusive.py",
        ),
    ),
    *in_file(
        "dispatch/topics/state.py",
        (
            "equal selectors of a topic are evaluated again and again",
            "        if found is None:\n            if self._values is None:\n",
            "        if True:\n            if self._values is None:\n",
            "tests/dispatch/distribution/test_fairness.py",
        ),
    ),
)
