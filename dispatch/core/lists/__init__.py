"""TargetLists: what a list knows of its lane, how much it may hold, and what is on its way into it."""
