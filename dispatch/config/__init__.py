"""Settings and policies, their defaults, and how an activemq.xml maps to them.

Read `settings.py`, which has every setting, and `policy.py`, which has the rules of single destinations. `policies.py`
finds the policy of a name. `memory_plan.py` divides a memory limit, and `checks.py` refuses invalid arguments. Settings
come from code, from `settings_file.py`, or from ActiveMQ: `activemq_importer.py` is the entry point for that, and
`activemq_mapping.py` has its table.
"""
