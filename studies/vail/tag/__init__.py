"""The game of tag: which of its features a chain needs, how its noise is smoothed, and how it is observed."""
