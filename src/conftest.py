"""Examples in docstrings of an optional part are left out where what it needs is not installed."""

from __future__ import annotations

from importlib.util import find_spec

OPTIONAL = {"torch": "crfield/torch/*", "spacy": "crfield/compat/spacy.py", "aeon": "crfield/compat/aeon.py"}
collect_ignore_glob = [path for package, path in OPTIONAL.items() if find_spec(package) is None]
