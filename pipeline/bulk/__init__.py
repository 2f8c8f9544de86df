"""Archive, restore, load and tune: long jobs over many stores."""
