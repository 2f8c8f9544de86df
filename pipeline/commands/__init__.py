"""The commands that read journals, traces and loads, of one store or of many: Spark may do the work of most.

`engines.py` chooses who does it. `journals.py` explains, verifies and dumps; `planning.py` plays traces;
`questions.py` and `bulk.py` have the subcommands of `forebay pipeline`.
"""
