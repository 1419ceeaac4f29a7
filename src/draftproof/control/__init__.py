"""How many guesses a round asks for: a number, or a policy by its name."""

from __future__ import annotations

from typing import cast

from draftproof.control.auto import Auto
from draftproof.control.base import Controller as Controller
from draftproof.control.base import Fixed as Fixed
from draftproof.control.base import start as start
from draftproof.control.others import Schedule, Threshold
from draftproof.settings import USUAL_K, check_k, read_k

CONTROLLERS = {"auto": Auto, "schedule": Schedule, "threshold": Threshold}
"""Every policy by its name: a class that needs no argument to be made."""


def policy_of(controller: Controller) -> str | None:
    """Return the name of a policy, None for a fixed k."""
    if isinstance(controller, Fixed):
        return None
    kind = type(controller)
    return next((name for name, known in CONTROLLERS.items() if known is kind), kind.__name__)


def reproducible(controller: Controller) -> Controller:
    """Return what chooses where guesses are drawn: there a text hangs on their number, and a seed could not write it
    again if that followed from what passes take. So in place of `Auto` the usual number.
    """
    return Fixed(min(USUAL_K, controller.most)) if isinstance(controller, Auto) else controller


def controller_of(k: int | str | Controller) -> Controller:
    """Return the controller that `k` is, names, or stands for. Raises `ConfigError`."""
    k = read_k(k)
    if isinstance(k, str):
        return cast("Controller", CONTROLLERS[k]())
    if not hasattr(k, "most"):
        return Fixed(check_k(k))
    controller = cast("Controller", k)
    check_k(controller.most)
    return controller
