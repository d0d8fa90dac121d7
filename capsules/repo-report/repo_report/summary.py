"""Write what was found for a program: the same facts as the report, as JSON values."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from repo_report.findings import Finding
from repo_report.markers import Place
from repo_report.recent import Change
from repo_report.report import Survey, left_out

MAX_EXAMPLES = 100


def summary(survey: Survey) -> dict[str, object]:
    """Sum up *survey*; lists are cut at `MAX_EXAMPLES`, counts are of everything."""
    listing, counts, markers = survey.listing, survey.counts, survey.markers
    top = survey.wishes.top
    largest = sorted(listing.files, key=lambda entry: (-entry.size, entry.path))[:top]
    return {
        "folder": survey.wishes.folder,
        "listed_by": "git" if listing.by_git else "walk",
        "branch": listing.branch,
        "files": len(listing.files),
        "lines": counts.lines,
        "bytes": sum(entry.size for entry in listing.files),
        "languages": [
            {"name": name, "files": tally.files, "lines": tally.lines, "bytes": tally.size}
            for name, tally in counts.languages()
        ],
        "largest": [
            {
                "path": named(entry.path),
                "bytes": entry.size,
                "lines": counts.lines_of.get(entry.path),
            }
            for entry in largest
        ],
        "recent": {
            "dated_by": "git" if survey.recent.by_git else "mtime",
            "files": [_change(change) for change in survey.recent.changes],
        },
        "markers": {
            "counts": markers.by_word,
            "files": len(markers.by_file),
            "lines": markers.lines,
            "places": [_place(place) for place in markers.most_urgent(MAX_EXAMPLES)],
        },
        "oddities": {
            kind: {
                "count": len(survey.findings.of(kind)),
                "places": [_finding(found) for found in survey.findings.of(kind)[:MAX_EXAMPLES]],
            }
            for kind in survey.findings.kinds()
        },
        "left_out": left_out(survey),
        "report": "report.md",
    }


def named(path: str) -> str:
    r"""Write *path* so that JSON can hold it: a byte that is not UTF-8 becomes `\xNN`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _change(change: Change) -> dict[str, object]:
    try:
        at = datetime.fromtimestamp(change.at, timezone.utc).isoformat()  # noqa: UP017  # 3.9
    except (OverflowError, OSError, ValueError):
        at = ""
    return {"path": named(change.path), "at": at, "commit": change.commit}


def _place(place: Place) -> dict[str, object]:
    return {
        "path": named(place.path),
        "line": place.line,
        "word": place.word,
        "text": place.text,
    }


def _finding(finding: Finding) -> dict[str, object]:
    detail = f"{finding.detail} {named(finding.other)}" if finding.other else finding.detail
    return {"path": named(finding.path), "detail": detail, "bytes": finding.size}
