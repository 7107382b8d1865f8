"""Files that differ in one line, through whole jobs without noise: what a client sends moves by at most the clip.

What `test_neighbours` shows of one step, here from the file on: parsing, levels, standardising, weights and offsets included.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.pvi.messages import Gradient
from fedkern.methods.pvi import model
from fedkern.transports.driver import ServerSide
from support.sources import Silent

CLIP = 1.0
COLUMNS = {"age": {"kind": "numeric", "center": 40, "scale": 14}, "sex": {"levels": ["f", "m"]}, "y": {"levels": ["no", "yes"]}}
JOB = {
    "job": {"rounds": 2},
    "data": {"clients": ["*.csv"], "response": "y", "positive": "yes", "offset": "o", "weight": "w", "columns": COLUMNS},
    "algorithm": {
        "variant": "global-vi",
        "optimiser": "sgd",
        "learning_rate": 1e-9,
    },  # so that the second round is the first again
    "privacy": {"epsilon": 4.0, "delta": 1e-5, "clip": CLIP, "noise_multiplier": 8.0, "sampling": "full"},
}
BASE = [f"{20 + 7 * i % 50},{'fm'[i % 2]},{0.1 * (i % 3):.1f},{1 + i % 2},{['no', 'yes'][i % 3 == 0]}" for i in range(12)]
LINES = """
40,f,0,1,no; 40,m,0,1,yes; 95,f,0,1,yes; -1e6,m,0,1,no; 1e200,f,0,1,no; 1e308,m,0,1,yes; 1e400,f,0,1,no; 0040,f,0,1,no
nan,f,0,1,no; inf,m,0,1,no; ,f,0,1,no; forty,f,0,1,no; 40,x,0,1,no; 40,,0,1,no; 40,f,0,1,maybe; 40,f,0,1,; "40",f,0,1,no
40,f,1e5,1,no; 40,f,-1e5,1,yes; 40,f,nan,1,no; 40,f,,1,no; 40,f,0,1e9,no; 40,f,0,1e308,yes; 40,f,0,0,no; 40,f,0,-3,no
40,f,0,nan,no; 40,f,0,,no; 40,f; 40,f,0,1,no,more; ''; x
"""
LINES = [line.strip() for line in LINES.strip().replace("\n", ";").split(";")]


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """What the clients of a job with these lines send: (client, round) -> numbers."""
    answers: dict[tuple[str, ...], dict[tuple[int, int], np.ndarray]] = {}

    def run(lines):
        key = tuple(lines)
        if key not in answers:
            folder, seen = tmp_path_factory.mktemp("job"), {}
            for name, content in (("a", lines), ("b", BASE)):
                (folder / f"{name}.csv").write_text("\n".join(["age,sex,o,w,y", *content, ""]))
            with pytest.MonkeyPatch.context() as patch:
                real = ServerSide.feed

                def feed(self, sender, event):
                    if isinstance(event, Gradient):
                        seen[sender, event.round] = np.concatenate([event.mu, event.omega])
                    return real(self, sender, event)

                patch.setattr(ServerSide, "feed", feed)
                patch.setattr(model, "SecureSource", Silent)
                for variable in ("HOME", "FEDKERN_CLIENT_HOME"):
                    patch.setenv(variable, str(folder / "home"))
                clients = {"clients": [str(folder / "*.csv")]}
                fedkern.run(JOB, data=clients)
            answers[key] = seen
        return answers[key]

    return run


@pytest.mark.parametrize("base", [BASE, []], ids=["rows", "no rows"])
def test_one_line_more_moves_a_message_by_at_most_the_clip(sent, base):
    before, largest = sent(base), 0.0
    for line in LINES:
        after = sent([*base, line])
        assert after.keys() == before.keys()
        for key, message in after.items():
            moved = np.linalg.norm(message - before[key])
            assert np.isfinite(message).all(), line
            allowed = CLIP if key[0] == 0 else 0.0
            assert moved <= allowed + 1e-6 * key[1], line
            largest = max(largest, moved)
    assert largest > 0.99 * CLIP


def test_where_a_line_stands_does_not_matter(sent):
    """Not even one that cannot be read: the sum is that of the other lines, whatever their order."""
    first = sent(BASE)[0, 0]
    for lines in ([*BASE[5:], *BASE[:5]], ["nan,f,0,1,no", *BASE], [*BASE[:3], "40,x,0,1,no", *BASE[3:]]):
        np.testing.assert_array_equal(sent(lines)[0, 0], first)


def test_negative_control_columns_standardised_by_the_rows(sent, monkeypatch):
    """A mean over rows moves every row's gradient."""
    from fedkern.methods.pvi import run as pvi_run

    real = pvi_run._rows

    def standardised(design):
        rows = real(design)
        X = np.nan_to_num(rows.X, posinf=0, neginf=0)
        return type(rows)(X - X.mean(axis=0), rows.y, rows.offset, rows.weights)

    monkeypatch.setattr(pvi_run, "_rows", standardised)
    moved = [
        np.linalg.norm(sent([*BASE, line, *4 * [line]])[0, 0] - sent([*BASE, *4 * [line]])[0, 0])
        for line in itertools.islice(LINES, 4)
    ]
    assert max(moved) > CLIP
