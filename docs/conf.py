"""Settings of the documentation site. ``make docs`` lays out the pages (`docs/site/stage.py`) and builds them."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GALLERY = ROOT / "examples" / "gallery"
sys.path[:0] = [str(ROOT / "docs" / "site")]

import crfield  # noqa: E402  (the package that is documented, and after the path above the site's own extension)

project, author, copyright = "crfield", "The crfield developers", "the crfield developers"
version = release = crfield.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
    "site_pages",
]

# Pages are Markdown as they lie in docs/; headings can be linked to as on any host of repositories.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_block"]
default_role = "py:obj"  # `ChainCRF` in a docstring
templates_path, exclude_patterns = [], ["**/results/*.txt"]

# Reference: signatures without types, which the lists of parameters give in words.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
maximum_signature_line_length = 88
numpydoc_show_class_members = False
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

sphinx_gallery_conf = {
    "examples_dirs": str(GALLERY),
    "gallery_dirs": "gallery",
    "subsection_order": "site_pages.gallery_order",
    "within_subsection_order": "FileNameSortKey",
    "filename_pattern": r".*\.py$",
    "doc_module": ("crfield",),
    "reference_url": {"crfield": None},
    "show_memory": False,
    "write_computation_times": False,
    "show_signature": False,
    "min_reported_time": 3600,
    "remove_config_comments": True,
    "download_all_examples": False,
    "image_scrapers": ("matplotlib",),
    "abort_on_example_error": True,
    "plot_gallery": "True",
}

html_theme = "pydata_sphinx_theme"
html_title = "crfield"
html_static_path = [str(ROOT / "docs" / "site" / "static")]
html_css_files = ["crfield.css"]
html_show_sourcelink = html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "navbar_end": ["theme-switcher"],
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
suppress_warnings = ["config.cache"]
