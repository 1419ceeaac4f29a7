"""Results: what was measured, where, and how it is written down."""

from draftproof.results.files import check_writable as check_writable
from draftproof.results.files import from_json as from_json
from draftproof.results.files import to_json as to_json
from draftproof.results.files import write as write
from draftproof.results.files import write_text as write_text
from draftproof.results.kinds import CALLED_DIFFERENT as CALLED_DIFFERENT
from draftproof.results.kinds import AnyResult as AnyResult
from draftproof.results.kinds import BenchResult as BenchResult
from draftproof.results.kinds import Cell as Cell
from draftproof.results.kinds import CertifyResult as CertifyResult
from draftproof.results.kinds import DraftFacts as DraftFacts
from draftproof.results.kinds import DraftsResult as DraftsResult
from draftproof.results.kinds import LawRow as LawRow
from draftproof.results.kinds import OnePass as OnePass
from draftproof.results.kinds import OnePassResult as OnePassResult
from draftproof.results.kinds import OnePassRow as OnePassRow
from draftproof.results.kinds import PassTimes as PassTimes
from draftproof.results.kinds import PeerCell as PeerCell
from draftproof.results.kinds import PreconditionResult as PreconditionResult
from draftproof.results.kinds import Recipe as Recipe
from draftproof.results.kinds import Result as Result
from draftproof.results.kinds import RunResult as RunResult
from draftproof.results.kinds import Timing as Timing
from draftproof.results.kinds import TwoSamples as TwoSamples
from draftproof.results.kinds import Workload as Workload
from draftproof.results.machine import read_machine as read_machine
