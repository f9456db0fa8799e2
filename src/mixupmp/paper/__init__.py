"""The reproduction of the paper: protocols, experiments, a cache of trained members, tables, and the ledger of claims.

`experiments/` has one file for each table or figure; `mixupmp reproduce NAME` runs it.
"""

from mixupmp.paper.lines import Line
from mixupmp.paper.members import Wanted
from mixupmp.paper.protocols import AUTHORS, PROTOCOLS, TEXT, Protocol
from mixupmp.paper.settings import SCALES, Setting
from mixupmp.paper.study import Study

__all__ = ["AUTHORS", "PROTOCOLS", "SCALES", "TEXT", "Line", "Protocol", "Setting", "Study", "Wanted"]
