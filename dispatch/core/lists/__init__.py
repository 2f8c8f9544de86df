"""TargetLists: their contents, how much they may hold, and the loads that fill them."""
