"""Bugs that only a meeting of several features shows, which the state machine must find: see planted_bug.py."""

from __future__ import annotations

from planted_bug import in_file

MACHINE = "tests/model/test_state_machine.py"

MACHINE_BUGS = (
    *in_file(
        "dispatch/core/redelivery.py",
        (
            "a delay of the policy is forgotten where nack has one of its own",
            "max(delay, rule.wait_seconds(delivery.attempts))",
            "delay or rule.wait_seconds(delivery.attempts)",
            "tests/dispatch/redelivery/test_back_off.py::test_longer_of_the_two_delays_counts",
        ),
    ),
    *in_file(
        "dispatch/transactions/transaction.py",
        (
            "what a rolled back transaction gives back comes at once, whatever the policy says",
            "engine.redelivery.take_back(returned, 0.0)",
            "engine.redelivery.take_back(returned)",
            "tests/dispatch/redelivery/test_back_off.py::test_rollback_backs_off_and_a_closed_consumer_does_not",
        ),
        (
            "a prepared transaction keeps the credit of its consumers",
            "            self._settle_held()\n            self._held.clear()\n            position",
            "            self._held.clear()\n            position",
            MACHINE,
        ),
    ),
    *in_file(
        "dispatch/producer/sender.py",
        (
            "in a batch what needs no sync overtakes what needs one",
            "                if is_persistent and not message.persistent and len(ids) > before:\n",
            "                if False:\n",
            MACHINE,
        ),
    ),
)
