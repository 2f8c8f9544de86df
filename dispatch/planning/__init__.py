"""Record traffic, play it under other memory limits, recommend one."""
