"""Bugs that only some order of threads shows: see planted_bug.py."""

from __future__ import annotations

from planted_bug import in_file

AT_LOCKS = "tests/concurrency/test_interleavings.py::test_whoever_goes_on_at_locks_waits_and_calls_of_the_disk"
BETWEEN_LINES = "tests/concurrency/test_interleavings.py::test_whoever_goes_on_between_two_lines_of_the_library"

INTERLEAVING_BUGS = (
    *in_file(
        "dispatch/engine/engine.py",
        (
            "what became durable is dispatched without the lock",
            "        with self.lock:\n            durable = self.store.journal.durable",
            "        if self.lock:\n            durable = self.store.journal.durable",
            BETWEEN_LINES,
        ),
        (
            "two first sends to a lane make two lists of it",
            "            return queue.areas[priority] or self._add_lane(queue, priority)\n",
            "            return self._add_lane(queue, priority)\n",
            BETWEEN_LINES,
        ),
    ),
    *in_file(
        "dispatch/consumer/consumer.py",
        (
            "who waits for credit is not told that it came",
            "        self._credited.notify_all()\n        if self._is_armed:",
            "        if self._is_armed:",
            AT_LOCKS,
        ),
        (
            "what comes back is put in its place without the lock",
            "        with engine.lock:\n            self._check_held(batch)\n            engine.redelivery",
            "        if engine.lock:\n            self._check_held(batch)\n            engine.redelivery",
            BETWEEN_LINES,
        ),
        (
            "a take checks its consumer under the lock and takes without it",
            "            most = self._credit(max_messages)\n"
            "            deliveries = self._collect(self, most, max_bytes) if most > 0 else []\n"
            "        if not deliveries:",
            "            most = self._credit(max_messages)\n"
            "        deliveries = self._collect(self, most, max_bytes) if most > 0 else []\n"
            "        if not deliveries:",
            BETWEEN_LINES,
        ),
        (
            "who waits is not told that its consumer is closed",
            "        self._credited.notify_all()\n        consumer_group.arrived.notify_all()\n",
            "",
            AT_LOCKS,
        ),
    ),
    *in_file(
        "dispatch/core/queue_area.py",
        (
            "who waits for a load is not told that it ended",
            "        self.wake(ready)\n\n    def in_turn",
            "        pass\n\n    def in_turn",
            AT_LOCKS,
        ),
    ),
    *in_file(
        "dispatch/loading/eager.py",
        (
            "a load is put into its list without the lock",
            "            raise\n        with self._area.lock:\n            self.install(load)",
            "            raise\n        self.install(load)",
            BETWEEN_LINES,
        ),
    ),
    *in_file(
        "dispatch/engine/resizing.py",
        (
            "a resize takes two locks in the other order",
            "        with engine.store.checkpoint_lock:\n            with engine.lock:\n",
            "        with engine.lock:\n            with engine.store.checkpoint_lock:\n",
            AT_LOCKS,
        ),
    ),
    *in_file(
        "store/message_store.py",
        (
            "a checkpoint claims what was appended while it was written",
            "(position, self.journal.epoch, root, puts, deletes))",
            "(self.journal.end, self.journal.epoch, root, puts, deletes))",
            AT_LOCKS,
        ),
    ),
)
