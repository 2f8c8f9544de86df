"""The process's memory: how much the machine or container has, and a guard that warns about growth."""
