"""How the documents are built: `make docs`. Nothing is fetched, neither by the build nor by the pages."""

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

project = "fedkern"
version = release = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
copyright = "the authors of fedkern"

extensions = ["myst_parser", "mathml", "described", "sphinx_gallery.gen_gallery", "sphinx.ext.napoleon"]
autodoc_typehints = "none"  # a docstring says in words which values a parameter takes
autoclass_content = "class"
napoleon_google_docstring = False
napoleon_use_param = napoleon_use_rtype = napoleon_use_ivar = False
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",  # made by the build
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_signature": False,
    "plot_gallery": True,
    "abort_on_example_error": True,
    "min_reported_time": 1e9,
}
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3  # [text](page.md#section) is checked, as every link inside the documents
exclude_patterns = ["_*", "gallery/*"]
html_math_renderer = "mathml"
highlight_language = "none"
nitpicky = True
nitpick_ignore_regex = [("py:class", ".*")]  # docstrings name no classes

html_theme = "pydata_sphinx_theme"
html_title = f"fedkern {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_context = {"default_mode": "auto"}
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "show_prev_next": False,
    "header_links_before_dropdown": 7,
}
