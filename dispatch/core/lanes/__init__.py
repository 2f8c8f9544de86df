"""Open lanes: those of messages in the journal, and those that spill to tmp-storage.

persistent.py has what all lanes in the journal share, queue_lane.py how messages arrive at those from which consumers
take (that of a topic is in dispatch/topics/topic_state.py), and non_persistent.py the lanes that spill.
"""
