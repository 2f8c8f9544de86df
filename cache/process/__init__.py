"""Memory of the process: what the machine or container has, and a guard that warns about growth."""
