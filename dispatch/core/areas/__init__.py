"""The DispatchArea, which hands out and settles; the TargetArea, which fills lists; and Reclaim, which frees memory."""
