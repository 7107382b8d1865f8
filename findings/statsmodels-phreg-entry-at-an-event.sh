#!/usr/bin/env bash
# A good guess: a row that enters at a time when another row has its event is not yet at risk there: the half-open (entry, time] of coxph (R's survival),
# of lifelines, and of SurvfuncRight in statsmodels itself. So an entry half a day later changes nothing where events are on whole days.
# What happens: PHReg counts such a row as at risk. Twelve rows of which seven enter on a day of an event give -.5169; coxph 3.5-3 and lifelines give
# -.7639, and so does PHReg once the entries are half a day later.
# Versions: statsmodels 0.15.0, lifelines 0.30.3, numpy 2.4.6, scipy 1.17.1, pandas 2.3.3.
# Whom it hurts: Cox models on the scale of age or with late entry whose times are whole days, months or years, where such ties are the rule.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check statsmodels==0.15.0 lifelines==0.30.3 numpy==2.4.6 scipy==1.17.1 pandas==2.3.3
cat > try.py <<'PY'
import lifelines
import pandas as pd
import statsmodels
import statsmodels.api as sm

print("statsmodels", statsmodels.__version__, "lifelines", lifelines.__version__)
table = pd.DataFrame({
    "entry": [0.0, 0, 0, 0, 0, 2, 2, 3, 3, 4, 5, 5],
    "time": [2.0, 3, 5, 6, 8, 4, 7, 5, 9, 10, 7, 11],
    "event": [1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 0],
    "x": [1.2, 0.4, -0.3, 0.9, 0.1, -0.8, 0.5, -1.1, 0.3, -0.6, -1.4, 0.7],
})


def slopes(entry):
    """PHReg's and lifelines' slope, Efron's ties."""
    rows = table.assign(entry=entry)
    cox = sm.PHReg(rows.time, rows[["x"]], status=rows.event, entry=rows.entry, ties="efron").fit().params[0]
    return cox, lifelines.CoxPHFitter().fit(rows, "time", "event", entry_col="entry", formula="x").params_["x"]


# Half a day later nobody's risk sets are others: there are events on whole days alone.
whole, half = slopes(table.entry), slopes(table.entry + 0.5 * (table.entry > 0))
for name, pair in {"entry on its day": whole, "entry half a day later": half}.items():
    print(f"{name}: PHReg {pair[0]:.4f}, lifelines {pair[1]:.4f}")
assert abs(whole[1] - half[1]) < 1e-4 and abs(half[0] - half[1]) < 1e-4
assert abs(whole[0] - half[0]) > 0.1
PY
env/bin/python try.py
