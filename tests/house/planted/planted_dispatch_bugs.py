"""Bugs of the layers above the store, in order, charge and what is confirmed: see planting.py."""

from __future__ import annotations

from planting import Bug

CRASHES = "tests/crash/test_crash.py::test_power_cut_at_any_call_loses_nothing_confirmed"
TRANSACTIONS = "tests/crash/test_transaction_crash.py::test_crash_at_any_call_leaves_all_of_a_transaction_or_nothing"
BRANCHES = (
    "tests/crash/test_branch_crash.py::test_crash_at_any_call_leaves_all_that_records_say_of_a_transaction_or_nothing"
)
EVERYTHING = "tests/dispatch/transactions/test_transaction_everything.py"
MACHINE = "tests/model/test_state_machine.py"

DISPATCH_BUGS = (
    Bug(
        "a reservation passes the limit",
        "Holder.reserve",
        "if held_bytes > budget.ceiling_bytes: ...",
        "pass",
        "tests/cache/accounting/test_budget.py::test_a_charge_that_reaches_the_limit_is_admitted_and_one_above_is_refused_and_charges_nothing",
    ),
    Bug(
        "the guarantee of one holder is given to others",
        "Budget.holder",
        "self.ceiling_bytes -= guaranteed_bytes",
        "pass",
        "tests/cache/accounting/test_budget.py::test_a_guarantee_is_kept_from_the_others_and_always_there_for_its_holder",
    ),
    Bug(
        "progress is charged above the limit",
        "Holder.reserve_for_progress",
        "if budget.committed_bytes + charge_bytes > budget.limit_bytes: ...",
        "pass",
        "tests/model/test_memory_walk.py::test_held_bytes_stay_below_the_limit_whatever_takes_memory",
    ),
    Bug(
        "an evicted message keeps its charge",
        "ListContents.evict_last",
        "self.direct_bytes -= charge_of(message)",
        "pass",
        "tests/dispatch/core/lists/test_target_list.py::test_the_last_direct_message_becomes_the_first_reference",
    ),
    Bug(
        "eviction gives nothing back",
        "Reclaim._shorten",
        "memory.lists_holder.release(charge)",
        "pass",
        "tests/dispatch/core/lists/test_target_list.py::test_memory_is_given_back_by_head_queue_cache_then_pending_cache_then_the_fullest_list",
    ),
    Bug(
        "a message that was returned is lost",
        "OrdinaryDistribution.reoffer_returned",
        "target.note_returned(sequence)",
        "pass",
        "tests/dispatch/consumer/test_consumer.py::test_a_closed_consumers_messages_go_back_to_their_places",
    ),
    Bug(
        "what was released keeps the attempt that its hand-out wrote",
        "Redelivery._return_untried",
        "self._uncount(lane, deliveries)",
        "pass",
        "tests/dispatch/consumer/test_release.py::test_what_came_back_before_keeps_its_count_when_it_is_released",
    ),
    Bug(
        "a rejected message stays in its consumer's hands",
        "Rejections._reject",
        "self._dispatch_area.settle(delivery)",
        "pass",
        "tests/dispatch/consumer/test_reject.py::test_a_rejected_message_frees_its_consumer_and_its_group",
    ),
    Bug(
        "lower priorities come first",
        "arrange",
        "(-target.lane.priority, target.lane.destination.number, not target.lane.is_persistent)",
        "(target.lane.priority, target.lane.destination.number, not target.lane.is_persistent)",
        "tests/dispatch/producer/test_queue.py::test_a_higher_priority_that_comes_later_is_delivered_first",
    ),
    Bug(
        "a load that is given up keeps its charge",
        "EagerLoader.abandon",
        "load.target.release(load.reserved_bytes)",
        "pass",
        "tests/dispatch/loading/test_eager_loader.py::test_what_a_load_took_from_a_cache_goes_back_when_memory_does_not_suffice_for_the_rest",
    ),
    Bug(
        "with always a message is delivered before it is durable",
        "Publisher.publish_synced",
        "unpublished and unpublished[0][0] <= durable_end",
        "unpublished and durable_end",
        "tests/dispatch/core/test_publication.py::test_what_is_written_during_a_sync_waits_for_the_next",
    ),
    Bug(
        "a confirmed call is not synced",
        "ThreadConfirmer.confirm",
        "self._syncer.sync(journal_end)",
        "True",
        CRASHES,
    ),
    Bug(
        "with always a single message is delivered before it is durable",
        "Sender._store_persistent",
        "journal_end = parts.publisher.hold_until_durable(lane, (message,), charge)",
        "lane.arrive(message)",
        "tests/dispatch/core/test_publication.py::test_message_is_delivered_once_its_sync_has_returned_and_not_before",
    ),
    Bug(
        "small messages pass a large one that waits",
        "DestinationLimits._reserve_in_line",
        "0 if self._waiting else self._reserve(sizes, reservation)",
        "self._reserve(sizes, reservation)",
        "tests/dispatch/admission/test_admission.py::test_who_waits_longest_is_served_first_and_a_small_message_passes_no_large_one",
    ),
    Bug(
        "two consumers get one message",
        "DeliveryLane.is_free",
        "sequence in self.deliveries or (parked.count and sequence in parked) "
        "or (dead_letters.count and sequence in dead_letters)",
        "(parked.count and sequence in parked) or (dead_letters.count and sequence in dead_letters)",
        "tests/dispatch/consumer/test_consumer.py::test_a_slow_consumer_holds_what_it_was_handed_and_stops_nobody",
    ),
    Bug(
        "what was assigned to a closed consumer is lost",
        "Assignments.empty",
        "assigned.common_selector_group.reoffer(own.lane, returned)",
        "pass",
        "tests/dispatch/distribution/test_groups.py::test_messages_of_a_closed_owner_go_to_the_next_in_order",
    ),
    Bug(
        "a delivery is late from the first note on that is older than it",
        "AckDeadlines._collect_lane",
        "delivery.number > limit",
        "False",
        "tests/dispatch/core/redelivery/test_ack_deadline.py::test_each_delivery_is_late_between_its_deadline_and_an_eighth_more",
    ),
    Bug(
        "what was given back for its deadline is acknowledged all the same",
        "AckDeadlines._give_back",
        "mark_late(delivery)",
        "pass",
        "tests/dispatch/core/redelivery/test_ack_deadline.py::test_what_settles_it_too_late_raises_with_numbers_and_changes_nothing",
    ),
    Bug(
        "an extended delivery is late as any other",
        "AckDeadlines._is_extended",
        "return extension is not None and extension[0] == delivery.number",
        "return False",
        "tests/dispatch/core/redelivery/test_ack_deadline.py::test_extend_gives_so_many_seconds_from_now_on_again_and_again",
    ),
    Bug(
        "extended deliveries that are settled stay in the table",
        "AckDeadlines.extend",
        "self._prune(consumer, watched)",
        "pass",
        "tests/dispatch/core/redelivery/test_ack_deadline.py::test_extended_deliveries_that_are_settled_take_no_memory_for_long",
    ),
    Bug(
        "a closed consumer is still watched for its deadline",
        "ConsumerRegistry.leave",
        "self._deadlines.unwatch(consumer)",
        "pass",
        "tests/dispatch/core/redelivery/test_ack_deadline.py::test_a_close_ends_it_and_a_kill_brings_it_back_as_ever",
    ),
    Bug(
        "handlers have messages of one group at a time",
        "MessageGroupTurns.begin",
        "waiting.append(delivery)",
        "return True",
        "tests/dispatch/consumer/test_process.py::"
        "test_another_thread_has_the_next_message_of_another_group_while_one_of_a_group_is_handled",
    ),
    Bug(
        "a handler that is cancelled keeps its delivery",
        "AsyncConsumer._process",
        "give_back(following)",
        "pass",
        "tests/dispatch/aio/test_aio_process.py::"
        "test_one_that_is_cancelled_gives_back_uncounted_and_the_consumer_goes_on",
    ),
    Bug(
        "a draining consumer keeps its groups",
        "Assignments.gets_no_more",
        "return consumer.stage.is_draining or self.queue.exclusive not in (None, consumer)",
        "return self.queue.exclusive not in (None, consumer)",
        "tests/dispatch/consumer/test_drain.py::"
        "test_groups_go_to_others_each_as_soon_as_the_draining_consumer_holds_none_of_it",
    ),
    Bug(
        "a consumer that drains leaves its waiting takes waiting",
        "ConsumerEnding._stop_taking",
        "consumer.waits.wake_takes(consumer.selector_group)\nconsumer.wake_outside()",
        "pass",
        "tests/dispatch/consumer/test_drain.py::test_in_a_loop_it_ends_the_takes_that_wait_and_other_consumers_go_on",
    ),
    Bug(
        "a commit is not synced",
        "Transaction.commit",
        "self.parts.confirmer.confirm(journal_end)",
        "pass",
        TRANSACTIONS,
    ),
    Bug(
        "a non-persistent message that RAM lets go of is lost",
        "TmpPager.spill",
        "self._overflow.keep(self._pending_lane, messages)",
        "pass",
        "tests/dispatch/topics/test_overflow.py::test_any_traffic_gives_each_of_many_subscribers_what_it_should_have",
    ),
    Bug(
        "a non-persistent message of a transaction is sent at once",
        "Transaction.add_non_persistent",
        "self._non_persistent.add(target, timestamp, properties, body, sent)",
        "target.add(timestamp, properties, body)",
        f"{EVERYTHING}::test_each_subscription_gets_what_a_transaction_sent_to_its_topic_with_the_commit",
    ),
    Bug(
        "a non-persistent message of a commit is seen before the commit is durable",
        "Publisher.add_when_durable",
        "if not self.syncs_always: ...",
        "self._publish_non_persistent(journal_end)",
        f"{EVERYTHING}::test_no_consumer_has_a_non_persistent_message_of_a_commit_that_a_power_cut_could_take_back",
    ),
    Bug(
        "a commit record tells what a subscription without a name acknowledged",
        "SubscriptionLaneState.is_recorded",
        "return self.subscription.is_durable",
        "return True",
        BRANCHES,
    ),
    Bug(
        "a durable subscription that a prepared transaction knows is ended",
        "SubscriptionAdmin._idle",
        "if self._transactions.use_destinations((found.number,)): ...",
        "pass",
        f"{EVERYTHING}::test_a_topic_or_subscription_that_a_transaction_knows_is_neither_deleted_nor_ended",
    ),
    Bug(
        "a prepared transaction keeps the credit of its consumers",
        "StagedAcks.prepare",
        "self._settle()",
        "pass",
        MACHINE,
    ),
    Bug(
        "in a batch what needs no sync overtakes what needs one",
        "Sender.send_many_steps",
        "was_persistent and (not batch.persistent) and (len(ids) > before)",
        "False",
        MACHINE,
    ),
    Bug(
        "a moved message leaves its queue with a record of its own",
        "LaneTransfer.commit",
        "branch.acknowledge(lane.pending_lane.number, first, last)",
        "lane.backing_store.acknowledge(lane.pending_lane, first, last)",
        "tests/crash/test_storm.py::test_depth_is_what_is_browsed_and_delivered_after_a_storm_of_crashes[interval]",
    ),
    Bug(
        "a moved message is counted in the queue that it has left",
        "DestinationLane._remove_in",
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
