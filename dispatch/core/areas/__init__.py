"""The two areas of messages in RAM: the TargetArea for consumers to take, the DispatchArea for taken and not settled.

The ListRegistry makes and ends lists, the TargetArea fills them, and the DispatchArea hands out from them and settles.
"""
