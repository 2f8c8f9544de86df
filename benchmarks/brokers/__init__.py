"""Brokers: servers with their usual Python clients on loopback, beside forebay, doing the same from the same loop."""
