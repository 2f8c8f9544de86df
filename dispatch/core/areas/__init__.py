"""Where messages are in RAM: the TargetArea has those that consumers may take, the DispatchArea those that they took.

TargetLists make and end lists, the TargetArea fills them, and the DispatchArea hands out from them and settles.
"""
