"""Open lanes: those of messages in the journal, and those that spill to tmp-storage.

persistent_lane_state.py has what all lanes in the journal share, queue_lane_state.py how messages arrive at those from
which consumers take (that of a topic is in dispatch/topics/topic_state.py), and non_persistent_lane_state.py the lanes
that spill.
"""
