"""W1 to W12: whole works of a broker, each pass in a fresh process, compared with the peers that are installed."""
