"""Examples in docstrings of an optional part are left out where what it needs is not installed."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["crfield/torch/*"]
