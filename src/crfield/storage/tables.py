r"""Tables from files: CSV as it is, Parquet where a package that reads it is installed.

Which of the two a file is shows in its first bytes, whatever its name. None of the packages is needed for CSV, and
none is imported before a Parquet file is met.
"""

from __future__ import annotations

import io
from collections.abc import Collection
from importlib import import_module
from typing import Any

from crfield.data.tables import Table, parse_table, table_of
from crfield.errors import FormatError
from crfield.storage.files import Source, name_of, read_bytes, read_text

_PARQUET = b"PAR1"


def read_table(
    source: Source, *, header: bool | None = None, separator: str | None = None, words: Collection[int] = ()
) -> Table:
    r"""The table of a CSV or Parquet file; options as of `crfield.data.tables.parse_table`.

    >>> read_table(io.StringIO("t,x\n0,1\n")).names
    ('t', 'x')
    """
    name, data = name_of(source), read_bytes(source)
    if data[: len(_PARQUET)] == _PARQUET:
        return table_of(_parquet(data, name), name)
    stream = io.BytesIO(data)
    stream.name = name
    return parse_table(read_text(stream), header=header, separator=separator, file=name, words=words)


def _parquet(data: bytes, name: str) -> Any:
    """The columns of a Parquet file, by whichever of three packages is there."""
    for package, read in (
        ("pyarrow.parquet", lambda module: module.read_table(io.BytesIO(data)).to_pydict()),
        ("polars", lambda module: module.read_parquet(io.BytesIO(data))),
        ("pandas", lambda module: module.read_parquet(io.BytesIO(data))),
    ):
        try:
            module = import_module(package)
        except ImportError:
            continue
        return read(module)
    raise FormatError("Parquet needs pyarrow, polars or pandas. Install one of them, or write CSV.", file=name)
