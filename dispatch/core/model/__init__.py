"""What is dispatched: lanes, TargetLists, selector groups, consumers, deliveries, and the destination that joins them.

`destination.py` has the classes that point at each other. Above it are the two kinds of lane,
persistent_lane_state.py and non_persistent_lane_state.py. Below it is what needs less: deliveries with the state of
each message of a lane (delivery.py), the contents of a list (list_contents.py), the consumers of a selector group
(selector_group_consumers.py), and whether a destination is open (lifecycle.py).
"""
