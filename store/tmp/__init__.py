"""tmp-storage: non-persistent messages that overflow RAM, in files that do not outlive the process.

Read `storage.py` first, which spills, removes and compacts. `files.py` are the files, `chunk.py` what one write left in
one, `holdings.py` what of it each owner still needs, `plan.py` how it is read. `non_persistent_lane.py` says what is
pending, and `spill_turns.py` how that lies between the persistent messages. docs/internals/store-tmp.md says why.
"""
