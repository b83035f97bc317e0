"""Tables for notebooks: values that print as aligned text also have ``_repr_html_``, which Jupyter and its kind show.

A value says what its tables are (`Table`: a head, rows of texts, a note), and how they become HTML is written once:
plain tags without scripts or styles of its own beyond alignment, every text escaped, so that a label such as ``<b>``
is shown and not obeyed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

MOST_ROWS = 200


@dataclass(frozen=True)
class Table:
    """A head, rows of cells, and what stands above and below; ``bold`` are cells (row, column) to be marked.

    >>> print(Table(["label", "f1"], [["<b>", "1.00"]], note="one label").html())
    <table><thead><tr><th style="text-align:left">label</th><th style="text-align:right">f1</th></tr></thead>
    <tbody><tr><td style="text-align:left">&lt;b&gt;</td><td style="text-align:right">1.00</td></tr></tbody></table>
    <p>one label</p>
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    note: str = ""
    left: int = 1  # so many columns are names, to the left; the others are numbers
    bold: frozenset[tuple[int, int]] = frozenset()

    @classmethod
    def of_dicts(cls, rows: Iterable[Mapping[str, Any]], columns: Sequence[str], **options: Any) -> Table:
        """Some columns of plain dicts.

        >>> Table.of_dicts([{"name": "w=dog", "share": 0.25, "label": None}], ["name", "share", "label"]).rows
        [['w=dog', '0.25', '']]
        """
        return cls(columns, [[cell(row[name]) for name in columns] for row in rows], **options)

    def html(self) -> str:
        """The table as HTML; of a long one the first rows."""
        lines = [_row(self.head, "th", self.left)]
        for k, row in enumerate(self.rows[:MOST_ROWS]):
            marked = {column for at, column in self.bold if at == k}
            lines.append(_row(row, "td", self.left, marked))
        body = "\n".join(lines[1:])
        parts = [f"<p>{_text(self.title)}</p>"] if self.title else []
        parts.append(f"<table><thead>{lines[0]}</thead>\n<tbody>{body}</tbody></table>")
        if len(self.rows) > MOST_ROWS:
            parts.append(f"<p>… and {len(self.rows) - MOST_ROWS:,} more</p>")
        return "\n".join([*parts, *([f"<p>{_text(self.note)}</p>"] if self.note else [])])


class ShownAsTables:
    """For values that have ``_tables``: a notebook shows them."""

    def _tables(self) -> Sequence[Table]:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return "\n".join(table.html() for table in self._tables())


def cell(value: Any) -> str:
    """A value in a cell: four digits of a number, nothing for None, a list with commas.

    >>> cell(0.123456), cell(12), cell(None), cell(["a", "b"])
    ('0.1235', '12', '', 'a, b')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return ", ".join(map(str, value))
    return " → ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _row(cells: Sequence[str], tag: str, left: int, marked: Iterable[int] = ()) -> str:
    texts = [f"<b>{_text(text)}</b>" if k in marked else _text(text) for k, text in enumerate(cells)]
    sides = ["left" if k < left else "right" for k in range(len(cells))]
    return "".join(
        ["<tr>", *(f'<{tag} style="text-align:{side}">{text}</{tag}>' for side, text in zip(sides, texts)), "</tr>"]
    )


def _text(text: str) -> str:
    """Escaped, with what cannot be seen written out."""
    return escape("".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)).replace("\n", "<br>")
