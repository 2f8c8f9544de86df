"""The state that the journal tells, in RAM: transactions without an outcome, host properties, and with them the index.

Read `journaled_state.py` first: recovery brings this state up to the journal, and a state record restates it. After a
crash all of it is rebuilt from the journal.
"""
