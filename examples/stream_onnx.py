"""A live stream with numpy and onnxruntime only: python stream_onnx.py model.step.onnx."""

import json
import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
about, rng = session.get_modelmeta().custom_metadata_map, np.random.default_rng(0)
inputs = {x.name: x for x in session.get_inputs()}
kind = np.float32 if "(float)" in inputs["values"].type else np.float64
fixed = {"static": np.full((1, inputs["static"].shape[1]), np.nan)} if "static" in inputs else {}
state, names = np.zeros((1, inputs["state"].shape[1])), [x.name for x in session.get_outputs()]

t, x = 0.0, np.zeros(len(json.loads(about["channels"])), dtype=kind)
for _ in range(200):  # observations come one at a time, at irregular moments
    t, x = t + rng.uniform(0.1, 1.0), x + rng.normal(size=x.shape).astype(kind)
    rows = {"values": x[None, None], "times": np.array([[t]]), "lengths": np.array([1])}
    taken = 0
    while not taken:  # windows that ended before this observation end first, one each call
        said = session.run(names, {**rows, "state": state, **fixed})
        answer = dict(zip(names, said, strict=True))
        state, taken = answer["next_state"], answer["taken"][0]
        if answer["ended"][0]:
            print(f"{answer['time'][0]:.2f}", names[0], answer[names[0]][0].round(4))
