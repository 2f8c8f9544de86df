"""Destination, lane, TargetList, selector group, consumer and delivery: the classes that hold each other.

`destination.py` has the circle. Each of its classes inherits from classes in files below it, which know less:

    CoreDestination    <- LimitedDestination (dispatch/admission/limits.py)
    LaneState          <- DeliveryLane (delivery.py)
    TargetList         <- ListSupply, ListContents (both in core/lists)
    SelectorGroup      <- SelectorMatcher (matching.py)
    CoreConsumer       <- AbstractConsumer (delivery.py)

The two kinds of lane are above it, in core/lanes.
"""
