"""Bugs that only a meeting of several features shows, which the state machine must find: see planted_bug.py."""

from __future__ import annotations

from planted_bug import in_file

MACHINE = "tests/test_state_machine.py"

MACHINE_BUGS = (
    *in_file(
        "dispatch/redelivery.py",
        (
            "a delay of the policy is forgotten where nack has one of its own",
            "max(delay, rule.wait_seconds(delivery.attempts))",
            "delay or rule.wait_seconds(delivery.attempts)",
            MACHINE,
        ),
    ),
    *in_file(
        "dispatch/transaction.py",
        (
            "what a rolled back transaction gives back comes at once, whatever the policy says",
            "engine.redelivery.take_back(returned, 0.0)",
            "engine.redelivery.take_back(returned)",
            MACHINE,
        ),
        (
            "a prepared transaction keeps the credit of its consumers",
            "            self._settle_held()\n            self._held.clear()\n            position",
            "            self._held.clear()\n            position",
            MACHINE,
        ),
    ),
    *in_file(
        "dispatch/exclusive.py",
        (
            "of the exclusive consumers in line the first takes over, whatever its priority",
            "key=lambda consumer: consumer.priority, default=None",
            "key=lambda consumer: 0, default=None",
            MACHINE,
        ),
    ),
    *in_file(
        "dispatch/timing.py",
        (
            "a message is handed out in the millisecond in which it expires",
            "        return 0 < times.expires_at <= now_ms\n",
            "        return 0 < times.expires_at < now_ms\n",
            MACHINE,
        ),
    ),
    *in_file(
        "dispatch/groups.py",
        (
            "what is behind a delayed message of its group overtakes it",
            "_place(area, sequence) > min(halt.places.values())",
            "_place(area, sequence) > max(halt.places.values())",
            MACHINE,
        ),
    ),
    *in_file(
        "dispatch/mover.py",
        (
            "a delay that a transaction began starts anew where its message is moved",
            "        if area.is_timed:\n            free =",
            "        if False:\n            free =",
            MACHINE,
        ),
    ),
    *in_file(
        "dispatch/sender.py",
        (
            "in a batch what needs no sync overtakes what needs one",
            "                if is_persistent and not message.persistent and len(ids) > before:\n",
            "                if False:\n",
            MACHINE,
        ),
    ),
)
