"""Changes that are no messages: each is a record in the journal first, and then a change in RAM.

There is a module for each kind: destinations, subscriptions, returned messages, host properties, and sequences that no
subscription receives. A crash leaves the record, which recovery repeats in RAM.
"""
