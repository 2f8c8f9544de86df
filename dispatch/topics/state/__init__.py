"""The state of topics and subscriptions in RAM, and how an arriving message gets from a topic to its subscriptions.

Read `subscription_state.py` first: a subscription is to lists, caches and the loader what a queue is. `topic_state.py`
has a topic and its lanes, which give stored messages to subscriptions. `fan_out.py` gives them non-persistent messages.
`selector_matches.py` judges the arriving message once for all subscriptions with the same selector. `shared_reading.py`
says how much one subscription reads for itself, and what it leaves to the cache that it shares with the others.
"""
