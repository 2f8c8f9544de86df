"""How one memory limit is divided, and which hit ratio other limits would bring."""
