"""Check the installed roughformer: which engine it has, and that a small fit works.

python tools/try_wheel.py {native,torch} [--without-torch]
"""

import sys

import numpy as np

import roughformer as rf

engine = rf.engine_info()
assert engine["engine"] == sys.argv[1], engine
assert "site-packages" in rf.__file__, f"not the installed package: {rf.__file__}"
print("roughformer", rf.__version__, "on Python", sys.version.split()[0], engine)

rng = np.random.default_rng(0)
y = np.arange(24) % 2
X = [np.sin((1 + k) * np.linspace(0, 9, rng.integers(30, 50)))[:, None] for k in y]
if "--without-torch" not in sys.argv:
    model = rf.RFormerClassifier(random_state=0).fit(X, y)
    print("training accuracy of a small fit:", model.score(X, y))
