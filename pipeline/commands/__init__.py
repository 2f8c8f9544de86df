"""The commands that read journals, traces and loads, of one store or of many. Spark can run most of them.

`engines.py` chooses the engine. `journals.py` explains, verifies and dumps; `planning.py` plays traces; `questions.py`
and `bulk.py` have the subcommands of `forebay pipeline`.
"""
