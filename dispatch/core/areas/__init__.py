"""The two areas of messages in RAM: the TargetArea for consumers to take, the DispatchArea for taken and not settled.

<<<<<<< HEAD
The ListRegistry makes and ends lists, the TargetArea fills them, and the DispatchArea hands out from them and settles.
||||||| 1bf62822
TargetLists makes and ends lists, the TargetArea fills them, and the DispatchArea hands out from them and settles.
=======
TargetLists makes and ends lists, the TargetArea fills them, and the DispatchArea dispatches from them and settles.
>>>>>>> d6
"""
