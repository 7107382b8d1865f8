"""The noise of a private step: one draw of variance (sigma x clip)^2 for each coordinate and step, independent of all others."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedkern.kernels import rng
from fedkern.privacy.accountant import Mechanism
from fedkern.privacy.noise import KeyedSource, SecureSource

ALPHA = 1e-5
CLIP, SIGMA, D = 2.5, 5.0, 8


def releases(secure, steps, *, sigma=SIGMA, chunks=1):
    """(steps, D) noise of released zero sums; `chunks` > 1 plants the fault of noise for each chunk of rows."""
    source = SecureSource() if secure else KeyedSource(rng.key(11, "noise"), 3)
    m = Mechanism(sampling="full", clip=CLIP, dimension=D, noise_multiplier=sigma, secure=secure)
    zero = np.zeros(D, np.int64)
    out = np.empty((steps, D))
    for step in range(steps):
        if secure and step % 25 == 0:
            source.rekey()
        out[step] = sum(m.release(source, zero, step * chunks + chunk) for chunk in range(chunks))
    return out


def variance_p_values(z, sd):
    """Two-sided, a coordinate each: sum z^2 / sd^2 is chi-square with as many degrees of freedom as there are steps."""
    cdf = stats.chi2.cdf((z**2).sum(axis=0) / sd**2, len(z))
    return 2 * np.minimum(cdf, 1 - cdf)


@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize("steps", [8000, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_variance_independence_and_shape(secure, steps):
    z = releases(secure, steps)
    assert variance_p_values(z, SIGMA * CLIP).min() > ALPHA / D
    # Independent over steps (also across an update's rekeying) and coordinates, signs and sizes alike.
    for t in (z, np.abs(z) - np.abs(z).mean()):
        t = t / t.std(axis=0)
        bound = stats.norm.isf(ALPHA / (2 * 4 * D * D)) / np.sqrt(steps)
        assert np.abs(t.T @ t / steps - np.eye(D)).max() < bound * 1.3
        for lag in (1, 2, 25):
            assert np.abs(t[:-lag].T @ t[lag:] / steps).max() < bound * 1.3
    assert stats.kstest(z.ravel() / (SIGMA * CLIP), "norm").pvalue > ALPHA


@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize(("sigma", "chunks"), [(SIGMA * 2 / 3, 1), (SIGMA * 3 / 2, 1), (SIGMA, 2)])
def test_negative_controls_a_wrong_scale_is_rejected(secure, sigma, chunks):
    assert variance_p_values(releases(secure, 1500, sigma=sigma, chunks=chunks), SIGMA * CLIP).max() < ALPHA


def test_negative_control_noise_that_comes_twice_is_rejected():
    z = releases(True, 4000)
    z[1::2] = z[::2]
    assert np.abs((z[:-1] * z[1:]).mean(axis=0) / z.var(axis=0)).min() > 5 / np.sqrt(4000)


def check_tails(secure=True, steps=8000):
    """So many draws are beyond 1 to 4 standard deviations, on either side, as a normal distribution has there."""
    z = releases(secure, steps).ravel() / (SIGMA * CLIP)
    for beyond in range(1, 5):
        for side in (z, -z):
            assert stats.binomtest(int((side > beyond).sum()), z.size, stats.norm.sf(beyond)).pvalue > ALPHA / 8


@pytest.mark.parametrize("secure", [True, False])
def test_tails(secure):
    check_tails(secure)
