"""Lanes, TargetLists, selector groups, consumers and deliveries, and the destination to which they belong.

`destination.py` has the classes that hold each other. Each inherits from classes in files below it, which know less:

    CoreDestination    <- DestinationLifecycle (lifecycle.py)
    LaneState          <- LaneStorage (lane_storage.py)  <- LaneMessages (delivery.py)
    TargetList         <- ListSupply (list_supply.py)    <- ListContents (list_contents.py)
    SelectorGroup      <- SelectorGroupConsumers (selector_group_consumers.py)  <- SelectorMatcher (matching.py)
    CoreConsumer       <- AbstractConsumer (delivery.py)

Above `destination.py` are the two kinds of lane, persistent_lane_state.py and non_persistent_lane_state.py.
"""
