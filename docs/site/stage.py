"""Lay out the site's sources: ``python docs/site/stage.py FOLDER`` (then ``sphinx-build -c docs FOLDER …``).

The pages in ``docs/`` are plain Markdown that any viewer of a repository shows, and they stay so. Sphinx wants
more: lists of pages as tables of contents, a page for each public name, and every link inside its folder. This
module writes all of that into a folder of its own, so that nothing is generated beside the sources:

    docs/**.md, pictures, results     copied, links to files outside ``docs/`` turned to where those are shown
    CONTRIBUTING, CHANGELOG, LICENSE  pages of the folder ``project``
    guides/index, methods/index …     the lists of ``docs/index.md``, which is the one list of pages
    source/…                          a view of each source file that a page links to
    reference/…                       a page for each public name (`reference`)

A page that the lists do not name is an error, as is a link to what is not there. A line ``<!-- include:
README.md#speed -->`` puts a section of another file in place of what follows up to ``<!-- end -->``. Files are
written only if they have changed, so that Sphinx builds only those.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path, PurePosixPath

import reference

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PROJECT = {"CONTRIBUTING.md": "contributing", "CHANGELOG.md": "changes", "LICENSE": "license"}
SECTIONS = {
    "Guides": ("guides", "How to do it: one task a page."),
    "Methods": ("methods", "What is computed: the models and their training, with equations, and results."),
    "Design": ("design", "How it is built and why: for those who want to change something, or to trust it."),
}
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]*)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r"^<!-- include: ([\w./-]+)#([\w-]+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^- \[[^\]]+\]\(([^)#]+)\.md\)", re.MULTILINE)


class SiteError(ValueError):
    """A page that cannot be shown as it is."""


def main(folder: Path) -> None:
    """Write all sources of the site into the folder."""
    made: dict[str, str] = {}  # path → text
    for page in sorted(DOCS.rglob("*.md")):
        name = page.relative_to(DOCS).as_posix()
        made[name] = turned(with_sections(page.read_text(encoding="utf-8"), name), name, f"docs/{name}")
    for source, name in PROJECT.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        shown = text if source.endswith(".md") else f"# Licence\n\n```text\n{text}```\n"
        made[f"project/{name}.md"] = turned(shown, f"project/{name}.md", source)
    made |= sections(made)
    made |= views(made)
    made |= reference.pages()
    for name, text in made.items():
        write(folder / name, text)
    copied = {path.relative_to(DOCS) for kind in ("pictures", "results") for path in (DOCS / kind).iterdir()}
    for path in copied:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(DOCS / path, folder / path)
    wanted = {folder / name for name in made} | {folder / path for path in copied}
    for path in folder.rglob("*"):  # what an earlier run wrote and this one did not; the gallery looks after its own
        if path.is_file() and path not in wanted and path.relative_to(folder).parts[0] != "gallery":
            path.unlink()


def write(path: Path, text: str) -> None:
    """Write the file unless it is there already with the same text."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def with_sections(text: str, name: str) -> str:
    """The page with the sections of other files that it includes."""

    def section(found: re.Match[str]) -> str:
        file, anchor = found.groups()
        source = (ROOT / file).read_text(encoding="utf-8")
        for heading in re.finditer(r"^(#+) (.+)$", source, re.MULTILINE):
            if re.sub(r"[^\w\- ]", "", heading.group(2).lower()).replace(" ", "-") == anchor:
                rest = source[heading.end() :]
                end = re.search(rf"^#{{1,{len(heading.group(1))}}} ", rest, re.MULTILINE)
                return turned_from(rest[: end.start()] if end else rest, file, name).strip()
        raise SiteError(f"docs/{name} includes {file}#{anchor}, but {file} has no such heading")

    return INCLUDE.sub(section, text)


def turned_from(text: str, file: str, name: str) -> str:
    """Text of a file at the root, with its links as a page ``docs/name`` has to write them."""
    up = "../" * (1 + name.count("/"))

    def link(found: re.Match[str]) -> str:
        before, target, after = found.groups()
        return found.group() if not target or ":" in target else f"{before}{up}{target}{after}"

    return LINK.sub(link, text)


