#!/usr/bin/env bash
# A good guess: a cumulative incidence that no longer rises keeps its standard error, as survfit of R's survival (3.5-3) has it: with the rows below
# .1224 at day 15 and at day 18, where the last four rows have the competing event.
# What happens: CumIncidenceRight's cinc_se is R's until day 15 and NaN at day 18, beside NumPy's warning of a division by zero: whenever all rows
# that are left have an event at the last time, the step there divides by what is left of them, in the errors of all causes.
# Versions: statsmodels 0.15.0, numpy 2.4.6, scipy 1.17.1, pandas 2.3.3.
# Whom it hurts: tables and plots that take the last row, the incidence at the end of the follow-up, with its interval.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check statsmodels==0.15.0 numpy==2.4.6 scipy==1.17.1 pandas==2.3.3
cat > try.py <<'PY'
import warnings

import numpy as np
import statsmodels
from statsmodels.duration.survfunc import CumIncidenceRight

print("statsmodels", statsmodels.__version__, "numpy", np.__version__)
times = np.array([1, 1, 2, 3, 3, 4, 5, 6, 6, 8, 9, 9, 10, 12, 15, 15, 18, 18, 18, 18], float)
cause = np.array([1, 0, 2, 1, 0, 2, 1, 0, 1, 2, 1, 0, 2, 1, 1, 0, 2, 2, 2, 2])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    fit = CumIncidenceRight(times, cause)
print("times", fit.times.tolist())
for k in (0, 1):
    print("cause", k + 1, fit.cinc[k].round(4).tolist(), "error", fit.cinc_se[k].round(4).tolist())
print("warnings", [str(w.message) for w in caught])
for k in (0, 1):
    assert np.isfinite(fit.cinc[k]).all() and np.isfinite(fit.cinc_se[k][:-1]).all() and np.isnan(fit.cinc_se[k][-1])
assert fit.cinc[0][-1] == fit.cinc[0][-2]
PY
env/bin/python try.py
