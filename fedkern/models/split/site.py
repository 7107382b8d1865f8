"""Computes the parts of a client and of the server in regression models whose covariates are split over clients.

z_j = g_j + N(0, sd rho) are auxiliary copies of the clients' parts g_j of the linear predictor. With them

* AV: log p(y, z, theta) = sum_i l(y_i, b + o_i + sum_j z_ij) + sum_j [log N(z_j; g_j, sd rho) + log p(theta_j)] + log p(b, gamma)
* PL: (1/J) sum_j sum_i l(y_i, b + o_i + g_ij + sum_(k != j) z_ik) in the place of the first term.

A client's parameters are ONE flat vector; everything here is a pure function of it, of normal numbers and of a message. The same
draw of theta and z must be used for the message and for the gradient. rho, and every `sd`, is a standard deviation. Source:
docs/spec/vertical.md, sections 2, 4, 5 and 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from ...arrays import Indices, Matrix, Vector
from ...kernels import augmented, mlp
from ...kernels.bound import Bound
from ..likelihood import HALF_LOG_TAU, Likelihood
from ..variational import Block
from .predictors import Linear, Multilevel, Network, Predictor, start

__all__ = ["Auxiliary", "Drawn", "Likelihood", "Linear", "Multilevel", "Network", "Predictor", "Shared", "Site", "start"]


@dataclass(frozen=True)
class Auxiliary:
    """Describes the variational family of z_j."""

    # "mean-field", "amortised" (a network gives mean and sd of z_ij from g_ij), or "none": z_j = g_j and a point estimate of
    # theta_j, the plain split network
    kind: str
    rho: float = 1.0  # standard deviation of z_ij about g_ij
    hidden: tuple[int, ...] = (16, 16)  # sizes of the network's hidden layers, tanh
    # of the network beside g_ij: "response" y_i, "residual" the average of the messages that have come, "centre" g_ij at the mean
    # of theta_j (the best conditional mean of z moves less than g does within q(theta), and with it between rows: one function of
    # g alone cannot do both)
    inputs: tuple[str, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the network."""
        return (1 + len(self.inputs), *self.hidden, 2)


@dataclass(slots=True)
class Drawn:
    """Holds one joint draw of a client: z, which is sent, and all that its gradient needs.

    `index`: the rows of a batch, None for all.

    It is never changed, but not frozen either: one is made in every round.
    """

    eps: Vector
    tau: Vector
    theta: Vector
    w: Vector
    H: Matrix
    g: Vector
    z: Vector
    extra: Matrix
    index: Indices | None = None


