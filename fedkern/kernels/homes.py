"""Tells where arrays live (in memory, or on the device of the cuda backend) and moves them, for code that computes beside
kernels.

An algorithm asks an array for its home, puts there the kernel's other arrays, and takes back those that go into its state or a
message. On the host both return their arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ._record import home
from ._record import on_host as on_host


class Home(NamedTuple):
    """Names a place of arrays, and moves arrays to it and back.

    Attributes
    ----------
    kind : "cpu" or "cuda", as jobs have it
    xp : its namespace: NumPy, or one with the same functions

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels.homes import HOST, Home
    >>> isinstance(HOST, Home), HOST.kind
    (True, 'cpu')
    >>> HOST.put(np.ones(2))
    array([1., 1.])
    """

    kind: str
    xp: Any

    def put(self, array: object) -> Any:
        """Returns the array here, copied if it lives elsewhere; None stays None."""
        return array if self.kind == "cpu" or array is None else self.xp.asarray(array)

    def all(self, *arrays: object) -> tuple[Any, ...]:
        """Puts several arrays here."""
        return arrays if self.kind == "cpu" else tuple(map(self.put, arrays))

    def back(self, arrays: Iterable[object]) -> tuple[Any, ...]:
        """Returns a kernel's results in this process's memory; they are waited for."""
        return tuple(arrays) if self.kind == "cpu" else tuple(map(on_host, arrays))


HOST = Home("cpu", np)


def of(array: object) -> Home:
    """Returns the home of an array.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import homes
    >>> homes.of(np.ones(2)).kind
    'cpu'
    """
    return device_home() if home(array) == "cuda" else HOST


def device_home() -> Home:
    """Returns the device of this process.

    Raises
    ------
    fedkern.errors.DeviceError
        There is none.

    Examples
    --------
    >>> from fedkern.kernels import homes
    >>> homes.device_home().kind  # doctest: +SKIP
    """
    from ._cuda import device

    return Home("cuda", device.current().xp)
