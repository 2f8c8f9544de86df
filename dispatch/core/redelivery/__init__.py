"""How messages leave a lane for good or come back to it: removal, redelivery, delays, expiry and ack deadlines."""
