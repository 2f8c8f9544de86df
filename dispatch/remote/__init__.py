"""What other processes ask of an open store through its admin socket."""
