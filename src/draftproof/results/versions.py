"""Older results files, brought to the version of today. docs/results-format.md says what changed."""

from __future__ import annotations

from typing import Any

from draftproof.results.base import SCHEMA_VERSION
from draftproof.results.bench import OURS


def upgrade(data: dict[str, Any]) -> None:
    """Bring what an older file holds to today's version, in place."""
    for version in range(data["schema_version"], SCHEMA_VERSION):
        _STEPS[version](data)
    data["schema_version"] = SCHEMA_VERSION


def _from_1(data: dict[str, Any]) -> None:
    """What was asked of the text stood beside other fields, and everything was greedy."""
    home = data["recipe"] if data["kind"] == "run" else data
    home.pop("seed", None)
    if "max_new_tokens" in home:
        home["options"] = {"max_new_tokens": home.pop("max_new_tokens"), "stop": home.pop("stop", ())}


def _from_2(data: dict[str, Any]) -> None:
    """Cells of ours and of other engines had two forms."""
    for name in ("cells", "best_cells"):
        for cell in data.get(name, ()):
            cell["arm"] = {"engine": OURS, "draft": cell.pop("draft"), "k": cell.pop("k")}
            cell["answers"] = cell.pop("generations")
    for cell in data.pop("peers", ()):
        way, _, k = cell.pop("engine").partition(" k=")
        cell["arm"] = {"engine": data["engine"], "way": way, "draft": None, "k": int(k) if k else None}
        told = zip(cell.pop("tokens"), cell.pop("seconds"), strict=True)
        cell["answers"] = [
            {"text": None, "tokens": tokens, "finish_reason": None, "first_s": None, "total_s": seconds}
            for tokens, seconds in told
        ]
        data["cells"].append(cell)


_STEPS = {1: _from_1, 2: _from_2}
