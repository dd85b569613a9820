"""An analyst: explores a table with SQL, proposes a typed report, and is held to every number in it.

Read `agent.py` first. It needs `tables.py` (a CSV file as a read-only SQL table) and `report.py` (the report, how it is
shown, how it is checked). `offline.py` plays the language model where there is no key.
"""
