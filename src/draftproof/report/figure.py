"""What all charts share: colours of Okabe and Ito, a mark of its own for every series, an empty figure."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#333333",
)
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
MARKS = ("circle", "square", "diamond", "triangle-up", "x", "star", "cross")


def style(i: int) -> dict[str, Any]:
    """Return how series `i` looks."""
    colour = COLOURS[i % len(COLOURS)]
    return {
        "mode": "lines+markers",
        "marker": {"symbol": MARKS[i % 7], "size": 9, "color": colour},
        "line_color": colour,
    }


def empty(title: str, x: str, y: str) -> go.Figure:
    """Return a figure with nothing in it yet."""
    figure = go.Figure()
    figure.update_layout(
        title=title,
        template="plotly_white",
        height=380,
        margin={"l": 60, "r": 20, "t": 50, "b": 50},
        legend={"orientation": "h", "y": -0.22},
        font={"family": "system-ui, sans-serif", "size": 13},
    )
    figure.update_xaxes(title_text=x)
    figure.update_yaxes(title_text=y)
    return figure
