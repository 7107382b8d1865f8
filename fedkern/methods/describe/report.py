"""Makes the report's sections of a description: a Table 1, histograms, cross tables, correlations and curves."""

from __future__ import annotations

from ...results import described, guard
from ...results.page import details, figure, section, table
from ...results.report import RunFiles, Tile


def tiles(run: RunFiles) -> list[Tile]:
    """Returns the number of columns."""
    return [("Columns", str(len({row["column"] for row in run.summary["describe"]["rows"]})))]


@guard.figure("the page's sections", [])
def sections(run: RunFiles) -> list[str]:
    """Returns the sections of a finished run."""
    content = run.summary["describe"]
    head, *rows = described.table_one(content)
    drawn = described.correlations(content)
    words = f"Kaplan-Meier, with its limits; an event is {content['event']}. {described.log_rank(content)}"
    return [
        section("Table 1", table(head, rows)),
        figure("Histograms", described.histograms(content), "Rows of all clients in each bin, by its width."),
        section("Cross tables", *(details(name, table(cells[0], cells[1:])) for name, cells in described.cross(content).items())),
        section("Correlations", table(drawn[0], drawn[1:])) if drawn else "",
        figure("Survival", described.survival(content), words),
    ]
