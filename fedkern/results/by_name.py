"""Finds parameters in ArviZ's groups by the names that `summary.json` gives them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .marginals import Drawn
from .released import Group


def of_draws(groups: Mapping[str, Group], name: str, site: str = "") -> Drawn | None:
    """Returns the draws of a parameter that is named as in `summary.json` (`theta[age]`, `tau[age]`, `eta`).

    Parameters
    ----------
    groups : of a sampler; draws (c, t, ..) on the standardised scale are multiplied by the `scale` of the data
    name : of the parameter
    site : the client whose coefficient it is; "" for a parameter that all clients share

    Returns
    -------
    its draws; None where none are kept
    """
    if "posterior" not in groups:
        return None
    variables, coordinates = groups["posterior"]
    if not site and name in variables and len(variables[name][0]) == 2:
        return Drawn(np.ascontiguousarray(variables[name][1]))
    stem, _, label = name.partition("[")
    label = label.removesuffix("]")
    if site:
        return _of_site(groups, label, site) if stem == "theta" and "theta_std_at" in variables else None
    if stem in variables:
        factor, (dims, values) = 1.0, variables[stem]
    elif f"{stem}_std" in variables:
        factor, (dims, values) = _scale(groups, label), variables[f"{stem}_std"]
    else:
        return None
    if len(dims) != 3:
        return None
    labels = [str(entry) for entry in coordinates.get(dims[2], ())]
    if not label and values.shape[2] == 1:
        return Drawn(np.ascontiguousarray(values[:, :, 0]))
    return Drawn(np.ascontiguousarray(values[:, :, labels.index(label)] * factor)) if label in labels else None


def _of_site(groups: Mapping[str, Group], label: str, site: str) -> Drawn | None:
    """Returns the draws of a client's coefficient, on the data's scale."""
    variables, coordinates = groups["posterior"]
    clients = [str(client) for client in coordinates["client"]]
    labels = [str(entry) for entry in coordinates["coefficient"]]
    if site not in clients or label not in labels:
        return None
    draws = variables["theta_std_at"][1][:, :, clients.index(site), labels.index(label)]
    return Drawn(np.ascontiguousarray(draws * _scale(groups, label)))


def _scale(groups: Mapping[str, Group], label: str) -> float:
    """Returns the factor that turns a standardised coefficient into one on the data's scale."""
    constants = groups.get("constant_data")
    if constants is None or "scale" not in constants.variables:
        return 1.0
    labels = [str(entry) for entry in constants.coordinates["coefficient"]]
    return float(constants.variables["scale"][1][labels.index(label)]) if label in labels else 1.0
