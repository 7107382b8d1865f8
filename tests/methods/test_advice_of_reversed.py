"""Every advice that a job gives of an outcome that is coded the other way round at one client, followed to its end.

None leads to a result that can stand: but for the file that is mended, each says the same of the same client.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import fedkern

Frames = dict[str, pd.DataFrame]
WORDS = "the response 'died' seems to be coded the other way round at 'bo'"
REMEDY = "No setting of the job mends that: rewrite the column in that file (1 less each cell"


def frames(seed: int = 1, other: int = 1) -> Frames:
    rng, made = np.random.default_rng(seed), {}
    for k, name in enumerate(("ada", "bo", "cy", "di")):
        X = rng.normal(size=(250, 3))
        y = (rng.uniform(size=250) < expit(-1 + 0.3 * rng.normal() + X @ [0.8, -0.7, 0.4])).astype(int)
        made[name] = pd.DataFrame({"x": X[:, 0], "z": X[:, 1], "w": X[:, 2], "died": 1 - y if k == other else y})
    return made


def fitted(data: Frames, method: str, **model: Any) -> Any:
    job: dict[str, Any] = {"job": {"method": method, "seed": 3}, "data": {"response": "died"}}
    job["model"] = {"family": "bernoulli", **model}
    if method == "sparse":
        job["job"]["rounds"], job["algorithm"] = 300, {"burn_in": 100, "chains": 2}
    return fedkern.run(job, data=data)


def advised(result: Any) -> set[str]:
    """The methods and switches that first line and notes name."""
    said = " ".join([result.summary["verdict"], *result.summary["notes"]])
    return set(re.findall(r'job\.method = "(\w+)"', said)) | set(re.findall(r"model\.(\w+) = true", said))


@pytest.mark.parametrize("method", ["likelihood", "pvi", "sparse"])
def test_the_advice_is_to_mend_the_file_and_that_ends_it(method: str) -> None:
    turned = fitted(frames(), method)
    assert turned.converged is False
    assert WORDS in turned.summary["verdict"]
    assert any(REMEDY in note for note in turned.summary["notes"])
    assert advised(turned) == set()
    mended = frames()
    mended["bo"]["died"] = 1 - mended["bo"]["died"]
    ended = fitted(mended, method)
    assert WORDS not in ended.summary["verdict"]
    assert not any(REMEDY in note for note in ended.summary["notes"])
