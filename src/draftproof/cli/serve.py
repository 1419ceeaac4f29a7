"""`draftproof serve`: an OpenAI-compatible server whose every text is its solo text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.cli import shell
from draftproof.cli.options import RecipeFile, with_settings
from draftproof.errors import ConfigError
from draftproof.settings import SETTINGS, require_extra


@with_settings(*SETTINGS)
def serve(
    *,
    target: Annotated[str, typer.Option(help="Hub name, folder or .gguf file of the model that answers.")],
    recipe_file: RecipeFile = None,
    draft: Annotated[str | None, typer.Option(help="The same for the small model that guesses; none: plain.")] = None,
    name: Annotated[str | None, typer.Option(help="What clients call the model, if not as --target does.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: any that is free.")] = 8000,
    api_key: Annotated[
        str | None, typer.Option(envvar="DRAFTPROOF_API_KEY", help="Key that clients have to send; none: no key.")
    ] = None,
    at_once: Annotated[int, typer.Option(help="Texts that share passes at most.")] = 16,
    max_memory: Annotated[int | None, typer.Option(help="Bytes that the caches may have; texts wait for room.")] = None,
    max_queue: Annotated[
        int, typer.Option(help="Texts that may wait; beyond that clients are told to come again.")
    ] = 256,
    check_every: Annotated[
        int, typer.Option(help="Write every so-many-th text again, alone and plainly, when idle, and compare; 0: none.")
    ] = 0,
    settings: dict[str, Any],
) -> None:
    """Serve a target over OpenAI's interface, with a page at /; every text is, bit for bit, the one it is alone."""
    with shell.errors_in_one_line() as progress:
        require_extra("serve", "serve")
        shell.check_counts(
            at_once=at_once, max_queue=max_queue, **({} if max_memory is None else {"max_memory": max_memory})
        )
        if not 0 <= port < 1 << 16 or check_every < 0:
            raise ConfigError("port must lie between 0 and 65535, and check_every must be at least 0.")
        shell.check_models(target, draft, **settings)
        import uvicorn

        from draftproof.server.app import Serving, make_app
        from draftproof.server.engine import Engine
        from draftproof.server.metrics import Metrics

        compiled = "wait" if settings["compile"] == "auto" else settings["compile"]
        speculator = shell.load(progress, target, draft, **{**settings, "compile": compiled})
        with progress.status("warming up"):
            speculator.warm_up()
        called = name or (Path(target).name if Path(target).exists() else target)
        metrics = Metrics(called)
        engine = Engine(
            speculator,
            at_once=at_once,
            memory=max_memory,
            max_queue=max_queue,
            check_every=check_every,
            watcher=metrics,
        )
        engine.batch.warm_up()
        metrics.watch(engine)
        app = make_app(Serving(engine, metrics, called, api_key))
        config = uvicorn.Config(app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=30)
        server = uvicorn.Server(config)
        sockets = [config.bind_socket()]
        where = sockets[0].getsockname()
        progress.print(
            f"serving {called} at http://{where[0]}:{where[1]}  (Ctrl-C ends it)", markup=False, highlight=False
        )
        server.run(sockets=sockets)
