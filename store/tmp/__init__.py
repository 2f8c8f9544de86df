"""tmp-storage: non-persistent messages that overflow RAM, in files that do not outlive the process.

Read `storage.py` first: it spills, removes and compacts. `tmp_files.py` manages the files, `spilled_message.py` has the
bytes of a message in them and reads them, and `chunk.py` the places of the messages of one write. `tmp_owner.py` knows
which of them each owner still needs, and `tmp_plan.py` plans reads. `non_persistent_lane.py` knows the pending messages
of a lane, and `spill_turns.py` their order among the persistent messages. docs/internals/store-tmp.md gives the
reasons.
"""
