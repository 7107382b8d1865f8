#!/usr/bin/env bash
# A good guess: the effective sample size of draws does not change when they are multiplied by a constant, and chains that never move have none:
# NA, as in R's posterior 1.4.0, or a low number.
# What happens: draws whose range is below 1e-15 count as constant, and constant draws count as independent: of random walks with an ESS for the
# mean of 5.6, times 1e-20 it is 4000, the number of draws. Four chains that never move have 4000 too, bulk and mean (R-hat is nan).
# Versions: arviz-stats 0.8.0, numpy 2.4.6, scipy 1.17.1.
# Whom it hurts: who reads quality from ESS alone: a sampler that hangs gets full marks, and so do parameters in very small units.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check arviz-stats==0.8.0 arviz-base==0.8.2 numpy==2.4.6 scipy==1.17.1 \
  xarray==2026.9.0 pandas==3.1.1
cat > try.py <<'PY'
import warnings

import arviz_stats
import numpy as np
from arviz_stats.base import array_stats

warnings.simplefilter("ignore")
print("arviz-stats", arviz_stats.__version__, "numpy", np.__version__)


def ess(draws, method):
    return round(float(array_stats.ess(draws, chain_axis=0, draw_axis=1, method=method)), 1)


walks = np.cumsum(np.random.default_rng(1).normal(size=(4, 1000)), axis=1)
found = {"walks": ess(walks, "mean"), "walks times 1e-20": ess(walks * 1e-20, "mean"), "still": ess(np.ones((4, 1000)), "bulk")}
print(found)
assert found["walks"] < 10 and found["walks times 1e-20"] == found["still"] == 4000
PY
env/bin/python try.py
