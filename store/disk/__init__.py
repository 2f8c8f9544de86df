"""The access to the operating system: files, mapped write windows, and names in directories."""
