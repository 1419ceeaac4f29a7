"""What a bench is asked for, checked before anything heavy is imported."""

from __future__ import annotations

from dataclasses import dataclass, fields

from draftproof.bench.engines import ALONE, check_engine
from draftproof.errors import ConfigError, ResultError
from draftproof.options import Options
from draftproof.results import AnyResult, BenchResult, Workload
from draftproof.settings import check_k, read_k

KS = (1, 2, 3, 4, 5, 6, 8, 12, 16, "auto")
_USUAL = Options(max_new_tokens=64, seed=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be measured: the first workload at every one of `ks`, the others at `k`, each against plain decoding.

    Raises `ConfigError` for what cannot be measured, before anything is loaded.
    """

    target: str
    draft: str
    """What the models are called: a file is resumed by those who name them alike."""
    workloads: tuple[Workload, ...]
    ks: tuple[int | str, ...] = KS
    k: int | str = "auto"
    options: Options = _USUAL
    repeats: int = 3
    engine: str = ALONE
    """Another engine to run beside ours, by its name in `bench.engines.ENGINES`."""
    numerics: str = "auto"

    def __post_init__(self) -> None:
        for k in (*self.ks, self.k):
            if not isinstance(read_k(k), str):
                check_k(read_k(k), least=1)
        if self.repeats < 1:
            raise ConfigError(f"repeats is {self.repeats}; it must be at least 1.")
        check_engine(self.engine)
        asked = self.options
        if self.engine != ALONE and asked != Options(max_new_tokens=asked.max_new_tokens, seed=asked.seed):
            raise ConfigError(f"engine {self.engine!r} is compared greedily, without other options; leave them out.")

    def continues(self, old: AnyResult, where: str = "the result") -> BenchResult:
        """Return `old` if it is this measurement, unfinished or finished. Raises `ResultError` for another one."""
        other = [f.name for f in fields(self) if getattr(old, f.name, None) != getattr(self, f.name)]
        if not isinstance(old, BenchResult) or other:
            which = f", with other {', '.join(other)}" if isinstance(old, BenchResult) else ""
            raise ResultError(f"{where} holds another measurement{which}; give another file name.")
        return old
