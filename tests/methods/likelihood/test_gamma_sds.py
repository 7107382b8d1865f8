"""Standard deviations of a gamma job are those of maximum likelihood, where R's `glm` takes Pearson's dispersion.

Numbers of R are those of `glm(infant ~ log(income), Gamma("log"))` in R 4.2.2, and of `gamma.shape` of MASS; rows are carData's
Leinhardt without those that lack a cell.
"""

from __future__ import annotations

import pandas as pd
import pytest

import fedkern

INFANT = """
26.7 23.7 17 16.8 13.5 10.1 12.9 20.4 17.8 25.7 11.7 11.6 16.2 11.3 44.8 71.5 9.6 12.8 17.5 17.6 86.3 78.5 125 28.1
300 58 650 51.7 59.6 170 78 62.8 54.4 48.8 27.8 79.1 22.1 26.2 13.6 32 60.9 46 34.1 65.1 20.4 15.1 19.1 26.2 76.3 40.4
43.3 259 60.4 137 180 114 58.2 63.7 39.3 138 21.3 58 159.2 149 10.2 38.6 67.9 21.7 27 153 100 400 124.3 200 150 100
190 160 109.6 84.2 216 60.6 55 102 148.3 120 187 200 124.3 132.9 170 158 45.1 129.4 162.5 127 160 180 80 50 104
"""
INCOME = """
3426 3350 3346 4751 5029 3312 3403 5040 2009 2298 3292 4103 3723 4102 956 1000 5596 2963 2503 5523 400 250 110 560
3010 220 1530 1240 1191 425 590 426 725 406 1760 302 2526 727 631 295 684 507 754 335 1268 1256 261 732 434 799 406
310 200 100 281 210 319 217 284 387 334 344 197 279 477 347 230 334 210 435 130 75 100 73 68 123 122 70 81 79 79 93
169 120 130 50 174 70 102 61 148 85 162 125 120 160 134 82 96 77 118
"""
BY_PEARSON = {"intercept": (6.4987546, 0.66698248), "theta[log(income)]": (-0.3492844, 0.10792417)}
BY_LIKELIHOOD = {"intercept": (6.4987546, 0.3663237), "theta[log(income)]": (-0.3492844, 0.05932964)}  # observed information
SHAPE = 1.6458169


def test_sds_are_those_of_maximum_likelihood() -> None:
    infant, income = ([float(one) for one in text.split()] for text in (INFANT, INCOME))
    whole = pd.DataFrame({"infant": infant, "income": income})
    tables = {"job": {"method": "likelihood"}, "model": {"formula": "infant ~ log(income)", "family": "gamma"}}
    found = fedkern.run(tables, data={name: whole.iloc[k::3] for k, name in enumerate("abc")}).parameters
    for name, (mean, sd) in BY_LIKELIHOOD.items():
        assert abs(found[name]["mean"] - mean) < 0.1 * sd
        assert found[name]["sd"] == pytest.approx(sd, rel=0.06)
        assert found[name]["sd"] < 0.6 * BY_PEARSON[name][1]
    assert found["shape"]["mean"] == pytest.approx(SHAPE, rel=0.05)
