"""The line of a bound says an error only where there is one."""

import pytest

from fedkern.results.bounds import elbo_line


@pytest.mark.parametrize(("error", "said"), [(None, ""), ("nan", ""), (0.126, " ± 0.13")])
def test_a_standard_error_that_is_not_known_is_not_said(error, said):
    assert elbo_line({"elbo": -41.153, "elbo_error": error}) == f"ELBO -41.15{said} (mean of the last fifth of the rounds)"
