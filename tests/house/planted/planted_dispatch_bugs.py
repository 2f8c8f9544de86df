"""Bugs of the floors above the store, in order, charge and what is confirmed: see planting.py."""

from __future__ import annotations

from planting import Bug

CRASHES = "tests/crash/test_crash.py::test_power_cut_at_any_call_loses_nothing_confirmed"
TRANSACTIONS = "tests/crash/test_transaction_crash.py::test_crash_at_any_call_leaves_all_of_a_transaction_or_nothing"
MACHINE = "tests/model/test_state_machine.py"

DISPATCH_BUGS = (
    Bug(
        "a reservation passes the limit",
        "Holder.reserve",
        "if held_bytes > budget.ceiling_bytes: ...",
        "pass",
        "tests/cache/test_budget.py::test_a_charge_that_reaches_the_limit_is_admitted_and_one_above_is_refused_and_charges_nothing",
    ),
    Bug(
        "the guarantee of one holder is given to others",
        "Budget.holder",
        "self.ceiling_bytes -= guaranteed_bytes",
        "pass",
        "tests/cache/test_budget.py::test_a_guarantee_is_kept_from_the_others_and_always_there_for_its_holder",
    ),
    Bug(
        "an evicted message keeps its charge",
        "TargetList.evict_last",
        "self.direct_bytes -= charge_bytes(message)",
        "pass",
        "tests/dispatch/core/test_target_list.py::test_the_last_direct_message_becomes_the_first_reference",
    ),
    Bug(
        "eviction gives nothing back",
        "TargetArea._shorten_lists",
        "self.targets.release(charge)",
        "pass",
        "tests/dispatch/core/test_target_list.py::test_memory_is_given_back_by_head_queue_cache_then_pending_cache_then_the_fullest_list",
    ),
    Bug(
        "a message that was returned is lost",
        "TargetArea.offer_again",
        "target.returned.add(sequence, sequence)",
        "pass",
        "tests/dispatch/consumer/test_consumer.py::test_a_closed_consumers_messages_go_back_to_their_places",
    ),
    Bug(
        "what was released keeps the attempt that its hand-out wrote",
        "Redelivery._return_untried",
        "self._uncount(area, deliveries)",
        "pass",
        "tests/dispatch/redelivery/test_release.py::test_what_came_back_before_keeps_its_count_when_it_is_released",
    ),
    Bug(
        "a rejected message stays in its consumer's hands",
        "DeadLetterMover._reject",
        "self._targets.settle(delivery)",
        "pass",
        "tests/dispatch/redelivery/test_reject.py::test_a_rejected_message_frees_its_consumer_and_its_group",
    ),
    Bug(
        "lower priorities come first",
        "TargetArea.add_lane",
        "(-target.area.lane.priority, not target.area.is_persistent)",
        "(target.area.lane.priority, not target.area.is_persistent)",
        "tests/dispatch/producer/test_queue.py::test_a_higher_priority_that_comes_later_is_delivered_first",
    ),
    Bug(
        "a load that is given up keeps its charge",
        "EagerLoader._abandon",
        "self._area.targets.release(load.reserved_bytes)",
        "pass",
        "tests/dispatch/loading/test_eager_loader.py::test_what_a_load_took_from_a_cache_goes_back_when_memory_does_not_suffice_for_the_rest",
    ),
    Bug(
        "with always a message is delivered before it is durable",
        "Publisher._publish",
        "self.unpublished and self.unpublished[0][0] <= durable",
        "self.unpublished and durable",
        "tests/dispatch/producer/test_publication.py::test_what_is_written_during_a_sync_waits_for_the_next",
    ),
    Bug("a confirmed call is not synced", "Publisher.confirm", "self._journal.sync(position)", "pass", CRASHES),
    Bug(
        "with always a single message is delivered before it is durable",
        "Sender.send",
        "producers.publisher.unpublished.append((producers.journal.end, area, (message,)))",
        "area.arrive(message)",
        "tests/dispatch/producer/test_publication.py::test_message_is_delivered_once_its_sync_has_returned_and_not_before",
    ),
    Bug(
        "small messages pass a large one that waits",
        "DestinationLimits._reserve_in_line",
        "0 if self._waiting else self._reserve(sizes, reservation)",
        "self._reserve(sizes, reservation)",
        "tests/dispatch/producer/test_admission.py::test_who_waits_longest_is_served_first_and_a_small_message_passes_no_large_one",
    ),
    Bug(
        "two consumers get one message",
        "ConsumerGroup.is_free",
        "is_held = sequence in area.in_flight or sequence in area.parked",
        "is_held = sequence in area.parked",
        "tests/dispatch/consumer/test_consumer.py::test_a_slow_consumer_holds_what_it_was_handed_and_stops_nobody",
    ),
    Bug(
        "what was dealt to a closed consumer is lost",
        "GroupAssigner._empty",
        "hand.stock.offer(own.area, dealt)",
        "pass",
        "tests/dispatch/distribution/test_groups.py::test_messages_of_a_closed_owner_go_to_the_next_in_order",
    ),
    Bug("a commit is not synced", "Transaction.commit", "self._publisher.confirm(position)", "pass", TRANSACTIONS),
    Bug(
        "a non-persistent message that RAM lets go of is lost",
        "SpillingLane.spill",
        "self.overflow.keep(self.store_lane, messages)",
        "pass",
        "tests/cache/test_shared_overflow.py::test_any_traffic_gives_each_of_many_subscribers_what_it_should_have",
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
    Bug(
        "a moved message leaves its queue with a record of its own",
        "Mover.commit",
        "branch.acknowledge(area.lane.number, first, last)",
        "area.store.remove(area.lane, first, last)",
        "tests/crash/test_storm.py::test_depth_is_what_is_browsed_and_delivered_after_a_storm_of_crashes[interval]",
    ),
    Bug(
        "a moved message is counted in the queue that it has left",
        "Lane._remove_in",
        "self.pending_messages -= removed",
        "pass",
        "tests/crash/test_storm.py::test_depth_is_what_is_browsed_and_delivered_after_a_storm_of_crashes[interval]",
    ),
    Bug(
        "a status names consumers of crowds, and asks each of them about all",
        "StatusReporter._consumers",
        "len(consumers) <= CROWD",
        "True",
        "tests/dispatch/engine/test_status.py::test_status_names_no_consumer_of_a_crowd",
    ),
    Bug(
        "a second close takes the socket of the next owner away",
        "AdminSocket.stop",
        "self._is_mine = False",
        "pass",
        "tests/dispatch/remote/test_admin_socket.py::test_second_close_and_a_forked_child_leave_the_socket_of_the_next_owner",
    ),
    Bug(
        "a mistaken name makes a queue through the admin socket",
        "_queue",
        "name not in store.destinations()",
        "False",
        "tests/dispatch/remote/test_admin_socket.py::test_what_the_store_refuses_ends_with_its_words_and_changes_nothing",
    ),
    Bug(
        "a text of a forged status steers the terminal",
        "_text",
        "printable(found)",
        "found",
        "tests/dispatch/screen/test_screen.py::test_hostile_status_fits_and_never_raises",
    ),
)
