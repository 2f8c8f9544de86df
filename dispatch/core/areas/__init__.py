"""The two areas of messages in RAM: those that consumers may take, and those that they took and have not settled.

The ListRegistry makes and ends lists, the TargetArea offers arrivals to them, and the DispatchArea dispatches from them
and settles.
"""
