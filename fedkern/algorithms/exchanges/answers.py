"""Declares what each client answers for itself, once: the questions of a job before and after its rounds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...plain import Record
from ...privacy.certificate import find_problem
from ...privacy.masks import ROUND, WIDE
from ..core import tells
from ..core.exchange import DIGITS, LARGEST, MOST_ROWS, Answer, Ask, Conditions, Exchange, bounded, digits, rounded, small
from ..core.messages import RemoteFault
from ..core.until import Settlement
from .sums import SurvivalSums

# Certificates --------------------
# Asks every client, after the last round, how much privacy budget it has spent in this job.
#
# All numbers are functions of public ones.
#
# The server could count too, but only the client's budget knows its charges: a crash may have cost a charge, an update may have
# been shortened. The budget that the holder has spent in other jobs is not sent.


BYTES = 4096


@dataclass(frozen=True)
class Certificate(
    Answer,
    kind=5,
    tells=tells.Public(private="what it has spent, from public numbers"),
    name="certificates",
    ask=("AskCertificate", 4),
    dims={"certificate": BYTES},
    drops=True,  # budgets are spent: the result stands
):
    """Client to server: JSON with the fields of `privacy.certificate.FIELDS`, every one of its type and in its range."""

    text: Annotated[bytes, "certificate"]

    @classmethod
    def of(cls, certificate: Mapping[str, object]) -> Certificate:
        """Returns the message with a certificate."""
        plain = {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in certificate.items()}
        return cls(0, json.dumps(plain, allow_nan=False).encode())

    @property
    def content(self) -> Record:
        """The certificate; ValueError if it is no JSON."""
        try:
            certificate: Mapping[str, object] = json.loads(self.text)
        except RecursionError as fault:
            raise ValueError("too deep") from fault
        return certificate

    def wrong(self) -> str:
        """Returns the reason why it cannot be one: no JSON, a missing or unknown field, or a value that cannot be."""
        try:
            wrong = find_problem(self.content)
        except ValueError:
            wrong = ".text is not JSON"
        return f"its Certificate{wrong}" if wrong else ""


# Own models --------------------
# Checks, before a job whose log-likelihoods are computed by the holders' own packages, that everybody has the same package.
#
# The server sends the names of the parameters, in the order in which they travel; each client sends the distribution of its
# factory, and its version. Source: docs/how-to/own-model.md.


@dataclass(frozen=True)
class AskOwnModel(Ask, kind=228):
    """Server to client: the names of the parameters, in their order, as JSON."""

    names: Annotated[bytes, "names"]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names. Raises RemoteFault: they are none."""
        names = _read(self.names)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise RemoteFault("server: AskOwnModel.names are no list of texts")
        return tuple(names)


@dataclass(frozen=True)
class OwnModel(
    Answer,
    kind=229,
    tells=tells.Nothing(),
    name="own-models",
    ask=AskOwnModel,
    dims={"names": 1 << 15, "package": 512},  # bytes of the texts
    needs="nothing is computed yet; start again when it is back",
):
    """Client to server: the distribution of its factory, and its version, as JSON; whether it is installed from a folder that may
    change (1 or 0)."""

    package: Annotated[bytes, "package"]
    editable: int

    @property
    def said(self) -> tuple[str, str]:
        """The distribution and its version."""
        package = _read(self.package)
        assert isinstance(package, list)  # `wrong` has looked
        return str(package[0]), str(package[1])

    @classmethod
    def of(cls, distribution: str, version: str, *, editable: bool) -> OwnModel:
        """Returns the answer."""
        return cls(0, json.dumps([distribution, version]).encode(), int(editable))

    def wrong(self) -> str:
        """Returns the reason why this is no client's package, or "" if it can be."""
        package = _read(self.package)
        if not (isinstance(package, list) and len(package) == 2 and all(isinstance(part, str) for part in package)):
            return "its OwnModel.package is no distribution and version"
        return "" if self.editable in (0, 1) else "its OwnModel.editable is neither 0 nor 1"


