"""The DispatchArea, which hands out and settles, the TargetArea, which fills lists, and the Reclaim of memory."""
