"""Where messages are in RAM: the TargetArea has those that consumers may take, the DispatchArea those that they took.

The TargetArea fills lists; the DispatchArea hands out from them and settles.
"""