def own_model_question(names: tuple[str, ...]) -> AskOwnModel:
    """Returns the question."""
    return AskOwnModel(0, json.dumps(names, ensure_ascii=False).encode())


def _read(text: bytes) -> object:
    """Returns the value of a JSON text, or None."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# Family --------------------
# Tells each client with which of several families the job goes on, as the evidence of all rows together has it.


@dataclass(frozen=True)
class TellFamily(Ask, kind=276):
    """Server to client: the number of the family, in the order in which they were tried."""

    number: int


@dataclass(frozen=True)
class FamilyHeard(Answer, kind=277, tells=tells.Nothing(), name="family", ask=TellFamily):
    """Client to server: the family has come."""


def family_heard(message: TellFamily, tried: int) -> FamilyHeard:
    """Returns a client's answer; `tried`: the number of families. Raises RemoteFault: no family has this number."""
    if not 0 <= message.number < tried:
        raise RemoteFault(f"server: its TellFamily has the number {message.number}, wanted 0 to {tried - 1}")
    return FamilyHeard(message.round)


# Settled --------------------
# Asks each client, after the rounds of an open variational job, for one bit: does its posterior still move?
#
# The bit is of `core.windows`: whether mean and sd of every unknown that only the client knows have settled.


@dataclass(frozen=True)
class Settled(
    Settlement,
    Exchange,
    kind=161,
    tells=tells.Bit(),
    name="settled",
    ask=("AskSettled", 160),
    masked=("masked_settled", 296),
    form=ROUND,
):
    """Client to server: 1 where they have, else 0."""

    def honest(self) -> Conditions:
        yield self.settled in (0, 1), f"is {self.settled}, wanted 0 or 1"


# Least-squares fits of sites --------------------
# Collects each client's least-squares estimates and standard errors, for a meta-analysis beside the hierarchical model.
#
# A job has to ask for it.


Columns = Annotated[NDArray[np.float64], "w"]


@dataclass(frozen=True)
class SiteFit(
    Answer,
    kind=46,
    tells=tells.Figure(),
    name="site-fits",
    ask=("AskFit", 45),
    needs="its own fit had not come; --resume goes on from the last checkpoint",
):
    """Client to server: slopes and standard errors on the data's scale; an error of 0 says that there is no estimate."""

    estimate: Columns
    error: Columns

    def leaving(self) -> SiteFit:
        """Returns it as it leaves: a missing estimate is NaN before."""
        known = np.isfinite(self.estimate) & np.isfinite(self.error)
        return SiteFit(0, np.where(known, self.estimate, 0.0), np.where(known, self.error, 0.0))

    def honest(self) -> Conditions:
        yield (self.error >= 0).all(), "has an error below 0"
        yield small(self.estimate, self.error), "is too large to be any"


# Site modes --------------------
# Collects, after a job that asks for it, the estimates that each client's rows give alone.
#
# Each client has computed the mode of its posterior, with the job's prior and without any other client's rows, and sends it with
# standard deviations, to three digits of these. It names single clients, so a holder's policy must allow it. Source:
# docs/spec/likelihood.md, section 5.


DIGITS_OF_SD = 3  # of a standard deviation: readers of the result see them, and all digits are equations for the rows


@dataclass(frozen=True)
class SiteMode(Answer, kind=211, tells=tells.Figure(), name="site-modes", ask=("AskSiteMode", 210), dims={"two": 2}, drops=True):
    """Client to server: coefficients on both scales where its own posterior is largest, and standard deviations there, 0 without
    a mode."""

    mode: Annotated[Array, "two d"]
    sd: Annotated[Array, "two d"]

    def leaving(self) -> SiteMode:
        """Returns it with standard deviations to three digits, and modes to the place of the last; zeros if a number is NaN."""
        mode, sd = self.mode, self.sd
        if not (np.isfinite(mode).all() and np.isfinite(sd).all() and (sd > 0).all()):
            return SiteMode(0, np.zeros_like(mode), np.zeros_like(sd))
        last = np.floor(np.log10(sd)).astype(int) - DIGITS_OF_SD + 1
        both = [[round(value, -place) for value, place in zip(of.ravel().tolist(), last.ravel().tolist())] for of in (mode, sd)]
        return SiteMode(0, *(np.array(values).reshape(mode.shape) for values in both))

    def honest(self) -> Conditions:
        yield small(self.mode, self.sd) and (self.sd >= 0).all(), "holds what is no number, or a standard deviation below 0"


