"""The commands that need no pipeline, a file for each family. `__main__` names them, and says how one is called."""
