"""Rows of text under headings: HTML where a front end shows it, text elsewhere. Text of users is treated as
hostile.
"""

from __future__ import annotations

from collections.abc import Sequence

from mgpu_agent.protocol.text import as_html, pad, printable, width

CELL = "text-align: left; padding: 2px 12px 2px 0; vertical-align: top"


class Table:
    """IPython shows the HTML where it can, and the text elsewhere."""

    def __init__(
        self, caption: str, headings: Sequence[str], rows: Sequence[Sequence[str]], empty: str
    ) -> None:
        self.caption = caption
        self.headings = tuple(headings)
        self.rows = tuple(tuple(row) for row in rows)
        self._empty = empty

    def __repr__(self) -> str:
        if not self.rows:
            return f"{self.caption}\n{self._empty}" if self.caption else self._empty
        rows = [self.headings, *(tuple(printable(cell) for cell in row) for row in self.rows)]
        widths = [max(width(row[column]) for row in rows) for column in range(len(self.headings))]
        lines = [
            "  ".join(pad(cell, columns) for cell, columns in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join(([self.caption] if self.caption else []) + lines)

    def _repr_html_(self) -> str:
        """Return the table as HTML."""
        caption = f"<div>{as_html(self.caption)}</div>" if self.caption else ""
        if not self.rows:
            return f"{caption}<div>{as_html(self._empty)}</div>"
        head = "".join(f'<th style="{CELL}">{as_html(heading)}</th>' for heading in self.headings)
        body = "".join(
            "<tr>" + "".join(f'<td style="{CELL}">{as_html(cell)}</td>' for cell in row) + "</tr>"
            for row in self.rows
        )
        return f"{caption}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
