"""Recording of a store's traffic, playing it under other memory limits, and recommending a limit."""
