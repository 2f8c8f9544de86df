"""Bugs of the floors above the store, in order, charge and what is confirmed: see planting.py."""

from __future__ import annotations

from planting import Bug

CRASHES = "tests/crash/test_crash.py"
TRANSACTIONS = "tests/crash/test_transaction_crash.py"
MACHINE = "tests/model/test_state_machine.py"

DISPATCH_BUGS = (
    Bug(
        "a reservation passes the limit",
        "Holder.reserve",
        "if held_bytes > budget.ceiling_bytes: ...",
        "pass",
        "tests/cache/test_budget.py",
    ),
    Bug(
        "the guarantee of one holder is given to others",
        "Budget.holder",
        "self.ceiling_bytes -= guaranteed_bytes",
        "pass",
        "tests/cache/test_budget.py",
    ),
    Bug(
        "an evicted message keeps its charge",
        "TargetList.evict_last",
        "self.direct_bytes -= charge_bytes(message)",
        "pass",
        "tests/dispatch/core/test_target_list.py",
    ),
    Bug(
        "eviction gives nothing back",
        "TargetArea.make_room",
        "self.targets.release(charge)",
        "pass",
        "tests/dispatch/core/test_target_list.py",
    ),
    Bug(
        "a message that was returned is lost",
        "TargetArea.offer_again",
        "target.returned.add(sequence, sequence)",
        "pass",
        "tests/dispatch/consumer/test_consumer.py",
    ),
    Bug(
        "lower priorities come first",
        "TargetArea.add_lane",
        "(-target.area.lane.priority, not target.area.is_persistent)",
        "(target.area.lane.priority, not target.area.is_persistent)",
        "tests/dispatch/producer/test_queue.py",
    ),
    Bug(
        "a load that is given up keeps its charge",
        "EagerLoader._abandon",
        "self._area.targets.release(load.reserved_bytes)",
        "pass",
        "tests/dispatch/loading/test_eager_loader.py",
    ),
    Bug(
        "with always a message is delivered before it is durable",
        "Publisher._publish",
        "self.unpublished and self.unpublished[0][0] <= durable",
        "self.unpublished and durable",
        "tests/dispatch/producer/test_publication.py",
    ),
    Bug("a confirmed call is not synced", "Publisher.confirm", "self._journal.sync(position)", "pass", CRASHES),
    Bug(
        "with always a single message is delivered before it is durable",
        "Sender.send",
        "producers.publisher.unpublished.append((producers.journal.end, area, (message,)))",
        "area.arrive(message)",
        "tests/dispatch/producer/test_publication.py",
    ),
    Bug(
        "small messages pass a large one that waits",
        "DestinationLimits.admit_now",
        "0 if self._waiting else self._reserve(sizes)",
        "self._reserve(sizes)",
        "tests/dispatch/producer/test_admission.py",
    ),
    Bug(
        "two consumers get one message",
        "ConsumerGroup.is_free",
        "sequence not in area.in_flight and sequence not in area.parked and area.lane.is_pending(sequence)",
        "sequence not in area.parked and area.lane.is_pending(sequence)",
        "tests/dispatch/consumer/test_consumer.py",
    ),
    Bug(
        "what was dealt to a closed consumer is lost",
        "GroupAssigner._empty",
        "hand.stock.offer(own.area, dealt)",
        "pass",
        "tests/dispatch/distribution/test_groups.py",
    ),
    Bug("a commit is not synced", "Transaction.commit", "self._publisher.confirm(position)", "pass", TRANSACTIONS),
    Bug(
        "a non-persistent message that RAM lets go of is lost",
        "SpillingLane.spill",
        "self.overflow.keep(self.store_lane, messages)",
        "pass",
        "tests/dispatch/topics/test_volatile.py",
    ),
    Bug(
        "a prepared transaction keeps the credit of its consumers",
        "Transaction.prepare",
        "self._settle_held()",
        "pass",
        MACHINE,
    ),
    Bug(
        "in a batch what needs no sync overtakes what needs one",
        "Sender._send_all",
        "is_persistent and (not message.persistent) and (len(ids) > before)",
        "False",
        MACHINE,
    ),
)
