"""The pages of the documentation, and what is read from them: sections, tables, code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "THREAT_MODEL.md", *DOCS)
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SOURCE_NAME = re.compile(r"`([\w/]+\.(?:py|toml|yml|yaml|json))`")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def section(text: str, heading: str) -> str:
    """Return what stands below a heading, up to the next one of any level."""
    match = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert match is not None, f"no section {heading!r}"
    return match[1]


def code(text: str) -> str:
    """Return inline code and shell examples; prose is left out."""
    shell = [match[2] for match in FENCED.finditer(text) if match[1] == "sh"]
    return "\n".join([*re.findall(r"`([^`\n]+)`", FENCED.sub("", text)), *shell])


def rows(text: str) -> list[list[str]]:
    """Return the cells of a table, without its heading. A | that is escaped divides no cells."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def source_files(*folders: str) -> set[str]:
    """Return the modules that hold any code."""
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return {path.relative_to(ROOT).as_posix() for path in found if path.stat().st_size}


def anchors(text: str) -> set[str]:
    """Return what links to a page may name behind #: its headings, as GitHub and mkdocs write them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
