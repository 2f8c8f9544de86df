"""Writers of the records that are no messages. Each writes a record to the journal first, and then changes RAM.

There is a module for each kind of change: destinations, subscriptions, transactions, returned messages, host
properties, and sequences that no subscription receives. A crash leaves the record, which recovery repeats in RAM.
Two change RAM first: ReturnWriter, because its record may be left out, and a transaction that is prepared.
"""
