"""Makes an HTML page and its pieces, from the templates beside this file: every text that is no piece is escaped."""

from __future__ import annotations

import hashlib
import math
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, cast

from ..errors import JobError
from ..printing import digits_of, printable_lines
from . import plots

if TYPE_CHECKING:
    from jinja2 import Environment

GLOSSARY = {
    "ELBO": "evidence lower bound: what variational inference maximises. The larger, the nearer the fit to the posterior.",
    "ESS": "effective sample size: how many independent draws would tell a mean as well as the chains do.",
    "R-hat": "compares each chain with all of them. It is 1 where they agree; below 1.01 is wanted.",
    "PIP": "posterior inclusion probability: that a coefficient is in the slab, hence not close to zero.",
    "elpd": "expected log predictive density: of areas (or rows) that are foreseen without themselves, summed. More is better.",
    "PIT": "probability integral transform: where an observation lies in its own forecast, from 0 (below all) to 1 (above all).",
    "k-hat": "shape of the tail of importance weights. Below 0.7 what they say can be trusted.",
    "q": "the approximation that the fit has found, in which the posterior is sought.",
    "I²": "the share of differences between clients' estimates that chance does not explain.",
    "KL": "Kullback-Leibler divergence: how far a distribution is from another one, in nats.",
    "Brier score": "mean square of probability less outcome; 0 is perfect, and always saying 1/2 has 0.25.",
    "theta": "the coefficients that all clients have in common.",
}


def document(title: str, sections: Iterable[str], **head: object) -> str:
    """Returns the whole page: `head` has its word, mood, verdict, doubt, labels, tiles and notes."""
    inside, notes = [part for part in sections if part], cast(Iterable[object], head.get("notes", ()))
    # Explain only the words that the page uses; letters in drawings are none.
    text = re.sub(r"<svg.*?</svg>|<pre>.*?</pre>", "", " ".join([*inside, *map(str, notes)]), flags=re.DOTALL)
    words = {word: meaning for word, meaning in GLOSSARY.items() if re.search(rf"(?<!\w){word}(?!\w)", text)}
    inside += [section("Words", piece("glossary", words))] if words else []
    return _templates().get_template("page.html").render(title=title, sections=inside, policy=_policy(), **head)


def section(title: str, *parts: str) -> str:
    """Returns a box with a title; nothing where it would be empty. Parts are pieces, or texts: each is a paragraph."""
    return piece("section", title, parts) if any(parts) else ""


def figure(title: str, drawn: plots.Figure | None, text: str, *more: str) -> str:
    """Returns a box with a figure and a text under it; nothing without a figure."""
    if drawn is None:
        return ""
    shown = piece("drawing", markup(plots.svg(drawn)), f"{title}. {text}")  # drawn here, with names as outlines of letters
    return section(title, shown, paragraph(text), *more)


def paragraph(text: str, kind: str = "muted") -> str:
    """Returns a text that is "muted", or a "note" that stands out."""
    return piece("paragraph", text, kind)


def details(title: str, *parts: str) -> str:
    """Returns parts that unfold under a title."""
    return piece("details", title, parts)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table of texts."""
    return piece("table", head, [*rows])


def piece(name: str, *arguments: object) -> str:
    """Returns a macro of pieces.html; a piece is put into others without being escaped."""
    made: str = getattr(_templates().get_template("pieces.html").module, name)(*arguments)
    return made


def markup(text: str) -> str:
    """Marks a text of this package as a piece that is not escaped: never one that somebody may have named."""
    from markupsafe import Markup

    return Markup(text)


def number(value: object, digits: int = 4) -> str:
    """Formats a number with so many digits, and thousands apart."""
    if isinstance(value, float):
        return "∞" if math.isinf(value) else f"{value:.{digits}g}".replace("-", "−")
    return f"{value:,}" if isinstance(value, int) else str(value)


def numbers_of(row: Mapping[str, object], keys: Iterable[str] | None = None) -> list[str]:
    """Formats values of a row, by default all, with as many digits as its interval needs."""
    digits = digits_of(row)
    return [number(row[key], digits) for key in (row if keys is None else keys)]


@cache
def _policy() -> str:
    """Returns the policy by which a browser allows a page no script and fetches nothing, whatever should get into it.

    It allows the page's style sheet alone, attributes (of the figures), and pictures that are inside the page. (`style-src` is
    for browsers that know only this directive.)
    """
    sheet = b64encode(hashlib.sha256(_templates().get_template("style.css").render().encode()).digest()).decode()
    styles = f"style-src 'unsafe-inline'; style-src-elem 'sha256-{sheet}'; style-src-attr 'unsafe-inline'"
    return f"default-src 'none'; {styles}; img-src data:; base-uri 'none'; form-action 'none'"


@cache
def _templates() -> Environment:
    """Loads the templates, which show no character that turns or hides the text beside it."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise JobError(f"pages need jinja2 ({error}): pip install 'fedkern[results]'") from None
    return Environment(
        loader=PackageLoader("fedkern.results"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=lambda value: printable_lines(value) if type(value) is str else value,
    )
