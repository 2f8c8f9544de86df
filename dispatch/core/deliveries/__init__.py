"""Messages in the hands of consumers, and what a lane says about the state of each."""