# Hazard curves --------------------
# Collects, after the rounds of a Cox model, each client's cumulative baseline hazard at the times that the job names.
#
# Each client has drawn it at the draws of the posterior that it was sent, with random numbers of its own, and sends it to three
# digits, with the number of its rows; of a client without an event they are 0. Source: docs/spec/likelihood.md, section 9.


@dataclass(frozen=True)
class CumulativeHazards(
    Answer,
    kind=232,
    tells=tells.Sums(),
    name="hazard-curves",
    ask=SurvivalSums.ask,
    rounding={"hazards": digits(3)},
    drops=True,
    judges=True,
):
    """Client to server: number of its rows; its cumulative baseline hazard at the job's times (output.survival_at), drawn at each
    draw of the posterior."""

    rows: int
    hazards: Annotated[Array, "t times"]

    def honest(self) -> Conditions:
        """They are no more than a hundredth lower at a later time."""
        h = self.hazards
        possible = 0 <= self.rows <= MOST_ROWS and small(h) and (h >= 0).all()
        yield possible and (np.diff(h, axis=1) >= -0.01 * h[:, 1:]).all(), "are too large to be any, or fall with time"


# Log-likelihoods at draws --------------------
# Collects, after an open variational job, each client's log-likelihood at draws of the global unknowns from q.
#
# The draws are made of the job's seed and of q, so only the answers travel: one number for each draw, in thousandths of a nat. In
# a spatial fit every client has been told q(xi), and nobody is asked while something still moves; questions are of 1,000 draws
# each, and end when their weights say enough, or won't. With the answers the server weights its draws (`results.reweighed`).


PIECE = 1000  # draws of a question of a spatial fit
PIECES, OF_MANY, OF_SAMPLED = 10, 3, 2  # questions at most: of few global unknowns, of many, and where a client's own are drawn
MANY = 100


def pieces_of_draws(unknowns: int, *, integrated: bool) -> int:
    """Returns how many questions the clients of a spatial fit are asked at most: a draw takes a client about as long as a round.
    `unknowns`: P, global ones; `integrated`: whether clients' own unknowns are integrated out."""
    integrals = PIECES if unknowns <= MANY else OF_MANY
    return integrals if integrated else OF_SAMPLED


@dataclass(frozen=True)
class LogTerms(
    Answer,
    kind=166,
    tells=tells.AreaSums(where="with few areas"),
    name="terms",
    ask=("AskTerms", 165),
    masked=("masked_log_terms", 266),
    form=WIDE,
    dims={"draws": PIECE},
    rounding={"values": rounded},
    drops=True,
    judges=True,
    needs="its log-likelihoods had not come; --resume goes on from the last checkpoint",
):
    """Client to server: estimates of log p(y_j | xi), and nothing of its own unknowns, at the draws that all know; `round` is the
    number of the question."""

    values: Annotated[Array, "draws"]

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return dims["draws"]

    def numbers(self) -> Array:
        """Returns thousandths of a nat, whole numbers that are added exactly; NaN at a draw that cannot be."""
        return np.asarray(np.rint(np.where(self.values > -LARGEST / 2, self.values, np.nan) * 10**DIGITS))

    @classmethod
    def of_sum(cls, round: int, numbers: Array, dims: Mapping[str, int]) -> Self:
        """Returns the answer of all clients together."""
        return cls(round, rounded(numbers / 10**DIGITS))

    def wrong(self) -> str:
        """Returns the reason why it is no client's answer, or "" if it can be."""
        return "" if bounded(self.values) else "its log-likelihoods are too large to be any"
