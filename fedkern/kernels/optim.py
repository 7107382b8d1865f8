"""Optimisers as single passes over a flat vector: a new state, and the step that is added to the parameters (ascent)."""

from __future__ import annotations

from ..arrays import Vector
from ._checks import NOT_NEGATIVE, POSITIVE, Domain, Together
from ._docs import documented
from ._record import F64, WITHOUT_NUMBA, Array, Kernel, Scalar

__all__ = ["adagrad", "adam"]

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # of Adam, where nobody says otherwise

_GRADIENT, _STEP = Array("gradient", ("k",), F64), Array("step", ("k",), F64)

_BETA = Domain("must be in [0, 1)", "0 <= x < 1", "float(x)")
_WORDS = {"gradient": "Gradient of the function that is to grow.", "learning_rate": "Length of the step."}

ADAM = Kernel(
    "optim.adam",
    __name__,
    purpose="One iteration of Adam with bias correction.",
    source="docs/spec/pvi.md, section 5; Kingma and Ba (2015), Algorithm 1",
    inputs=(Array("state", ("3", "k"), F64), _GRADIENT),
    outputs=(Array("new_state", ("3", "k"), F64), _STEP),
    scalars=(
        Scalar("learning_rate", POSITIVE),
        Scalar("beta1", _BETA, BETA1),
        Scalar("beta2", _BETA, BETA2),
        Scalar("epsilon", NOT_NEGATIVE, EPSILON),
    ),
    together=(
        Together(
            ("learning_rate", "beta1", "beta2", "epsilon"),
            "learning_rate > 0, 0 <= beta1 < 1, 0 <= beta2 < 1, epsilon >= 0, all finite",
        ),
    ),
    backends=WITHOUT_NUMBA,
    words=_WORDS
    | {
        "state": "Rows m, v and t, the number of iterations so far of each element; zeros at the start.",
        "beta1": "How much of m is kept.",
        "beta2": "How much of v is kept.",
        "epsilon": "Added to the root of v.",
        "new_state": "beta1 m + (1 - beta1) g, beta2 v + (1 - beta2) g^2, t + 1.",
        "step": "learning_rate m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon), of the new m, v and t.",
    },
    example="""
        >>> state, gradient = np.zeros((3, 2)), np.array([1.0, -4.0])
        >>> state, step = optim.adam(state, gradient, learning_rate=0.1)
        >>> step.round(6)
        array([ 0.1, -0.1])
    """,
)

ADAGRAD = Kernel(
    "optim.adagrad",
    __name__,
    purpose="One iteration of Adagrad.",
    source="docs/spec/pvi.md, section 5; Duchi, Hazan and Singer (2011)",
    inputs=(Array("state", ("1", "k"), F64), _GRADIENT),
    outputs=(Array("new_state", ("1", "k"), F64), _STEP),
    scalars=(Scalar("learning_rate", POSITIVE), Scalar("epsilon", NOT_NEGATIVE, 1e-10)),
    together=(Together(("learning_rate", "epsilon"), "learning_rate > 0 and epsilon >= 0, both finite"),),
    backends=WITHOUT_NUMBA,
    words=_WORDS
    | {
        "state": "Sums G of squared gradients so far; zeros at the start.",
        "epsilon": "Added to the root of G.",
        "new_state": "G + g^2.",
        "step": "learning_rate g / (sqrt(G) + epsilon), of the new G.",
    },
    example="""
        >>> state, gradient = np.zeros((1, 2)), np.array([1.0, -4.0])
        >>> state, step = optim.adagrad(state, gradient, learning_rate=0.1)
        >>> state
        array([[ 1., 16.]])
        >>> step.round(6)
        array([ 0.1, -0.1])
    """,
)


@documented(ADAM)
def adam(
    state: Vector,
    gradient: Vector,
    *,
    learning_rate: float,
    beta1: float = BETA1,
    beta2: float = BETA2,
    epsilon: float = EPSILON,
    out: tuple[Vector | None, Vector | None] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Vector, Vector]:
    """Makes one iteration of Adam with bias correction."""
    new_state, step = ADAM.compute(
        (state, gradient), out, n_threads, backend, learning_rate=learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon
    )
    return new_state, step


@documented(ADAGRAD)
def adagrad(
    state: Vector,
    gradient: Vector,
    *,
    learning_rate: float,
    epsilon: float = 1e-10,
    out: tuple[Vector | None, Vector | None] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Vector, Vector]:
    """Makes one iteration of Adagrad."""
    inputs = (state, gradient)
    new_state, step = ADAGRAD.compute(inputs, out, n_threads, backend, learning_rate=learning_rate, epsilon=epsilon)
    return new_state, step
