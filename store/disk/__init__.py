"""Files, mapped write windows and directory names: everything that touches the operating system."""
