"""Sphinx configuration of the site; `tools/site.py` assembles the sources and runs the build."""

from __future__ import annotations

from typing import Any

from mudkit import __version__

project = "mudkit"
author = "the mudkit authors"
project_copyright = "the mudkit authors; code Apache-2.0, texts and figures CC BY 4.0"
release = version = __version__

extensions = ["sphinx.ext.autodoc", "numpydoc", "myst_nb", "sphinx_design"]
exclude_patterns = ["_static"]
suppress_warnings = ["ref.python"]  # an exported name has a target in each package that exports it

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_use_type_comments = False
python_use_unqualified_type_names = True
add_module_names = False
numpydoc_show_class_members = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_ipywidgets_js: dict[str, Any] = {}
nb_merge_streams = True

html_theme = "pydata_sphinx_theme"
html_title = "mudkit"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_nav_level": 2,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars: dict[str, list[str]] = {
    page: []
    for page in ("index", "gallery", "changelog", "scorecard", "glossary", "papers/*", "teaching/index")
}


def _scripts(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Load plotly.js on the pages that have figures."""
    if "mudkit-figure-data" in context.get("body", ""):
        for name in ("plotly.min.js", "figures.js"):
            app.add_js_file(name, loading_method="defer")


def _skip(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the attributes of named tuples: the parameters describe them."""
    return True if str(getattr(member, "__doc__", "")).startswith("Alias for field number") else None


def setup(app: Any) -> None:
    """Register what the build adds to Sphinx."""
    app.connect("html-page-context", _scripts)
    app.connect("autodoc-skip-member", _skip)
