"""The demo: the load test as a story, shown live."""
