"""Each kind of page in a browser, on a narrow and on a wide screen, light and dark: nothing sticks out, nothing is illegible."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedkern
from fedkern.cli.report import write
from support import sigma_artifacts as artifacts
from support.browser import CHROMIUM, Browser
from support.golden_jobs import golden_jobs

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH: pages are not looked at"),
    pytest.mark.xdist_group("browser"),
]
ODD = "<script>document.title='stolen'</script>"
QUOTED = "a\"b' onload=x"
WIDTHS, SCHEMES = (400, 1200), ("light", "dark")
# Text by text: its contrast (WCAG 2) with the nearest background that is one. In figures, letters on coloured cells are left out.
MEASURE = """
(() => {
  const channel = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = numbers(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const low = [], look = (e, colour, least, text) => {
    const [a, b] = [light(numbers(colour)), light(behind(e))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < least) low.push(`${contrast.toFixed(2)}: ${text}`);
  };
  for (const e of document.querySelectorAll("body *:not(svg *)")) {
    const own = [...e.childNodes].filter(n => n.nodeType == 3).map(n => n.data.trim()).join("");
    if (own) look(e, getComputedStyle(e).color, 4.5, own);
  }
  for (const e of document.querySelectorAll("svg g[id^=text_] g")) {
    const fill = getComputedStyle(e).fill;
    if (!["rgb(255, 255, 255)", "rgb(17, 24, 39)"].includes(fill)) look(e, fill, 3, "in a figure, " + e.parentElement.id);
  }
  const root = document.documentElement;
  const cut = [...document.querySelectorAll("section")].filter(s => /^(Privacy|On the wire)/.test(s.innerText))
    .flatMap(s => [...s.querySelectorAll(".scroll")]).filter(t => t.scrollWidth > t.clientWidth).length;
  const wordless = [...document.querySelectorAll("svg, img")]
    .filter(e => !(e.getAttribute("alt") || e.querySelector(":scope > title")?.textContent.trim())).length;
  return {low, cut, wordless, beyond: root.scrollWidth - root.clientWidth, title: document.title,
          pictures: document.querySelectorAll("svg").length, texts: document.body.innerText.length};
})()
"""
PAGES = {"pvi open": 3, "pvi private": 3, "regression": 2, "mrf": 1, "sem": 1, "vertical": 2, "sigma": 3, "sigma client": 2}


def made(folder: Path) -> dict[str, Path]:
    """The folders of a run of each kind."""
    jobs = golden_jobs()
    for name, write_files in jobs.FOLDERS.items():
        if name != "sigma":
            write_files(folder / name)
    for path in [*(folder / "pvi" / "rows").iterdir(), folder / "pvi" / "test.csv"]:
        header, rest = path.read_text().split("\n", 1)
        path.write_text(f"{header.replace('x', ODD).replace('z', json.dumps(QUOTED).replace(chr(92), chr(34)))}\n{rest}")
    (folder / "pvi" / "rows" / "ada.csv").rename(folder / "pvi" / "rows" / "<img src=x onerror=alert(1)>.csv")
    private = folder / "pvi" / "private-bernoulli.toml"
    text = private.read_text().replace("columns.x]", f"columns.{json.dumps(ODD)}]")
    private.write_text(text.replace("columns.z]", f"columns.{json.dumps(QUOTED)}]"))
    places = [f"{name}-{i}" for name, size in zip(artifacts.NAMES, artifacts.SIZES) for i in range(size)]
    (folder / "sigma").mkdir()
    features = {"type": "FeatureCollection", "features": [*map(cell, range(len(places)), places)]}
    (folder / "sigma" / "map.geojson").write_text(json.dumps(features))
    artifacts.written(folder / "sigma" / "prior", "multiplicative")
    artifacts.counts(folder / "sigma" / "rows")
    (folder / "sigma" / "map.toml").write_text(
        '[job]\nmethod = "sigma"\nrounds = 60\nseed = 3\n[data]\nclients = "rows/*.csv"\narea = "district"\nresponse = "cases"\n'
        'exposure = "expected"\npolygons = "map.geojson"\n[model]\nprior = "prior"\n[output]\nmetrics_every = 5\nchains = 2\n'
    )
    share = {"algorithm": {"share_local": True}}
    runs: dict[str, tuple[str, dict[str, Any]]] = {
        "pvi open": ("pvi/bernoulli", {}),
        "pvi private": ("pvi/private-bernoulli", {"privacy": {"sampling_rate": 0.2}}),
        "regression": ("sparse/regression", share),
        "mrf": ("sparse/mrf", {}),
        "sem": ("sparse/sem", {}),
        "vertical": ("vertical/open", {"data": {"holdout": 0.3}}),
        "sigma": ("sigma/map", {}),
    }
    out = {name: folder / name for name in runs}
    for name, (path, changes) in runs.items():
        fedkern.run(folder / f"{path}.toml", out=out[name], **changes)
    return {**out, "sigma client": out["sigma"] / f"client-{artifacts.NAMES[0]}"}


def cell(k: int, name: str) -> dict[str, Any]:
    """A square of a map, of 0.1 degrees."""
    x, y = 0.1 * (k % 4), 0.1 * (k // 4)
    ring = [[x, y], [x + 0.1, y], [x + 0.1, y + 0.1], [x, y + 0.1], [x, y]]
    return {"type": "Feature", "properties": {"district": name}, "geometry": {"type": "Polygon", "coordinates": [ring]}}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: write(folder) for name, folder in made(tmp_path_factory.mktemp("pages")).items()}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    one = Browser(tmp_path_factory.mktemp("browser"))
    yield one
    one.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_and_legible(name: str, pages: dict[str, Path], browser: Browser) -> None:
    for width in WIDTHS:
        for scheme in SCHEMES:
            browser.show(pages[name], width, scheme)
            browser.value("document.querySelectorAll('details').forEach(d => d.open = true)")
            found = browser.value(MEASURE)
            if kept := os.environ.get("FEDKERN_PICTURES"):
                browser.picture(Path(kept) / f"{name.replace(' ', '-')}-{width}-{scheme}.png")
            where = f"{name}, {width} pixels, {scheme}"
            assert browser.said == [], where
            assert found["beyond"] <= 0, f"{where}: the page is {found['beyond']} pixels too wide"
            assert found["low"] == [], where
            assert found["wordless"] == 0, where
            assert found["pictures"] >= PAGES[name], where
            assert found["texts"] > 500, where
            assert found["title"] in (pages[name].parent.name, artifacts.NAMES[0]), where
            if width == 1200:
                assert found["cut"] == 0, f"{where}: a table of Privacy or On the wire is cut at the right"


INJECTED = """
<script>document.title = 'stolen'</script><img src=x onerror="document.title = 'stolen'">
<style>body {outline: 7px solid red}</style><link rel=stylesheet href="data:text/css,body{outline:9px solid red}">
<iframe src="data:text/html,x"></iframe>
"""


def test_what_gets_into_a_page_does_nothing_there(pages: dict[str, Path], tmp_path: Path, browser: Browser) -> None:
    looks = """({title: document.title, outline: getComputedStyle(document.body).outlineWidth,
                styled: getComputedStyle(document.querySelector("main")).maxWidth})"""
    text = pages["pvi open"].read_text().replace("</main>", f"{INJECTED}</main>")
    found = {}
    for name, content in {"page": text, "without": text.replace("Content-Security-Policy", "X")}.items():
        (tmp_path / f"{name}.html").write_text(content)
        browser.show(tmp_path / f"{name}.html", 1200, "light")
        found[name] = browser.value(looks) | {"refused": sum("Content Security Policy" in said for said in browser.said)}
    assert found["without"]["title"] == "stolen"
    assert found["without"]["outline"] in ("7px", "9px")
    assert found["page"]["title"] != "stolen"
    assert found["page"]["outline"] not in ("7px", "9px")
    assert found["page"]["styled"] == "880px"
    assert found["page"]["refused"] >= 4


def test_the_measures_see_what_they_are_for(tmp_path: Path, browser: Browser) -> None:
    bad = '<title>bad</title><p style="color:#ccc">pale</p><div style="width:900px">wide</div><svg></svg>'
    (tmp_path / "bad.html").write_text(f"{bad}<script>console.error('heard')</script>")
    browser.show(tmp_path / "bad.html", 400, "light")
    found = browser.value(MEASURE)
    assert (found["beyond"] > 400, found["wordless"]) == (True, 1)
    assert [text for text in found["low"] if text.endswith("pale")]
    assert any("heard" in said for said in browser.said)
    assert not browser.value("matchMedia('(prefers-color-scheme: dark)').matches")
    browser.show(tmp_path / "bad.html", 1200, "dark")
    assert browser.value("matchMedia('(prefers-color-scheme: dark)').matches")
