"""Settings and policies, their defaults, and how an activemq.xml maps to them."""
