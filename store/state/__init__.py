"""What the journal tells, in RAM: transactions without an outcome, host properties, and with them the index.

Read `journaled_state.py` first: recovery brings it up to the journal, and a state record restates it. All of it is
rebuilt from the journal after a crash.
"""
