"""The relational feature language: templates with variables over agents, teams and objects.

    near trans : dist(a,b) | for a in us, b in them | where a != Y | test <,> 200:1000:50 | win all 1,6 | lag 0,10

A robot that watches others needs features by the thousand, and a person wants to write ten lines. A template is an
expression with variables; letting them run over agents, and a grid, windows, lags, powers and labels besides, gives
every feature a name and a number before any data are looked at (`catalogue`). Columns are computed when asked for
(`columns`), and one step at a time for a robot (`stream`), from the same definitions.

    tokens, syntax, parser      text to frozen trees; faults are shown under their place
    vocabulary, binding         trees and agents to a graph of shared operations
    functions                   what can be called, and the door for the user's own
    catalogue                   counting and naming
    recordings, columns         data and lazy columns
    stream                      one step at a time
    examples                    specifications to start from
"""

from __future__ import annotations

from crfield.features.relational.catalogue import Block, Catalogue, Specification
from crfield.features.relational.columns import RelationalColumns
from crfield.features.relational.functions import STANDARD, Functions
from crfield.features.relational.recordings import Recordings
from crfield.features.relational.stream import FeatureStream
from crfield.features.relational.vocabulary import Vocabulary

__all__ = [
    "STANDARD",
    "Block",
    "Catalogue",
    "FeatureStream",
    "Functions",
    "Recordings",
    "RelationalColumns",
    "Specification",
    "Vocabulary",
]
