"""Predict with numpy and onnxruntime only: python predict_onnx.py model.onnx (no torch needed)."""

import json
import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
about = session.get_modelmeta().custom_metadata_map
channels, rng = json.loads(about["channels"]), np.random.default_rng(0)

lengths = np.array([200, 80, 1])  # three series, each at times of its own
values = rng.normal(size=(3, 200, len(channels))).cumsum(axis=1)
values[rng.random(values.shape) < 0.3] = np.nan  # not observed
times = np.cumsum(rng.uniform(0.1, 1.0, (3, 200)), axis=1)
types = {x.name: np.float32 if "(float)" in x.type else np.float64 for x in session.get_inputs()}
inputs = {"values": values.astype(types["values"]), "times": times, "lengths": lengths}
if "static" in types:
    inputs["static"] = np.full((3, len(json.loads(about["static"]))), np.nan)  # not known

first = session.get_outputs()[0].name  # probabilities, or point
answers = session.run([first], inputs)[0]
print(json.loads(about["classes"]) if "classes" in about else first, answers.round(4), sep="\n")
