"""Write what the docs say of options and commands from the program itself: `make docs`; `--check` only compares."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

from typer.models import OptionInfo

from draftproof.about import About
from draftproof.cli import app
from draftproof.options import OPTIONS
from draftproof.settings import SETTINGS

HERE = Path(__file__).parent
HEAD = """# Commands

Written by `make docs` from the program. What the options of a request mean is in [sampling.md](sampling.md), what the
commands measure in the [README](../README.md#commands). A switch that others call otherwise (`--max-tokens`,
`--num-speculative-tokens`) is answered with its name here.
"""


def options() -> str:
    """Return the table of a request's options."""
    lines = ["| option | default | range | what it does | elsewhere |", "|---|---|---|---|---|"]
    for name, about in OPTIONS.items():
        elsewhere = ", ".join(f"`{other}`" for other in about.elsewhere)
        lines.append(f"| `{name}` | {_shown(about.default)} | {_range(about)} | {about.help} | {elsewhere} |")
    return "\n".join(lines)


def _range(about: About) -> str:
    kind = "ids and numbers" if about.form else about.range
    return f"{kind}, any number of them" if about.many else kind


def _shown(default: Any) -> str:
    return "" if default in (None, (), "") else f"`{default}`"


def commands() -> str:
    """Return the page of commands."""
    parts = [HEAD]
    for command in app.registered_commands:
        function: Any = command.callback
        hints = get_type_hints(function, include_extras=True)
        about = inspect.getdoc(function) or ""
        parts.append(f"## `draftproof {function.__name__.replace('_', '-')}`\n\n{about}\n")
        parts += ["| switch | value | default | what it does |", "|---|---|---|---|"]
        parts += [_row(one, hints[one.name]) for one in inspect.signature(function).parameters.values()]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _row(parameter: inspect.Parameter, hint: Any) -> str:
    kind, info = get_args(hint)[:2]
    switch = parameter.name.upper()
    if isinstance(info, OptionInfo):
        named = [
            one for one in (info.default, *(info.param_decls or ())) if isinstance(one, str) and one.startswith("-")
        ]
        switch = "`, `".join(named) or f"--{parameter.name.replace('_', '-')}"
        if parameter.default is True:
            switch += f"`, `{switch.replace('--', '--no-')}"
    about = OPTIONS.get(parameter.name) or SETTINGS.get(parameter.name)
    kinds = [one for one in (*get_args(kind), kind) if one is not type(None)]
    inner = next(one for one in (*get_args(kinds[0]), kinds[0]) if isinstance(one, type))
    value = (info.metavar or "").strip("[]").lower() or {
        str: "text",
        Path: "file",
        int: "whole number",
        float: "number",
        bool: "",
    }[inner]
    if about is not None and inner in (int, float) and not about.many:
        value = about.range
    missing = parameter.default is inspect.Parameter.empty
    default = "needed" if missing else _shown(None if isinstance(parameter.default, bool) else parameter.default)
    if about is not None and about.form:
        value = about.form
    return f"| `{switch}` | {value} | {default} | {' '.join((info.help or '').split())} |"


def pages() -> dict[Path, str]:
    """Return every page that is written here, in part or whole, as it should be."""
    sampling = HERE / "sampling.md"
    made = re.sub(
        r"(?<=<!-- options -->\n).*?(?=<!-- end of options -->)",
        lambda _: options() + "\n",
        sampling.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    return {sampling: made, HERE / "cli.md": commands()}


def main() -> None:
    """Write the pages, or with `--check` say which are not as they should be."""
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv:
        sys.exit(f"not as the program says: {', '.join(path.name for path in stale)}; run make docs" if stale else 0)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
