"""Take finished rows of ``roughformer reproduce`` into results/reproduce, and write the pages anew.

    python experiments/publish.py runs/heart-rate-full runs/sine-full

A row takes the place of the published one of the same job. Rows that failed are left out.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from _results import ROOT

from roughformer_paper.reproduce import Results

PUBLISHED = ROOT / "results" / "reproduce"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="directories with a results.json")
    args = parser.parse_args()
    for run in args.runs:
        found = json.loads((run / "results.json").read_text())
        results = Results(PUBLISHED / f"{found['experiment']}.json", found["experiment"])
        good = [row for row in found["rows"] if "failed" not in row]
        for row in good:
            results.add(row)
        print(f"{run}: {len(good)} of {len(found['rows'])} rows -> {results.path}")
    for page in ("_reproduced.py", "_findings.py"):
        subprocess.run([sys.executable, str(ROOT / "docs" / page)], check=True)


if __name__ == "__main__":
    main()
