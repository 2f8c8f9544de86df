"""The two areas of messages in RAM: the TargetArea for consumers to take, the DispatchArea for taken and not settled.

The ListRegistry makes and ends lists, the TargetArea fills them, and the DispatchArea dispatches from them and settles.
"""
