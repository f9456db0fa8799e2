"""The paper at a command: plans of runs, a cache of trained members, tables beside the paper's, a ledger of claims.

The experiments themselves, one file for each table or figure, are in the repository's folder `experiments/`; they only
compose what is here and in the rest of the library.
"""

from mixupmp.paper.members import Wanted
from mixupmp.paper.settings import SCALES, Setting
from mixupmp.paper.study import Study

__all__ = ["SCALES", "Setting", "Study", "Wanted"]
