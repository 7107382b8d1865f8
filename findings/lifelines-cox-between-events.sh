#!/usr/bin/env bash
# A good guess: a Cox model's survival is a step function: 1 before the first event, and between two events what it was at the earlier one, as
# survfit of R's survival has it, and as lifelines' own KaplanMeierFitter.predict has it.
# What happens: predict_survival_function(times=...) interpolates the cumulative hazard linearly between events, and before the first event it
# gives the value *of* that event: .86 at a time when nobody can have died.
# Versions: lifelines 0.30.3, pandas 2.3.3, numpy 2.4.6, scipy 1.17.1.
# Whom it hurts: Brier scores, calibration and comparisons with R at given times (one year, five years) of data with few events.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check lifelines==0.30.3 pandas==2.3.3 numpy==2.4.6 scipy==1.17.1
cat > try.py <<'PY'
import warnings

import lifelines
import numpy as np
import pandas as pd

warnings.simplefilter("ignore")
print("lifelines", lifelines.__version__, "pandas", pd.__version__)
rows = pd.DataFrame({"t": [2.0, 3, 5, 9, 10, 13], "e": [1, 1, 1, 1, 1, 0], "x": [0.0, 1, 0, 1, 1, 0]})
model = lifelines.CoxPHFitter(penalizer=0.1).fit(rows, "t", "e")
times = [1.0, 2.0, 3.0, 4.0, 5.0]
cox = model.predict_survival_function(rows[["x"]].iloc[:1], times=times)[0].to_numpy()
steps = lifelines.KaplanMeierFitter().fit(rows["t"], rows["e"]).predict(times).to_numpy()
print("times", times, "Cox", cox.round(4).tolist(), "Kaplan-Meier", steps.round(4).tolist())
assert cox[0] == cox[1] < 0.9 and steps[0] == 1
assert abs(np.log(cox[3]) - (np.log(cox[2]) + np.log(cox[4])) / 2) < 1e-9 and steps[3] == steps[2]
PY
env/bin/python try.py
