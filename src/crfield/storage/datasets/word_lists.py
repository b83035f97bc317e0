"""Lists of entries and clusters of words from files, for `crfield.TextFeatures`.

A lexicon has one entry a line, its words parted by blanks. Clusters are read as the usual Brown clustering programs
write them (``bits <tab> word <tab> count``), or as ``word <tab> bits``; the bits are 0 and 1 only, which tells the
two apart.
"""

from __future__ import annotations

import re

from crfield.errors import FormatError
from crfield.storage.files import Source, name_of, read_text

__all__ = ["read_clusters", "read_lexicon"]

_BITS = re.compile(r"[01]+")


def read_lexicon(source: Source, *, comment: str | None = None) -> list[str]:
    r"""The entries of a file, one a line; empty lines and those that begin with ``comment`` are left out.

    >>> import io
    >>> read_lexicon(io.StringIO("San Sebastián\n\n# rivers\nEbro\n"), comment="#")
    ['San Sebastián', 'Ebro']
    """
    lines = (line.strip() for line in read_text(source).splitlines())
    return [line for line in lines if line and not (comment and line.startswith(comment))]


def read_clusters(source: Source) -> dict[str, str]:
    r"""Bit strings of words from a file of clusters.

    >>> import io
    >>> read_clusters(io.StringIO("0110\tMadrid\t120\n0111\tLima\t31\n"))
    {'Madrid': '0110', 'Lima': '0111'}
    """
    found: dict[str, str] = {}
    for number, line in enumerate(read_text(source).splitlines(), 1):
        if not line.strip():
            continue
        fields = line.split("\t") if "\t" in line else line.split()
        if len(fields) >= 2 and _BITS.fullmatch(fields[0]):
            found[fields[1]] = fields[0]
        elif len(fields) >= 2 and _BITS.fullmatch(fields[1]):
            found[fields[0]] = fields[1]
        else:
            raise FormatError(
                f"{name_of(source)}, line {number}: expected bits, word and count parted by tabs, as in "
                f"'0110\\tMadrid\\t120', got {line[:40]!r}."
            )
    return found
