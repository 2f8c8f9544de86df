"""Bugs that only some order of threads shows: see planting.py."""

from __future__ import annotations

from planting import Bug

AT_LOCKS = "tests/concurrency/test_interleavings.py::test_whoever_goes_on_at_locks_waits_and_calls_of_the_disk"
BETWEEN_LINES = "tests/concurrency/test_interleavings.py::test_whoever_goes_on_between_two_lines_of_the_library"

INTERLEAVING_BUGS = (
    Bug(
        "what became durable is dispatched without the lock",
        "Publisher.publish_left",
        "with self._monitor.lock: ...",
        "if self._monitor.lock: ...",
        BETWEEN_LINES,
    ),
    Bug(
        "who waits for credit is not told that it came",
        "ConsumerWaits.end_credit_wait",
        "self._credited.notify_all()",
        "pass",
        "tests/concurrency/test_threads.py::test_a_take_that_waits_for_credit_is_woken_when_it_comes",
    ),
    Bug(
        "what comes back is put in its place without the lock",
        "Settlements.nack",
        "with self._monitor.lock, self._monitor.all_or_broken: ...",
        "with self._monitor.all_or_broken: ...",
        BETWEEN_LINES,
    ),
    Bug(
        "a take checks its consumer under the lock and takes without it",
        "Consumer.take",
        "with monitor.bare_lock:\n"
        "    try:\n"
        "        if monitor.lock.failure is not None:\n"
        "            raise monitor.lock.failure.again()\n"
        "        monitor.entries += 1\n"
        "        if (\n"
        "            max_messages == 1 and (self.in_flight < self.prefetch_limit or not self.prefetch_limit)\n"
        "        ) or self.prefetch_limit - self.in_flight == 1:\n"
        "            one = self.dispatcher.dispatch_one(self)\n"
        "            if one is not None:\n"
        "                return [one]\n"
        "        if self.stage.is_over:\n"
        "            raise self.stage.refusal()\n"
        "        most = self.allowance(max_messages)\n"
        "        deliveries = self.dispatcher.dispatch(self, most, max_bytes) if most > 0 else []\n"
        "    except BaseException as error:\n"
        "        monitor.lock.break_by(error)\n"
        "        raise",
        "with monitor.bare_lock:\n"
        "    if self.stage.is_over:\n"
        "        raise self.stage.refusal()\n"
        "    most = self.allowance(max_messages)\n"
        "deliveries = self.dispatcher.dispatch(self, most, max_bytes) if most > 0 else []",
        BETWEEN_LINES,
    ),
    Bug(
        "who waits is not told that its consumer is closed",
        "ConsumerEnding._close",
        "consumer.waits.wake_takes(selector_group)",
        "pass",
        "tests/concurrency/test_threads.py::test_closing_wakes_all_who_wait",
    ),
    Bug(
        "a load is put into its list without the lock",
        "EagerLoader.finish",
        "with self._monitor.lock, self._monitor.all_or_broken:\n    self.install(load)",
        "self.install(load)",
        BETWEEN_LINES,
    ),
    Bug(
        "a resize takes two locks in the other order",
        "Checkpointer.between_checkpoints",
        "with self._checkpoint_lock: ...",
        "with self._state_lock:\n"
        "    self._checkpoint_lock.acquire()\n"
        "try: ...\n"
        "finally: self._checkpoint_lock.release()",
        AT_LOCKS,
    ),
    Bug(
        "a checkpoint claims what was appended while it was written",
        "Checkpointer._store",
        "(root.position, self._journal.epoch, encoded, changes.puts, changes.deletes, changes.fingerprints)",
        "(self._journal.end, self._journal.epoch, encoded, changes.puts, changes.deletes, changes.fingerprints)",
        AT_LOCKS,
    ),
)
