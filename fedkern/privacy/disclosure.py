"""Disclosure control of open jobs, which no noise protects: its numbers, in one place.

What an open client sends is a function of its rows; where these are few it can tell them. Job files (`data.least_rows`) and
holders' policies (`[disclosure]`) may ask for more rows.
"""

from __future__ import annotations

LEAST_ROWS = 20  # of a client; of more than three columns as many were computed from what a job at the defaults sends
LEAST_OF_LEVEL = 3  # rows of a site that have a level, if any has: of fewer a sum tells too much, and the level who they are
SHARE_OF_LEVEL = 2  # and so many times fewer than `data.least_rows` where messages are nonlinear sums: 3 such rows were computed
# Rows a coefficient up to which the messages of a nonlinear model determine nearly all rows of a client, where q has a full
# covariance, and a diagonal one. (With 2.9 and 2.2 they were computed within a minute.)
OF_A_FULL, OF_A_DIAGONAL = 6, 4
MOST_LEVELS = 50  # of such a column
NEAR = 2  # clients by which two jobs differ at most whose difference tells something of these alone
NEAR_ROWS = LEAST_ROWS  # by fewer rows of a client two jobs may not differ: their difference is a sum over these

# Where covariates can take few combinations of values, what is sent tells how often each occurs (docs/concepts/disclosure.md).
COARSE = 2_400  # combinations that are few: that was computed of up to 292, and more were not tried for long
COARSE_ROWS = 2_000  # of a client: from so many on, other frequencies explain what is sent as well
EQUATIONS = 10  # combinations a squared coefficient: with fewer, more numbers are sent than there are, however many rows
