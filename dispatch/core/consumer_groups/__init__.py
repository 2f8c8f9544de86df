"""Who takes from a lane together: members, what they want, which messages their selector matches."""
