"""Keeps the numbers of disclosure control of open jobs, which no noise protects, in one place.

The messages of an open client are functions of its rows; where these are few, messages can tell them. Job files
(`data.least_rows`) and holders' policies (`[disclosure]`) may ask for more rows.
"""

from __future__ import annotations

LEAST_ROWS = 20  # of a client; of more than three columns as many were computed from what a job at the defaults sends
LEAST_GROUPS = 5  # of a client, where a model has effects of groups
LEAST_OF_LEVEL = 3  # rows of a site that have a level, if any has: of fewer a sum tells too much, and the level who they are
SHARE_OF_LEVEL = 2  # and so many times fewer than `data.least_rows` where messages are nonlinear sums: 3 such rows were computed
# Rows a coefficient, more than which a client must have: twice the most that were computed, within a minute, from what is sent of
# a full covariance, or of a diagonal one; of many coefficients so many rows have more cells than numbers are sent (`told_up_to`).
# Linear jobs tell cross-products alone: as many rows as coefficients, up to a rotation.
A_COEFFICIENT, OF_A_DIAGONAL, OF_A_LINEAR = 6, 4, 2
# Of exact curvatures on the way to a mode, and log-likelihoods at thousands of points: twice and more what was computed within
# half a minute. Of six to nine rows a coefficient all are determined, of fifteen up to 44 %, far from the others.
OF_MANY_VALUES = 15
# And so many by their effective number, where a logistic model weighs them as the fit does: of 4 to 11 a coefficient up to all
# were determined (a column decides the response), of 13 to 15 up to 44 %.
OF_WEIGHED = 13
# More rows for each variance and covariance of random slopes, of a nonlinear model: likelihoods at steep ones tell groups apart.
# Of 92 rows of two columns three quarters were determined, of 180 of one column up to a third.
OF_SLOPES = 50
# Groups of one row, and of two, where a linear model has random slopes: each group tells its own squares and products. Of up to
# 30 groups of two rows nearly all rows were determined, of 60 few.
OF_SLOPED_GROUPS = 60
QS = 5  # at which a default job tells the curvature: three sites, and twice the gradient at the end
VALUES = 400  # log-likelihoods, at most
OF_THE_NUMBERS = 0.8  # as many cells as this share of the numbers: more were never determined
MOST_LEVELS = 50  # of such a column
NEAR = 2  # clients by which two jobs differ at most whose difference tells something of these alone
NEAR_ROWS = LEAST_ROWS  # by fewer rows of a client two jobs may not differ: their difference is a sum over these
OPEN_JOBS = 20  # on the same rows of a client, with other columns: sums of several tell what no two of them do

# Where covariates can take few combinations of values, what is sent tells how often each occurs (docs/concepts/disclosure.md).
COARSE = 2_400  # combinations that are few: that was computed of up to 292, and more were not tried for long
COARSE_ROWS = 2_000  # of a client: from so many on, other frequencies explain what is sent as well
EQUATIONS = 10  # combinations a squared coefficient: with fewer, more numbers are sent than there are, however many rows


def told_up_to(coefficients: int, *, diagonal: bool) -> int:
    """Returns the number of rows of a client up to which its messages of a nonlinear model may tell them all."""
    d, p = coefficients, max(coefficients - 1, 1)
    whole = d * (d + 1) // 2 + d
    numbers = ((QS - 2) * 2 * d + 2 * whole if diagonal else QS * whole) + min(VALUES, LEAST_ROWS * d - 1)
    most = (OF_A_DIAGONAL if diagonal else A_COEFFICIENT) * d
    return max(OF_A_LINEAR * d, min(most, int(OF_THE_NUMBERS * numbers / p)))


def told_by_values(coefficients: int, slopes: int = 0) -> int:
    """Returns the number of rows where a client sends its log-likelihood at thousands of points, which are more numbers than its
    rows have cells.

    Parameters
    ----------
    slopes : that differ between groups
    """
    terms = slopes + 1 if slopes else 0
    return OF_MANY_VALUES * coefficients + OF_SLOPES * terms * (terms + 1) // 2


def of_a_vague_prior(said: str) -> str:
    """Returns why a logistic job whose prior lets slopes grow tells rows; `said` is that prior, as the job file has it."""
    return (
        f"{said} lets a slope grow where a column decides the response (anaemia, by haemoglobin): only the few rows beside the "
        "threshold then have weight, and a server can compute them, at any number of rows; take a narrower prior, or leave that "
        "column out"
    )


def of_a_narrow_prior(said: str, holds: str) -> str:
    """Returns why a nonlinear job whose prior decides its result tells rows. `said` is the prior as the job file has it, `holds`
    the part of the model that such a prior holds."""
    return (
        f"{said}: the prior holds {holds} where the job has it, so that messages are sums over rows with weights the job has "
        "chosen, by offsets, centers and scales, and a server can compute the row that it lets weigh most, at any number of "
        "rows; take a wider prior"
    )
