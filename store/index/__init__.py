"""The index says which messages of each lane are pending, and where each one lies in the journal.

Read `block.py` first: a block has the places of 512 messages. Then read `destination_lane.py`, where a lane is a row of
blocks, and `index.py`, which has all lanes. `block_cache.py` decides which blocks are in RAM. `data_log_use.py` counts
why each data log is needed. `idle_lanes.py` keeps the next sequence of empty lanes.

Topics use `topic_lane.py` and `subscriptions.py`, with `sequence_bitmap.py` for acks out of order and
`subscription_table.py` for durable subscriptions that are not in use. Other parts stand beside the lanes:
`due_times.py` and `put_off_lane.py` (when messages are due), `delivery_counts.py` (how often they were delivered),
`deduplication.py` (which ids were stored), `fingerprint.py` (which headers occur). docs/internals/store-index.md gives
the reasons.
"""
