"""Says which layers the networks of a hierarchical variational autoencoder have, for `mlp.Architecture` and for backends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

Numbers: TypeAlias = np.ndarray  # float32 or float64, as the caller's

HEAD = 8  # numbers of a code before the sizes of the groups
VARIANTS = ("printed", "amended", "multiplicative")


class Layer(NamedTuple):
    """Describes an affine map: W (n_out, n_in) row by row, then b (n_out,) if it has a bias.

    Examples
    --------
    >>> from fedkern.kernels import mlp
    >>> mlp.Layer(n_out=3, n_in=2).n_parameters  # six weights and three biases
    9
    """

    n_out: int
    n_in: int
    bias: bool = True

    @property
    def n_parameters(self) -> int:
        """The number of the map's parameters."""
        return self.n_out * (self.n_in + self.bias)


class Part(NamedTuple):
    """Describes one network: where its parameters stand, and its layers.

    Examples
    --------
    >>> from fedkern.kernels import mlp
    >>> part = mlp.Part(slice(0, 9), (mlp.Layer(3, 2),))
    >>> part.where.stop, part.layers[0].n_out
    (9, 3)
    """

    where: slice
    layers: tuple[Layer, ...]


class Sized(Protocol):
    """Lists the sizes of an architecture; see `mlp.Architecture`."""

    @property
    def variant(self) -> str: ...
    @property
    def groups(self) -> tuple[int, ...]: ...
    @property
    def n_conditions(self) -> int: ...
    @property
    def n_global(self) -> int: ...
    @property
    def n_local(self) -> tuple[int, ...]: ...
    @property
    def hidden(self) -> int: ...
    @property
    def local_hidden(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def rank(self) -> int: ...


class Sizes(NamedTuple):
    """Holds the sizes of an architecture, unchecked."""

    variant: str
    groups: tuple[int, ...]
    n_conditions: int
    n_global: int
    n_local: tuple[int, ...]
    hidden: int
    local_hidden: int
    width: int
    rank: int

    @property
    def n_latents(self) -> int:
        """The number of latents."""
        return self.n_global + sum(self.n_local)

    @classmethod
    def of(cls, code: Any) -> Sizes:
        """Returns the sizes that a code of backends holds."""
        variant, J, n_conditions, n_global, *others = map(int, code[:HEAD])
        groups, n_local = (tuple(map(int, code[i : i + J])) for i in (HEAD, HEAD + J))
        return cls(VARIANTS[variant], groups, n_conditions, n_global, n_local, *others)


def parts_of(a: Sized) -> dict[str, Part]:
    """Returns name -> part, in the order in which the parts stand."""
    parts, begin = dict[str, Part](), 0
    for name, layers in _layers(a):
        end = begin + sum(layer.n_parameters for layer in layers)
        parts[name] = Part(slice(begin, end), layers)
        begin = end
    return parts


def _layers(a: Sized) -> Iterator[tuple[str, tuple[Layer, ...]]]:
    J, c, p, d = len(a.groups), a.n_conditions, a.n_global, sum(a.groups)
    if a.variant == "multiplicative":
        R, net = a.rank, (Layer(a.width, c), Layer(a.rank, a.width))
        yield "global_encoder", (Layer(p, R * d, bias=False), Layer(p, R))
        yield "encoder_weights", net
        yield "decoder_weights", net
        for j, (d_j, q) in enumerate(zip(a.groups, a.n_local)):
            yield f"posterior[{j}]", (Layer(q, R * (d_j + p), bias=False), Layer(q, R))
            yield f"decoder[{j}]", (Layer(d_j, R * (p + q), bias=False),)
        return
    yield "global_encoder", _three(d + c, a.hidden, 2 * p)
    yield "global_decoder", (Layer(a.hidden, p + c), Layer(a.hidden, a.hidden))
    for j in range(J):
        d_j, q = a.groups[j], a.n_local[j]
        n_in = a.hidden + q + c
        yield f"prior[{j}]", _three(p + c, a.local_hidden, 2 * q)
        if a.variant == "printed":
            yield f"decoder[{j}]", (Layer(d_j, n_in),)
            continue
        yield f"posterior[{j}]", _three(d_j + p + c, a.local_hidden, 2 * q)
        yield f"decoder[{j}]", (Layer(a.local_hidden, n_in), Layer(d_j, a.local_hidden))


def _three(n_in: int, hidden: int, n_out: int) -> tuple[Layer, ...]:
    return Layer(hidden, n_in), Layer(hidden, hidden), Layer(n_out, hidden)


def matrices(flat: Numbers, layers: tuple[Layer, ...]) -> list[tuple[Numbers, Numbers | None]]:
    """Returns views of a part's layers: W (n_out, n_in), and b (n_out,) or None."""
    views, begin = list[tuple[Numbers, Numbers | None]](), 0
    for n_out, n_in, bias in layers:
        end = begin + n_out * n_in
        views.append((flat[begin:end].reshape(n_out, n_in), flat[end : end + n_out] if bias else None))
        begin = end + n_out * bias
    return views
