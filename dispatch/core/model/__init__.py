"""Destination, lane, TargetList, selector group, consumer and delivery: the classes that hold each other.

`destination.py` has the circle. Each of its classes inherits from classes in files below it, which know less:

    CoreDestination    <- LimitedDestination (dispatch/admission/limits.py)
    LaneState          <- DeliveryLane (delivery.py)
    TargetList         <- ListSupply, ListContents (both in core/lists)
    SelectorGroup      <- SelectorMatcher (matching.py)
    CoreConsumer       <- AbstractConsumer (delivery.py)

The two kinds of lane are above it, in core/lanes.

An abstract class stands for an owner above that is called from here: AbstractTargetArea for the TargetArea,
AbstractDistributionChooser for the DistributionChooser, AbstractConsumer for the Consumer. `contracts.py` has Protocols
for what is below, in store and cache, where no class can inherit from one of dispatch.
"""
