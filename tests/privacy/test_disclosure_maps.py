"""What a server computes of each area's count from the messages of a nested Laplace approximation, and what it cannot."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedkern.algorithms.nested.machine import Settings
from fedkern.privacy.noise import SecureSource
from support import curious, curious_jobs, curious_nested

NESTED = {"algorithm": {"inference": "nested"}}
KNOWN = {"model": {"phi": 0.9}}  # and less is asked
CLIENTS, ATTACKED = range(4), 2  # the others' messages are of the same kind


@pytest.fixture(autouse=True)
def _fewer_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the last question, which is not what is looked at."""
    monkeypatch.setattr("fedkern.methods.sigma.model.NestedSettings", partial(Settings, points=60, questions=1, most=3, told=20))
    monkeypatch.setattr("fedkern.methods.sigma.own.DRAWS", 20)


def test_the_first_question_is_the_counts_of_a_map(tmp_path: Path) -> None:
    job = curious_jobs.spatial(tmp_path, **NESTED)
    for k, truth in enumerate(job.counts[:ATTACKED]):
        found = curious_nested.counts(job, [k], curious_nested.Told.of(job, k), np.random.default_rng(0))
        assert found.left < curious.SAME
        np.testing.assert_array_equal(found.y, truth)
    together = curious_nested.Told.summed([curious_nested.Told.of(job, k) for k in CLIENTS])
    found = curious_nested.counts(job, [*CLIENTS], together, np.random.default_rng(0))  # a secure sum is no remedy
    np.testing.assert_array_equal(found.y, np.concatenate(job.counts))
    assert curious_nested.replayed(job, 0, job.counts[0]) > 5
    with pytest.raises(AssertionError):
        curious_nested.replayed(job, 0, job.counts[0] + np.eye(4)[0])  # the test below can fail


def test_suppressed_counts_are_found_to_be_such_and_no_more(tmp_path: Path) -> None:
    """All that was sent of rows is computed again, bit for bit, without them."""
    most = 4
    job = curious_jobs.spatial(tmp_path, hidden=most, **NESTED, **KNOWN)
    hidden = [truth <= most for truth in job.counts]
    assert 3 < sum(those.sum() for those in hidden) < 9
    for k, (those, truth) in enumerate(zip(hidden[:ATTACKED], job.counts)):
        found = curious_nested.suppressed(job, k, curious_nested.Told.of(job, k), most)
        assert found.left < curious.SAME
        np.testing.assert_array_equal(found.interval, those)
        np.testing.assert_array_equal(found.y[~those], truth[~those])
        last = np.where(found.interval, float(most), found.y)
        assert curious_nested.replayed(job, k, found.y, last if those.any() else None) > 5


def test_of_counts_with_noise_the_noisy_ones_are_found_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that was sent of rows is computed again, bit for bit, from the noisy table."""
    random = np.random.default_rng(0)
    added = [random.geometric(0.5, 4) - random.geometric(0.5, 4) for _ in CLIENTS]
    monkeypatch.setattr(SecureSource, "add_geometric", lambda source, total, decay: total + added.pop())
    job = curious_jobs.spatial(tmp_path, **NESTED, **KNOWN, privacy={"epsilon": 1.0})
    for k, truth in enumerate(job.counts[:ATTACKED]):
        (path,) = (tmp_path / "run" / f"client-{job.map.model.names[k]}").glob("noisy-*.json")
        noisy = np.array(json.loads(path.read_text())["counts"], float)
        found = curious_nested.noisy(job, k, curious_nested.Told.of(job, k), np.random.default_rng(0))
        assert found.left < curious.SAME
        np.testing.assert_array_equal(found.y, noisy)
        assert (noisy != truth).any()
        assert curious_nested.replayed(job, k, noisy, curious_nested.noise(job)) > 5
