"""Dispatch: decides which consumer gets which message, and has the library's public objects.

`forebay.py`, `queue.py` and `topic.py` are the entry points for threads, `aio` those for event loops;
`engine/engine.py` makes all parts. Read a send in `producer/sender.py`, what it changes in
`core/lanes/persistent_lane_state.py` (`arrive`), how a list is filled in `loading/eager_loader.py`, and how a message
is taken and settled in `consumer/consumer.py`. `distribution` has the rules that decide who gets what.
docs/internals/overview.md follows a message through them, and docs/internals/first-change.md says where a change goes.
"""
