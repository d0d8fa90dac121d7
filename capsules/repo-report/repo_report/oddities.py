"""Look for what is odd about names, links and whole files."""

from __future__ import annotations

import hashlib

from repo_report.counting import HUGE_BYTES
from repo_report.findings import Findings
from repo_report.folder import Entry, Folder
from repo_report.links import fate_of
from repo_report.listing import Listing

LARGE_BYTES = 64 * 1024
MAX_COMPARED_BYTES = 512 * 1024 * 1024


def find_oddities(folder: Folder, listing: Listing, findings: Findings) -> None:
    """Add to *findings* what reading the files one by one could not tell."""
    for entry in listing.entries:
        if entry.kind == "link":
            _judge_link(folder, entry, findings)
        elif entry.kind == "special":
            findings.add("special", entry.path)
    _judge_names(listing.entries, findings)
    _find_duplicates(folder, listing.files, findings)
    # A file system without modes shows every file as executable.
    if len(findings.of("no-shebang")) * 2 > len(listing.files):
        findings.discard("no-shebang")


def _judge_link(folder: Folder, link: Entry, findings: Findings) -> None:
    try:
        target = folder.target(link.path)
        fate = fate_of(folder, link.path)
    except FileNotFoundError:
        return
    except OSError as error:
        findings.add("unreadable", link.path, (error.strerror or str(error)).lower())
        return
    if fate != "ok":
        findings.add(fate, link.path, "leads to", other=target)


def _judge_names(entries: list[Entry], findings: Findings) -> None:
    first_of: dict[str, str] = {}
    for entry in entries:
        if not entry.path.isprintable():
            findings.add("odd-name", entry.path)
        first = first_of.setdefault(entry.path.casefold(), entry.path)
        if first != entry.path:
            findings.add("case-clash", entry.path, "like", other=first)


def _find_duplicates(folder: Folder, files: list[Entry], findings: Findings) -> None:
    by_size: dict[int, list[Entry]] = {}
    for entry in files:
        if LARGE_BYTES <= entry.size <= HUGE_BYTES:
            by_size.setdefault(entry.size, []).append(entry)
    left = MAX_COMPARED_BYTES
    for size, alike in sorted(by_size.items(), reverse=True):
        if len(alike) > 1 and size * len(alike) <= left:
            left -= size * len(alike)
            _compare(folder, alike, findings)


def _compare(folder: Folder, alike: list[Entry], findings: Findings) -> None:
    first_of: dict[bytes, str] = {}
    for entry in alike:
        try:
            data = folder.read(entry.path, HUGE_BYTES)
        except OSError:
            continue
        first = first_of.setdefault(hashlib.blake2b(data).digest(), entry.path)
        if first != entry.path:
            findings.add("duplicate", entry.path, "same as", other=first, size=entry.size)