@dataclass(frozen=True)
class Site:
    """Computes one client's part."""

    predictor: Predictor  # g_j as a function of theta_j (and of a network's weights phi_j)
    auxiliary: Auxiliary  # the family of z_j
    full: bool = False  # whether q(theta_j) has a full covariance
    path: bool = True  # sticking-the-landing gradients, or the closed-form entropy
    _bound: Bound[augmented.Iterations] = field(default_factory=Bound, init=False, repr=False, compare=False)

    @property
    def point(self) -> bool:
        """Whether theta is a point estimate without a prior, and z = g."""
        return self.auxiliary.kind == "none"

    @cached_property
    def block(self) -> Block:
        """q(theta_j)."""
        return Block(self.predictor.n_theta, self.full)

    @cached_property
    def parts(self) -> dict[str, slice]:
        """The place of each name in the flat parameters: theta (of q(theta)), phi, and mean and log_sd, or psi, of z."""
        n = self.predictor.n_rows
        n_theta = self.predictor.n_theta if self.point else self.block.n_parameters
        sizes = {"theta": n_theta, "phi": self.predictor.n_phi}
        if self.auxiliary.kind == "mean-field":
            sizes |= {"mean": n, "log_sd": n}
        elif self.auxiliary.kind == "amortised":
            sizes |= {"psi": mlp.n_parameters(self.auxiliary.sizes)}
        ends = np.cumsum(list(sizes.values())).tolist()
        return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends)}

    @property
    def n_parameters(self) -> int:
        """The length of the flat parameters."""
        return int(list(self.parts.values())[-1].stop)

    @property
    def n_uniforms(self) -> int:
        """The number of uniform numbers that `initial` takes."""
        psi = self.parts.get("psi", slice(0, 0))
        return int(self.predictor.n_theta + self.predictor.n_phi + psi.stop - psi.start)

    def initial(self, uniforms: Vector, sd: float = 0.1) -> Vector:
        """Returns the start of the parameters: q(theta) narrow, q(z) at its prior conditional, networks at random."""
        n = self.predictor.n_theta + self.predictor.n_phi
        theta, phi = self.predictor.initial(uniforms[:n])
        out = np.zeros(self.n_parameters)
        out[self.parts["theta"]] = theta if self.point else self.block.initial(theta, sd)
        out[self.parts["phi"]] = phi
        if "log_sd" in self.parts:
            out[self.parts["log_sd"]] = np.log(self.auxiliary.rho)
        if "psi" in self.parts:
            psi = start(self.auxiliary.sizes, uniforms[n:])
            psi[-2 * (self.auxiliary.sizes[-2] + 1) :] = 0.0  # the last layer: z starts at its prior conditional
            out[self.parts["psi"]] = psi
        return out

    def place(self, parameter: int) -> str:
        """Returns the owner of a parameter, for people: "theta", "z of row 17", "layer 2 of the network of z"."""
        name, part = next((name, part) for name, part in self.parts.items() if part.start <= parameter < part.stop)
        offset = parameter - part.start
        if name in ("mean", "log_sd"):
            return f"the {name.replace('_', ' ')} of z of row {offset}"
        if name == "theta":
            return "theta"
        sizes = self.auxiliary.sizes if name == "psi" else getattr(self.predictor, "sizes", ())
        ends = np.cumsum([(a + 1) * b for a, b in pairwise(sizes)])
        network = "z" if name == "psi" else "g"
        return f"layer {int(np.searchsorted(ends, offset, side='right')) + 1} of the network of {network}"

    def columns(self, index: Indices | None) -> Indices | None:
        """Returns the parameters that a batch of rows touches; None for all."""
        if index is None or "mean" not in self.parts:
            return None
        head = np.arange(self.parts["mean"].start)
        return np.concatenate([head, self.parts["mean"].start + index, self.parts["log_sd"].start + index])

    def draw(self, parameters: Vector, eps: Vector, tau: Vector, extra: Matrix, index: Indices | None = None) -> Drawn:
        """Makes one draw of (theta_j, z_j).

        Parameters
        ----------
        parameters : (n_parameters,)
        eps, tau : (n_theta,), (n,) standard normal numbers
        extra : (n, e) inputs of the network beside g, of the rows of `index`
        index : rows of a batch, None for all; n is their number
        """
        predictor = self.predictor if index is None else self.predictor.rows(index)
        a, parts = self.auxiliary, self.parts
        H = predictor.design(parameters[parts["phi"]])
        theta = parameters[parts["theta"]] if self.point else self.block.sample(parameters[parts["theta"]], eps)
        w = predictor.coefficients(theta)
        if a.kind == "none":
            g = z = H @ w
        elif a.kind == "mean-field":
            mean, log_sd = self._rows(parameters, index)
            g, z = augmented.mean_field_draw(H, w, tau, mean, log_sd)
        else:
            g, z = augmented.amortised_draw(H, w, tau, extra, parameters[parts["psi"]], rho=a.rho, hidden=a.hidden)
        return Drawn(eps, tau, theta, w, H, g, z, extra, index)

    def _rows(self, parameters: Vector, index: Indices | None) -> tuple[Vector, Vector]:
        mean, log_sd = parameters[self.parts["mean"]], parameters[self.parts["log_sd"]]
        return (mean, log_sd) if index is None else (mean[index], log_sd[index])

    def gradient(
        self, parameters: Vector, drawn: Drawn, message: Vector, own_part: Vector | None = None, factor: float = 1.0
    ) -> Vector:
        """Returns the gradient of the ELBO in the parameters of `columns(drawn.index)`, in this order.

        Parameters
        ----------
        message : (n,) the part of dL/dz_j that others know: AV r; PL R - rho_j
        own_part : (n,) PL: rho_j, the part that enters through g_j; None for AV
        factor : all rows over the rows of the batch
        """
        a, parts, d = self.auxiliary, self.parts, drawn
        predictor = self.predictor if d.index is None else self.predictor.rows(d.index)
        rows: tuple[Vector, ...] = ()
        if a.kind == "none":
            cotangent = message
            grad_w = d.H.T @ cotangent
        elif a.kind == "mean-field":
            _, log_sd = self._rows(parameters, d.index)
            grad_w, cotangent, *rows = augmented.mean_field_gradient(
                d.H, d.g, d.z, d.tau, log_sd, message, own_part, rho=a.rho, path=self.path
            )  # type: ignore[assignment]
        else:
            psi = parameters[parts["psi"]]
            grad_w, cotangent, grad_psi = augmented.amortised_gradient(
                d.H, d.g, d.z, d.tau, d.extra, psi, message, own_part, rho=a.rho, hidden=a.hidden, path=self.path
            )
            of_psi = factor * grad_psi if factor != 1 else grad_psi
            rows = (of_psi,)
        if factor != 1:
            grad_w = factor * grad_w
        c = predictor.pull(d.theta, grad_w)
        if self.point:
            head = c
        else:
            head = self.block.gradient(parameters[parts["theta"]], d.eps, c + predictor.grad_prior(d.theta), path=self.path)
        if predictor.n_phi:
            phi = parameters[parts["phi"]]
            grad_phi = factor * predictor.phi_gradient(phi, d.w, cotangent) - self.predictor.phi_precision * phi
            return np.concatenate([head, grad_phi, *rows])
        return np.concatenate([head, *rows])

    @property
    def plain(self) -> bool:
        """Whether the site has `iterated`: w is theta, and with a network as design the family is amortised."""
        if isinstance(self.predictor, Network):
            return self.auxiliary.kind == "amortised"
        return isinstance(self.predictor, Linear) and not self.point

    def iterated(
        self, parameters: Vector, moments: Vector, drawn: Drawn, message: Vector, extra: Matrix, learning_rate: float,
        *, seed: int, client: int, step: int,
    ) -> tuple[Vector, Vector, Drawn]:  # fmt: skip
        """Runs a gradient, a step of Adam and the next draw in one compiled call: the parameters, Adam's state, the draw.

        Parameters
        ----------
        moments : (3, n_parameters) Adam's state
        message : as of `gradient`, without `own`, for all rows
        extra : (n, e) of the next draw; the centre's column is not read
        seed, client, step : of its normal numbers
        """
        a, d, predictor = self.auxiliary, drawn, self.predictor
        H = d.H
        centre = a.inputs.index("centre") if "centre" in a.inputs else None
        arrays: tuple[Vector, ...] = (d.H, parameters, moments, d.eps, d.tau, d.theta, d.g, d.z, message)
        if isinstance(predictor, Network):
            arrays = (*arrays, d.extra, extra)
            iteration = self._bound.of(self, lambda: augmented.bind_network_iteration(
                predictor.X, predictor.phi_precision, *arrays, rho=a.rho, hidden=a.hidden, sizes=predictor.sizes,
                activation=predictor.activation, path=self.path, full=self.full, centre=centre, seed=seed, client=client,
            ), seed, client)  # fmt: skip
            H, parameters, moments, eps, tau, theta, g, z, extra = iteration(*arrays, learning_rate, step)
            return parameters, moments, Drawn(eps, tau, theta, theta, H, g, z, extra)
        assert isinstance(predictor, Linear)
        mean, sd = predictor.prior_mean, predictor.prior_sd
        if a.kind == "mean-field":
            iteration = self._bound.of(self, lambda: augmented.bind_mean_field_iteration(
                *arrays, rho=a.rho, prior_mean=mean, prior_sd=sd, path=self.path, full=self.full, seed=seed, client=client,
            ), seed, client)  # fmt: skip
            parameters, moments, eps, tau, theta, g, z = iteration(*arrays, learning_rate, step)
        else:
            arrays = (*arrays, d.extra, extra)
            iteration = self._bound.of(self, lambda: augmented.bind_amortised_iteration(
                *arrays, rho=a.rho, hidden=a.hidden, prior_mean=mean, prior_sd=sd, path=self.path, full=self.full,
                centre=centre, seed=seed, client=client,
            ), seed, client)  # fmt: skip
            parameters, moments, eps, tau, theta, g, z, extra = iteration(*arrays, learning_rate, step)
        return parameters, moments, Drawn(eps, tau, theta, theta, H, g, z, extra)

    def bound(self, parameters: Vector, drawn: Drawn, factor: float = 1.0) -> float:
        """Returns this client's terms of the ELBO at a draw: log N(z; g, sd rho) + log p(theta) - log q(theta) - log q(z |
        theta).

        If phi has a prior of precision P, -phi' P phi / 2 is added, without its constant.
        """
        phi = parameters[self.parts["phi"]]
        point = -0.5 * float(self.predictor.phi_precision @ phi**2)
        if self.point:
            return point
        a, d = self.auxiliary, drawn
        amortised = a.kind == "amortised"
        log_sd = self._log_sd(self._outputs(parameters, d.g, d.extra)) if amortised else self._rows(parameters, d.index)[1]
        r = (d.z - d.g) / a.rho
        rows = -0.5 * (r @ r) - len(r) * np.log(a.rho) + log_sd.sum() + 0.5 * (d.tau @ d.tau)
        theta = self.predictor.log_prior(d.theta) - self.block.log_density(parameters[self.parts["theta"]], d.eps)
        return float(factor * rows + theta) + point

    def _conditional(self, parameters: Vector, g: Vector, extra: Matrix) -> tuple[Vector, Vector]:
        """Returns mean and log sd of q(z_i | theta) of an amortised family."""
        o = self._outputs(parameters, g, extra)
        return g + o[:, 0], self._log_sd(o)

    def _outputs(self, parameters: Vector, g: Vector, extra: Matrix) -> Matrix:
        """Returns the outputs (n, 2) of the network of an amortised family."""
        a, inputs = self.auxiliary, np.empty((len(g), 1 + extra.shape[1]))
        inputs[:, 0], inputs[:, 1:] = g, extra
        return mlp.forward(inputs, parameters[self.parts["psi"]], sizes=a.sizes, activation="tanh")

    def _log_sd(self, outputs: Matrix) -> Vector:
        log_sd: Vector = np.log(self.auxiliary.rho) + np.minimum(np.maximum(outputs[:, 1], -8.0), 4.0)
        return log_sd

    def mean_z(self, parameters: Vector, extra: Matrix) -> Vector:
        """Returns E z_j (n,); for an amortised family at the mean of theta."""
        if self.auxiliary.kind == "mean-field":
            return parameters[self.parts["mean"]].copy()
        g = self.mean_g(parameters)
        return g if self.point else self._conditional(parameters, g, extra)[0]

    def mean_g(self, parameters: Vector) -> Vector:
        """Returns g_j (n,) at the mean of theta."""
        w = self.predictor.coefficients(parameters[self.parts["theta"]][: self.predictor.n_theta])
        H, nothing = self.predictor.design(parameters[self.parts["phi"]]), np.zeros(self.predictor.n_rows)
        return augmented.mean_field_draw(H, w, nothing, nothing, nothing)[0]  # the bits of `iterated`

    def predicted(self, parameters: Vector, predictor: Predictor, normals: Matrix) -> tuple[Vector, Vector]:
        """Returns mean and variance (n,) of g_j at new rows under q(theta_j).

        They are exact if g is linear in theta; if not (multilevel), over the draws that `normals` (s, n_theta) give.
        """
        H, part = predictor.design(parameters[self.parts["phi"]]), parameters[self.parts["theta"]]
        if self.point:
            return H @ predictor.coefficients(part), np.zeros(len(H))
        if isinstance(predictor, Multilevel):
            g = self.sampled(parameters, predictor, normals)
            return g.mean(axis=1), g.var(axis=1)
        scale = self.block.scale(part)
        half = H @ scale if self.full else H * scale
        return H @ part[: self.predictor.n_theta], np.einsum("ij,ij->i", half, half)

    def sampled(self, parameters: Vector, predictor: Predictor, normals: Matrix) -> Matrix:
        """Returns (n, s) values of g_j at new rows, at the draws of theta_j that `normals` (s, n_theta) give."""
        H, part = predictor.design(parameters[self.parts["phi"]]), parameters[self.parts["theta"]]
        draws = [predictor.coefficients(part if self.point else self.block.sample(part, e)) for e in normals]
        return H @ np.array(draws).T


