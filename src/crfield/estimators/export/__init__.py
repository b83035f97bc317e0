"""Streams, and models as code: C headers and Python modules."""

MAX_LAG = 1000  # steps after which a label is final, where nothing else is said
