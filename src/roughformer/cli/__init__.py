"""The command line: parsing and printing only; the work is done by the package's functions.

Heavy modules are imported inside the commands, so that ``roughformer --help`` answers at once.
"""

from roughformer.cli.app import main
from roughformer.cli.common import Interrupted
