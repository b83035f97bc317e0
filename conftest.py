"""Modules for packages that are optional: their examples run where these are installed."""

from __future__ import annotations

from importlib.util import find_spec

OPTIONAL = {"src/crfield/compat/spacy.py": "spacy", "src/crfield/compat/aeon.py": "aeon"}
collect_ignore = [path for path, package in OPTIONAL.items() if find_spec(package) is None]
