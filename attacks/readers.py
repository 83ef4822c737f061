"""Damaged recordings: WFDB and EDF."""

import numpy as np
from _harness import Target, attack, mutated

import roughformer as rf
import roughformer.io

REFUSALS = (rf.InputError, rf.CapacityError, rf.MissingDataError)


@attack("WFDB", "A damaged record is read or refused by InputError, and never hangs")
def wfdb(target: Target) -> None:
    import wfdb as package

    rng = target.rng
    signal = rng.normal(size=(300, 2)).cumsum(axis=0)
    for fmt in ("16", "212", "80"):
        package.wrsamp(
            f"r{fmt}",
            fs=125,
            units=["mV", "mV"],
            sig_name=["a", "b"],
            p_signal=signal,
            fmt=[fmt, fmt],
            write_dir=str(target.folder),
        )
    kept = {file: file.read_bytes() for file in target.folder.iterdir()}
    while target.time_left:
        for file, data in kept.items():
            file.write_bytes(mutated(data, rng))
            record = file.with_suffix("")
            target.expect(
                lambda record=record: rf.io.read_wfdb(record),
                REFUSALS,
                f"{file.name}: {file.read_bytes()[:160]!r}",
            )
            file.write_bytes(data)


@attack("EDF", "A damaged file is read or refused by InputError, and never hangs")
def edf(target: Target) -> None:
    import pyedflib

    rng = target.rng
    file = target.folder / "x.edf"
    with pyedflib.EdfWriter(str(file), 2, file_type=pyedflib.FILETYPE_EDFPLUS) as writer:
        for k, rate in enumerate((50, 20)):
            writer.setSignalHeader(
                k,
                {
                    "label": f"c{k}",
                    "dimension": "uV",
                    "sample_frequency": rate,
                    "physical_max": 9.0,
                    "physical_min": -9.0,
                    "digital_max": 32767,
                    "digital_min": -32768,
                    "transducer": "",
                    "prefilter": "",
                },
            )
        writer.writeSamples([np.sin(np.arange(500) / 9), np.cos(np.arange(200) / 9)])
    data = file.read_bytes()
    while target.time_left:
        # Mostly the header: what is in the data cannot be wrong.
        cut = 768 if rng.random() < 0.9 else len(data)
        file.write_bytes(mutated(data[:cut], rng) + data[cut:])
        target.expect(lambda: rf.io.read_edf(file), REFUSALS, f"{file.read_bytes()[:768]!r}")
