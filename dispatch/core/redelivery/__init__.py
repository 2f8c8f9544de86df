"""How messages leave a lane for good or come back to it: removal, redelivery, delays and ack deadlines."""
