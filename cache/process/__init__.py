"""The process's memory: what the machine or container has, and a guard that warns about growth."""
