"""What models and counts are called where there is little room."""

from __future__ import annotations

from collections.abc import Sequence

from draftproof.results import DraftsResult


def short(name: str) -> str:
    """Return the last part of a model's name or path."""
    return name.rstrip("/").rpartition("/")[2] or name


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return a short name for each model: of its path so much of the end as tells it from the others."""
    found = {}
    for name in names:
        parts = [part for part in name.split("/") if part]
        tails = ("/".join(parts[-n:]) for n in range(1, len(parts) + 1))
        others = [f"/{'/'.join(part for part in other.split('/') if part)}" for other in names if other != name]
        found[name] = next((t for t in tails if not any(other.endswith(f"/{t}") for other in others)), name)
    return found


def drafts_of(result: DraftsResult) -> dict[str, str]:
    """Return the drafts that were compared, and how each is called where there is little room."""
    return short_names([fact.draft for fact in result.facts])


def count(value: float | None) -> str:
    """Return a mean over repeats as text: whole numbers without a fraction."""
    return "" if value is None else f"{value:,.1f}".removesuffix(".0")
