"""W1 to W12: whole works, each pass of them in a fresh process, beside the peers that are there."""
