#!/usr/bin/env bash
# A good guess: empirical Bayes rates lie between the area's own rate and the rate of the whole map; where the rates vary less than Poisson
# counts would, all areas get the whole map's rate (Marshall 1991, and EBest of R's spdep 1.2-7, which gives 0.1 for each area below).
# What happens: esda puts the negative estimate of the variance between areas into the weights, which then are negative or above 1: areas of
# rates .100, .105, .093, .110 get .100, .186, .082, .089, and four areas of rates .05 get rates of .070, -.009, .110 and .031.
# Versions: esda 2.9.0, libpysal 4.14.1.
# Whom it hurts: who smooths a map of a common disease, or one whose differences are chance alone: the smooth map has the larger differences.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check esda==2.9.0 libpysal==4.14.1 geopandas==1.2.0 scipy==1.17.1 \
  numpy==2.4.6 pandas==3.1.1 scikit-learn==1.9.1
cat > try.py <<'PY'
import warnings

import esda
import numpy as np
from esda.smoothing import Empirical_Bayes

warnings.simplefilter("error")
print("esda", esda.__version__, "numpy", np.__version__)
for cases, people in (([10, 21, 28, 11], [100, 200, 300, 100]), ([50, 52, 49, 51], [1000, 1000, 1000, 1000])):
    raw = np.array(cases) / np.array(people)
    smooth = Empirical_Bayes(np.array(cases), np.array(people)).r.ravel()
    print("rates", raw.round(4).tolist(), "of all", round(sum(cases) / sum(people), 4), "smoothed", smooth.round(4).tolist())
    assert np.ptp(smooth) > 2 * np.ptp(raw)
assert smooth.min() < 0
PY
env/bin/python try.py
