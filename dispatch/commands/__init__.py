"""The commands that need no pipeline, a file for each family. `__main__` names them and documents how to call them."""