def turned(text: str, name: str, source: str) -> str:
    """The page with its links turned: ``name`` is its path in the site, ``source`` that in the project."""

    def link(found: re.Match[str]) -> str:
        before, target, after = found.groups()
        if not target or ":" in target:
            return found.group()
        path = normal(PurePosixPath(source).parent / target)
        if not (ROOT / path).exists():
            raise SiteError(f"{source} links to {target}, which is not there")
        return before + relative(place_of(path), name) + after

    parts = FENCE.split(text)
    return "".join(tidy(part) if part.startswith("```") else LINK.sub(link, part) for part in parts)


def tidy(block: str) -> str:
    """A block of code; a session of Python without the empty line that ends it for the tests."""
    return re.sub(r"\n+```$", "\n```", block) if block.startswith("```python") else block


def place_of(path: str) -> str:
    """Where the site shows a file of the project."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in PROJECT:
        return f"project/{PROJECT[path]}.md"
    if path == "README.md":
        return "index.md"
    if (ROOT / path).is_dir():
        raise SiteError(f"a page links to the folder {path}: link to a file")
    return f"source/{path}.md"


def normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def relative(target: str, name: str) -> str:
    return "../" * name.count("/") + target


def sections(made: dict[str, str]) -> dict[str, str]:
    """A page for each list of ``index.md``, which gets a table of contents of those; each page must be in one."""
    index = made["index.md"]
    found, listed = {}, {"index", "gallery/index", "reference/index"}
    for title, (folder, told) in SECTIONS.items():
        at = re.search(rf"^\*\*{title}\*\*[^\n]*\n\n(.*?)(?=^\*\*|\n\n[^-*\n]|\Z)", index, re.MULTILINE | re.DOTALL)
        if at is None:
            raise SiteError(f"docs/index.md has no list that begins with **{title}**")
        trees = []  # one for each group, whose name stands before it in italics
        for group in re.split(r"^(?=\*[^*\n]+\*$)", at.group(1), flags=re.MULTILINE):
            entries = ENTRY.findall(group)
            listed |= set(entries)
            caption = re.match(r"\*([^*\n]+)\*$", group, re.MULTILINE)
            options = f":caption: {caption.group(1)}\n" if caption else ""
            trees.append(
                f"```{{toctree}}\n:hidden:\n{options}\n" + "".join(f"/{entry}\n" for entry in entries) + "```\n"
            )
        body = re.sub(r"^\*([^*\n]+)\*$", r"## \1", at.group(1), flags=re.MULTILINE)
        body = LINK.sub(
            lambda m: m.group() if ":" in m.group(2) else f"{m.group(1)}../{m.group(2)}{m.group(3)}", body
        )
        found[f"{folder}/index.md"] = f"# {title}\n\n{told}\n\n{body}\n" + "\n".join(trees)
    first = [entry for entry in ("tutorial", "models") if f"{entry}.md" in made]
    last = [f"project/{name}" for name in PROJECT.values()]
    contents = [*first, "guides/index", "gallery/index", "reference/index", "methods/index", "design/index", *last]
    toctree = "".join(f"{entry}\n" for entry in contents)
    shown = index.partition("## All pages\n")[0]  # the lists have pages of their own
    found["index.md"] = f"{shown}\n```{{toctree}}\n:hidden:\n\n{toctree}```\n"
    orphans = sorted({name.removesuffix(".md") for name in made} - listed - set(contents))
    if orphans:
        names = ", ".join(f"docs/{name}.md" for name in orphans)
        raise SiteError(f"no list of docs/index.md names {names}: add a line to one of {', '.join(SECTIONS)}")
    return found


def views(made: dict[str, str]) -> dict[str, str]:
    """A page that shows each source file to which some page links."""
    wanted = {target for text in made.values() for target in re.findall(r"\]\((?:\.\./)*(source/[^)#\s]+)\.md", text)}
    found = {}
    for place in sorted(wanted):
        path = ROOT / place.removeprefix("source/")
        language = {".py": "python", ".cpp": "cpp", ".hpp": "cpp"}.get(path.suffix, "text")
        text = path.read_text(encoding="utf-8")
        found[f"{place}.md"] = f"---\norphan: true\n---\n# {path.name}\n\n`````{language}\n{text}`````\n"
    return found


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except SiteError as error:
        sys.exit(f"error: {error}")
