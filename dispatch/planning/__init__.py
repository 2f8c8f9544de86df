"""Records traffic, plays it under other memory limits, and recommends one of them."""
