#!/usr/bin/env bash
# A good guess: the median of four survival times 1, 2, 3, 4, all events, by Kaplan-Meier is one number, 2.5 as of numpy.median, or 2.
# What happens: it is 2 in lifelines, 3 in statsmodels, and 2.5 in R (survfit of survival 3.5-3). Survival is .5 from 2 up to 3: lifelines takes
# the first time at which it is .5 or less, statsmodels the first at which it is below .5, R the middle of the two.
# Versions: lifelines 0.30.3, statsmodels 0.15.0, numpy 2.4.6.
# Whom it hurts: who compares medians of small arms, where survival often is .5 exactly: the programs are one whole event apart.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check lifelines==0.30.3 statsmodels==0.15.0 pandas==2.3.3 numpy==2.4.6 \
  scipy==1.17.1
cat > try.py <<'PY'
import warnings

import lifelines
import numpy as np
import statsmodels
import statsmodels.api as sm

warnings.simplefilter("ignore")
print("lifelines", lifelines.__version__, "statsmodels", statsmodels.__version__, "numpy", np.__version__)
for times in ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0]):
    by_lifelines = float(lifelines.KaplanMeierFitter().fit(times).median_survival_time_)
    by_statsmodels = float(sm.SurvfuncRight(times, np.ones(len(times))).quantile(0.5))
    print(times, "lifelines", by_lifelines, "statsmodels", by_statsmodels, "numpy", np.median(times))
    assert (by_lifelines, by_statsmodels) == ((2.0, 3.0) if len(times) == 4 else (2.0, 2.0))
PY
env/bin/python try.py
