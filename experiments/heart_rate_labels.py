"""How good are the labels of the heart-rate task? The monitor beside itself, and beside the ECG.

The label of a window is the mean of what a bedside monitor showed as the heart rate (from the ECG).
It showed a pulse, too (from the PPG), and the ECG's beats can be counted. By test recording, root
mean squared differences over its windows, in beats a minute, and the window in which the count
and the label differ most.

    ROUGHFORMER_DATA=... python experiments/heart_rate_labels.py
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from _results import ROOT, Results, show
from scipy.signal import butter, find_peaks, sosfiltfilt

from roughformer_paper.datasets import heart_rate_test_recordings, load_heart_rate

RATE = 125  # samples a second


def counted(ecg: np.ndarray) -> float:
    """Beats a minute by the mean interval of R peaks; an interval that is short counts in full."""
    steep = sosfiltfilt(butter(2, [5, 20], "bandpass", fs=RATE, output="sos"), ecg.astype(float))
    high = 0.5 * np.quantile(steep, 0.995)
    peaks, _ = find_peaks(steep, height=high, distance=int(0.25 * RATE))
    if len(peaks) < 3:
        return float("nan")
    return float(60 * RATE * (len(peaks) - 1) / (peaks[-1] - peaks[0]))


def row_of(recording: int, windows: Any, label: np.ndarray, pulse: np.ndarray) -> dict[str, Any]:
    count = np.array([counted(windows.series(i)[1][:, 1]) for i in range(len(windows))])

    def apart(x: np.ndarray) -> float:
        return float(np.sqrt(np.nanmean((x - label) ** 2)))

    worst = int(np.nanargmax(np.abs(count - label)))
    return {
        "recording": recording, "windows": len(windows), "pulse": apart(pulse),
        "count": apart(count), "worst": {
            "id": str(windows.ids[worst]), "label": float(label[worst]),
            "pulse": float(pulse[worst]), "count": float(count[worst]),
        },
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "heart_rate_labels.json")
    parser.add_argument("--data", type=Path, help="directory with bidmc/")
    parser.add_argument("--again", action="store_true", help="forget rows already measured")
    args = parser.parse_args()
    results = Results(args.out, args.again)
    every, said = (load_heart_rate(args.data, target=kind) for kind in ("HR", "Pulse"))
    assert (every.ids == said.ids).all()
    for recording in heart_rate_test_recordings().tolist():
        if results.get(recording=recording) is None:
            own = np.flatnonzero(every.static[:, 0] == recording)
            results.add(row_of(recording, every[own], every.labels[own], said.labels[own]))
    cells = [
        [r["recording"], r["pulse"], r["count"], *(r["worst"][k] for k in ("label", "count"))]
        for r in sorted(results.rows, key=lambda r: -r["count"])
    ]
    heads = ["recording", "pulse - label", "count - label", "worst window: label", "count"]
    show("Root mean squared difference, beats a minute", heads, cells)


if __name__ == "__main__":
    main()
