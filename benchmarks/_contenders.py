"""All contenders of a kind of task, in the order of the table."""

import _ours
import _peers
import _pysiglib
from _contender import Contender

__all__ = ["contenders"]


def contenders(kind: str) -> list[Contender]:
    """Ours, pySigLib, the others, the floor."""
    rows = [*_ours.contenders(kind), *_pysiglib.contenders(kind), *_peers.contenders(kind)]
    return rows + _ours.floors()
