"""Explanations of why a data log stays, why a consumer waits, and who holds memory.

Read `queues.py` first, which explains a consumer or a queue. It finds where the messages are (`message_places.py`) and
which of them a consumer would get (`reachable_messages.py`). `assignment_causes.py` knows groups and priorities.
`reasons.py` lists the reasons, and `clauses.py` writes them as text. `topics.py` explains a topic, `prepared.py` a
transaction, `disk.py` a data log, and `whole.py` the store. `blocked.py` explains sends that wait. `short.py` and
`stuck.py` say the same in one sentence, for a status and for the log.
"""
