"""What a TargetList is made of, below its lane and its consumers: its messages, its supply, and loads for it.

Read `list_contents` first: it says where each message of a list is.
"""
