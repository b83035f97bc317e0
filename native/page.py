"""The page of a package index: README, with links that lead somewhere.

An index shows README far from the files that its links name. Where the build is told the address of the repository
(``CRFIELD_ADDRESS=https://host/owner/crfield``, as the workflow that publishes does), links and pictures lead to the
files of this version there, and the index lists where the source, changes and issues are. Otherwise links are left as
their words, and pictures out. What is built of a source archive has the page that the archive came with.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from email.parser import BytesParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^()\s]+)\)")
PICTURE = re.compile(r"!\[[^\]]*\]\(([^()\s]+)\)\n\n(?:\*[^*]+\*\n\n)?")  # with the line in italics below


def leads_to_a_file(target: str) -> bool:
    """Whether a link names a file of the project, and is no code that looks like one."""
    return (ROOT / target.partition("#")[0]).is_file()


def text_for(readme: str, address: str, version: str) -> str:
    """README as an index can show it."""
    if not address:
        bare = PICTURE.sub(lambda found: "" if leads_to_a_file(found[1]) else found[0], readme)
        return LINK.sub(lambda found: found[2] if leads_to_a_file(found[3]) else found[0], bare)

    def absolute(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        kind = "raw" if picture else "blob"
        return f"{picture}[{words}]({address}/{kind}/v{version}/{target})" if leads_to_a_file(target) else found[0]

    return LINK.sub(absolute, readme)


def urls_for(address: str, version: str) -> dict[str, str]:
    """Where the source and the rest of it are."""
    if not address:
        return {}
    return {
        "Source": address,
        "Documentation": f"{address}/blob/v{version}/docs/index.md",
        "Changes": f"{address}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def kept(told: bytes) -> tuple[str, dict[str, str]]:
    """Page and addresses of PKG-INFO, which source archives have."""
    message = BytesParser().parsebytes(told)
    pairs = (line.split(", ", 1) for line in message.get_all("Project-URL", []))
    return told.decode().partition("\n\n")[2], {name: address for name, address in pairs}


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    """The fields ``readme`` and ``urls``."""
    archive = ROOT / "PKG-INFO"
    if archive.is_file():
        text, urls = kept(archive.read_bytes())
    else:
        address, version = os.environ.get("CRFIELD_ADDRESS", "").rstrip("/"), project["version"]
        text = text_for((ROOT / "README.md").read_text("utf-8"), address, version)
        urls = urls_for(address, version)
    return {"readme": {"content-type": "text/markdown", "text": text}, "urls": urls}
