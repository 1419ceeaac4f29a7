"""What type checkers make of `Options`: it takes what people write, and keeps one form of it. Checked by mypy only."""

from __future__ import annotations

from typing import assert_type

from draftproof import Options

given = Options(stop="x", json_schema={"type": "object"}, logit_bias={5: -3.0}, bad_words=["x", [1, 2]], end_tokens=7)
assert_type(given.stop, tuple[str, ...])
assert_type(given.end_tokens, tuple[int, ...] | None)
assert_type(given.logit_bias, tuple[tuple[int, float], ...])
assert_type(given.bad_words, tuple[str | tuple[int, ...], ...])
assert_type(given.json_schema, str | None)
Options(stop=["x"], json_schema='{"type": "object"}', logit_bias=[(5, -3.0)], bad_words="x", end_tokens=[7])
Options(stop=None, json_schema=None, logit_bias=None, bad_words=None, end_tokens=None)
Options(stop=5)  # type: ignore[arg-type]
Options(max_new_tokens="5")  # type: ignore[arg-type]