@dataclass(frozen=True)
class Shared:
    """Computes the server's part: q(b), q(log sigma), and slopes of the likelihood."""

    likelihood: Likelihood  # of y
    # n_rows, n_clients: N, J
    n_rows: int
    n_clients: int
    intercept: bool = True  # whether the model has b ~ N(prior_mean, prior_sd^2)
    prior_sd: float = 1.0
    path: bool = True  # as of `Site`
    # PL with unknown sigma: rho, to subtract in closed form PL's addition to log sigma's prior (section 3); else None
    power_rho: float | None = None
    prior_mean: float = 0.0
    scale_sd: float = 1.0  # of a gaussian response's unknown sigma: sigma / scale_sd ~ HalfNormal(1)

    @cached_property
    def block(self) -> Block:
        """q(b, log sigma), diagonal."""
        return Block(int(self.intercept) + int(self.likelihood.dispersed))

    def split(self, values: Vector) -> tuple[float, float]:
        """Returns b and log sigma of a draw, each 0 if the model lacks it."""
        b = float(values[0]) if self.intercept else 0.0
        log_scale = float(values[-1]) if self.likelihood.dispersed else 0.0
        return b, log_scale

    def slope(self, y: Vector, eta: Vector, log_scale: float) -> tuple[Vector, float]:
        """Returns l'(y_i, eta_i) of each row, and the sum of d l / d log sigma, or 0 without sigma."""
        r = self.likelihood.slope(y, eta, log_scale)
        by_scale = float(self.likelihood.slope_scale(y, eta, log_scale).sum()) if self.likelihood.dispersed else 0.0
        return r, by_scale

    def initial(self, sd: float) -> Vector:
        """Returns the start of q(b, log sigma): b about its prior's mean."""
        return self.block.initial(np.array([self.prior_mean] * self.intercept + [0.0] * self.likelihood.dispersed), sd)

    def gradient(self, parameters: Vector, eps: Vector, values: Vector, slopes: float, scales: float) -> Vector:
        """Returns the gradient of the ELBO in the block's parameters. `eps`, `values`: (d,) the normals of a draw and the draw;
        `slopes`, `scales`: sums over all N rows of d l / d eta and of d l / d log sigma."""
        c = np.empty(self.block.size)
        if self.intercept:
            c[0] = slopes - (values[0] - self.prior_mean) / self.prior_sd**2
        if self.likelihood.dispersed:
            w = float(values[-1])
            c[-1] = scales + self._scale_prior(w)[1] + self._correction(w)[1]
        return self.block.gradient(parameters, eps, c, path=self.path)

    def _scale_prior(self, log_scale: float) -> tuple[float, float]:
        """Returns the log-density of log sigma under its prior, and the derivative."""
        return self.likelihood.unknown.prior(log_scale - math.log(self.scale_sd))

    def _correction(self, log_scale: float) -> tuple[float, float]:
        """Returns N (J - 1) / 2 log(1 + rho^2 / (J sigma^2)) and its derivative in log sigma, which take the factor of PL
        away."""
        if self.power_rho is None:
            return 0.0, 0.0
        t = self.power_rho**2 * float(np.exp(-2 * log_scale)) / self.n_clients
        half = 0.5 * self.n_rows * (self.n_clients - 1)
        return half * float(np.log1p(t)), -2 * half * t / (1 + t)

    def bound(self, parameters: Vector, eps: Vector, values: Vector) -> float:
        """Returns log p(b, log sigma) - log q(b, log sigma) at a draw, with the correction of PL."""
        value = -self.block.log_density(parameters, eps)
        if self.intercept:
            far = (float(values[0]) - self.prior_mean) / self.prior_sd
            value += -0.5 * far**2 - float(np.log(self.prior_sd)) - float(HALF_LOG_TAU)
        if self.likelihood.dispersed:
            value += self._scale_prior(float(values[-1]))[0] + self._correction(float(values[-1]))[0]
        return value
