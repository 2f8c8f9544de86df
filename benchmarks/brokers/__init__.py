"""Brokers: servers with their usual Python clients on loopback. forebay and each broker run the same loop."""
