"""Makes the parts of an open store, layer by layer. Nothing here runs after a store is open.

Each module has a frozen dataclass with the parts of one layer, and a function that makes them from the layers below:
`foundation`, `store_layer`, `areas`, `redelivery`, `core`, `clients`, `administration`. The Engine calls them in order.
From all of these (`layers`) `facades` gathers what queues, topics and explanations use, `audit` makes the audit of the
ledger, and `background` the background work and the reports. `environment` is what the process hands in.
"""
