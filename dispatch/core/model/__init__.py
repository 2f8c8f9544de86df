"""Destination, lane, TargetList, selector group, consumer and delivery: the classes that hold each other.

`destination.py` has the circle. Each of its classes inherits from classes in files below it, which know less:

    CoreDestination    <- DestinationLifecycle (lifecycle.py)
    LaneState          <- LaneStorage (lane_storage.py)  <- LaneMessages (delivery.py)
    TargetList         <- ListSupply, ListContents (both in core/lists)
    SelectorGroup      <- SelectorGroupConsumers (selector_group_consumers.py)  <- SelectorMatcher (matching.py)
    CoreConsumer       <- AbstractConsumer (delivery.py)

The two kinds of lane are above it, in core/lanes.
"""
