"""Where arrays live, for whoever computes with them beside kernels: in memory, or on the device of the cuda backend.

An algorithm asks an array for its home, puts there what a kernel takes beside it, and takes back what goes into its state or a
message. On the host both do nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ._record import home
from ._record import on_host as on_host


class Home(NamedTuple):
    """A place of arrays.

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
        """The array here, copied if it lives elsewhere; None stays None."""
        return array if self.kind == "cpu" or array is None else self.xp.asarray(array)

    def all(self, *arrays: object) -> tuple[Any, ...]:
        """Several."""
        return arrays if self.kind == "cpu" else tuple(map(self.put, arrays))

    def back(self, arrays: Iterable[object]) -> tuple[Any, ...]:
        """What a kernel returned, in this process's memory; it is waited for."""
        return tuple(arrays) if self.kind == "cpu" else tuple(map(on_host, arrays))


HOST = Home("cpu", np)


def of(array: object) -> Home:
    """Where an array lives.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import homes
    >>> homes.of(np.ones(2)).kind
    'cpu'
    """
    return there() if home(array) == "cuda" else HOST


def there() -> Home:
    """The device of this process.

    Raises
    ------
    fedkern.errors.DeviceError
        There is none.

    Examples
    --------
    >>> from fedkern.kernels import homes
    >>> homes.there().kind  # doctest: +SKIP
    """
    from ._cuda import device

    return Home("cuda", device.current().xp)
