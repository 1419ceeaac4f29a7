"""A table, described once: a terminal draws it here, the page in page.html."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its head, which side it keeps to, and what happens to it where there is little room."""

    head: str
    """With line breaks where a terminal may break it."""
    left: bool = False
    narrow: bool = False
    """Whether its cells may be cut short."""
    spare: int = 0
    """The higher, the sooner a narrow terminal does without it; 0 stays."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Columns, and rows of as many cells."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def heads(self) -> list[str]:
        """The heads, each in one line."""
        return [column.head.replace("-\n", "").replace("\n", " ") for column in self.columns]


def grid(title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Grid:
    """Return a table without the columns that say nothing: those that may be spared, and are empty in every row."""
    kept = [i for i, column in enumerate(columns) if not column.spare or any(row[i] for row in rows)]
    return Grid(title, tuple(columns[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows))


def draw(table: Grid, width: int | None = None) -> Table:
    """Return the table for a terminal; columns are left out until the others fit into `width` characters."""
    shown = list(range(len(table.columns)))
    wide = [
        max(len(line) for cell in (column.head, *(row[i] for row in table.rows)) for line in cell.split("\n"))
        for i, column in enumerate(table.columns)
    ]
    while width is not None and sum(wide[i] for i in shown) + 2 * (len(shown) - 1) > width:
        most = max(shown, key=lambda i: table.columns[i].spare)
        if not table.columns[most].spare:
            break
        shown.remove(most)
    drawn = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0),
        title=Text(table.title) if table.title else None,
        title_justify="left",
    )
    for i in shown:
        column = table.columns[i]
        drawn.add_column(
            Text(column.head),
            justify="left" if column.left else "right",
            no_wrap=column.narrow or not column.left,
            overflow="ellipsis" if column.narrow else "fold",
        )
    for row in table.rows:
        drawn.add_row(*(Text(row[i]) for i in shown))
    return drawn
