"""Messages that consumers hold, and the state of each pending message in its lane."""
