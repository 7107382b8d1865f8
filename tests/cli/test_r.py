"""The page for R: its code runs by reticulate (Debian's r-base-core and r-cran-reticulate), and has the numbers of glm and coxph.

R 4.2.2 and its packages MASS and survival compute the numbers beside it, in the same process.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "start" / "r.md"
OURS = """
g <- coef(summary(glm(low ~ age + lwt + race + smoke, binomial, d)))
first <- fedkern$fit("low ~ age + lwt + race + smoke", rows(d), by = "site", columns = dict(race = dict(reference = "white")),
                     priors = dict(prior_sd = 30, intercept_sd = 30))
lung$at <- seq_len(nrow(lung)) %% 2
library(survival)  # in whose formulas survival::strata would be a covariate
cox <- coef(summary(coxph(Surv(time, died) ~ age + sex + strata(at), lung)))
d$lwt[3] <- NA
d$grade <- cut(d$bwt, c(0, 2500, 3300, Inf), c("small", "middle", "large"), ordered_result = TRUE)
lacking <- fedkern$fit("low ~ lwt", rows(d), by = "site")
graded <- fedkern$fit("grade ~ smoke", rows(d), by = "site")
numbers <- list(ours = tidy(first), glm = g, cox = cox, times = tidy(fit), lines = c(py_str(lacking), py_str(graded)),
                grades = graded$summary$encoding$labels)
writeLines(gsub("NaN", "null", jsonlite::toJSON(numbers, digits = 10)), "numbers.json")
"""


def _has(package: str) -> bool:
    code = f"quit(status = !requireNamespace('{package}', quietly = TRUE))"
    return shutil.which("Rscript") is not None and subprocess.run(["Rscript", "-e", code], capture_output=True).returncode == 0


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_page_runs_and_has_the_numbers_of_r(tmp_path: Path) -> None:
    for package in ("reticulate", "MASS", "survival", "jsonlite"):
        if not _has(package):
            pytest.skip(f"{package} of R is not installed: apt-get install r-base-core r-cran-reticulate r-cran-jsonlite")
    code = "\n".join(re.findall(r"```r\n(.*?)```", PAGE.read_text(), flags=re.DOTALL))
    code = re.sub(r"use_virtualenv\(.*\n", lambda _: f"use_python({json.dumps(sys.executable)}, required = TRUE)\n", code)
    (tmp_path / "page.R").write_text(code + OURS)
    ran = subprocess.run(["Rscript", "page.R"], cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads((tmp_path / "numbers.json").read_text())
    ours = {row["term"]: row for row in found["ours"]}
    names = ["intercept", "age", "lwt", "race[T.black]", "race[T.other]", "smoke"]
    for name, (estimate, error, *_) in zip(names, found["glm"], strict=True):
        assert abs(ours[name]["estimate"] - estimate) < 0.25 * error  # the mean of a posterior, and the mode
        assert abs(ours[name]["std.error"] / error - 1) < 0.08
    times = {row["term"]: row for row in found["times"]}
    for name, (estimate, _, error, *_) in zip(["age", "sex"], found["cox"], strict=True):
        assert abs(times[name]["estimate"] - estimate) < 0.1 * error
        assert abs(times[name]["std.error"] / error - 1) < 0.05
    assert found["grades"] == ["small", "middle", "large"]
    lacking, graded = found["lines"]
    assert "188 rows" in lacking
    assert graded.startswith("likelihood: ordinal (logit): grade ~ smoke")
