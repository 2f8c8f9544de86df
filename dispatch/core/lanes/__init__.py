"""Open lanes: those of messages in the journal, and those that spill to tmp-storage.

That of a topic is in dispatch/topics/topic_state.py, that of a subscription in dispatch/topics/subscription_state.py.
"""
