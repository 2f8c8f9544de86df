"""Bugs that the state machine over the whole interface must find: one, or a few, of each of its later verbs."""

from __future__ import annotations

from planting import Bug

MACHINE = "tests/model/test_state_machine.py"

MACHINE_BUGS = (
    Bug(
        "a cursor finds nothing but what its own subscription has pending",
        "SubscriptionLane.seek",
        "subscriber.is_durable or not self.is_durable",
        "subscriber is self",
        MACHINE,
    ),
    Bug(
        "a topic lets go of one message that is young enough",
        "Trimmer._trim_before",
        "min(end, behind) - 1",
        "min(end, behind)",
        MACHINE,
    ),
    Bug(
        "a topic retains one message less than has room",
        "Trimmer._trim_bytes",
        "for at, length in enumerate(lane.lengths(*run), run[0]):\n"
        "    if excess <= 0 or (at >= end and at > first):\n"
        "        break\n"
        "    last = at\n"
        "    excess -= length",
        "for at, length in enumerate(lane.lengths(*run), run[0]):\n"
        "    last = at\n"
        "    if excess <= 0 or (at >= end and at > first):\n"
        "        break\n"
        "    excess -= length",
        MACHINE,
    ),
    Bug(
        "a new subscription is given no retained message",
        "TopicConsumerFactory.subscribe",
        "self._retained_messages.give(((topic, subscription),)) if is_new else None",
        "None",
        MACHINE,
    ),
    Bug(
        "a message without a body leaves the retained one",
        "Transaction.retain",
        "encode_retained(message) if message.body else None",
        "encode_retained(message)",
        MACHINE,
    ),
    Bug(
        "a deleted property is there again",
        "PropertyTable._replace",
        "self._values.pop(name, None) if value is None else self._values.get(name)",
        "self._values.get(name)",
        MACHINE,
    ),
    Bug(
        "a handler that raises costs no attempt",
        "Processing._give_up",
        "delivery.nack()",
        "delivery.release()",
        MACHINE,
    ),
    Bug(
        "a late ack says nothing of the deadline",
        "AckDeadlines._give_back",
        "mark_late(delivery)",
        "pass",
        MACHINE,
    ),
    Bug(
        "what comes back late costs no attempt",
        "AckDeadlines._give_back",
        "self._redelivery.return_failed(late, 0.0)",
        "self._redelivery.return_untried(late)",
        MACHINE,
    ),
    Bug(
        "an extended deadline passes as if it were not",
        "AckDeadlines._is_extended",
        "return extension is not None and extension[0] == delivery.number",
        "return False",
        MACHINE,
    ),
    Bug(
        "a peek shows the second one",
        "Queue.peek",
        "next(messages, None)",
        "(next(messages, None), next(messages, None))[1]",
        MACHINE,
    ),
    Bug(
        "a pattern has no topic that is made later",
        "TopicRegistry.create",
        "[] if is_temporary else self._patterns.matching(name)",
        "[]",
        MACHINE,
    ),
    Bug(
        "a message that was got comes again",
        "Queue.get",
        "consumer.ack(deliveries)",
        "pass",
        MACHINE,
    ),
    Bug(
        "a join ends with messages left",
        "Queue.join",
        "not self.for_report.depth",
        "True",
        MACHINE,
    ),
    Bug(
        "an unused destination never goes",
        "InactiveDestinations._due",
        "now - seen.since >= destination.inactive_seconds",
        "False",
        f"{MACHINE}::test_a_destination_that_nobody_uses_goes_and_comes_again_for_who_sends",
    ),
    Bug(
        "a drain ends while something is in flight",
        "ConsumerEnding.is_drained",
        "not consumer.in_flight",
        "True",
        MACHINE,
    ),
)
