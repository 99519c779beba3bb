"""Print the rows of a benchmark as an aligned table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def print_table(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print `rows` under `title`, columns in the order in which keys first appear."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns, *([_text(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    print(f"\n{title}")
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
