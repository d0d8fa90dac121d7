"""Write the report: what was found, as Markdown, one section after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from repo_report.counting import HUGE_BYTES, MAX_TOTAL_BYTES, Counts
from repo_report.findings import TITLES, Finding, Findings
from repo_report.listing import MAX_ENTRIES, Listing
from repo_report.markdown import cell, code, counted, moment, size, table
from repo_report.markers import Markers
from repo_report.recent import Recent
from repo_report.wishes import Wishes


class Survey(NamedTuple):
    """Hold everything that is known about a folder."""

    wishes: Wishes
    listing: Listing
    counts: Counts
    markers: Markers
    recent: Recent
    findings: Findings


def sections(survey: Survey) -> Iterator[str]:
    """Write the sections of the report."""
    yield _opening(survey)
    if survey.listing.files:
        yield "\n" + _languages(survey.counts)
        yield "\n## Largest files\n\n" + _largest(survey)
        yield "\n## Recently changed\n\n" + _recent(survey.recent)
        yield "\n## TODO, FIXME and XXX\n\n" + _markers(survey.markers, survey.wishes.top)
    yield "\n## Oddities\n\n" + _oddities(survey.findings, survey.wishes.top)
    yield "\n## Left out\n\n" + _left_out(survey)


def _opening(survey: Survey) -> str:
    wishes, listing = survey.wishes, survey.listing
    lines = ["# Repository report\n"]
    if wishes.folder:
        lines.append(f"On the folder {code(wishes.folder)}; paths are relative to it.\n")
    if wishes.unknown:
        lines.append(f"There is no folder {code(wishes.unknown)} here; this is about all of it.\n")
    lines.append(f"{_source(listing)}: {_totals(survey)}.\n")
    return "\n".join(lines)


def _source(listing: Listing) -> str:
    if not listing.by_git:
        return f"A folder, walked {_because(listing.why_walked)}"
    branch = f" on branch {code(listing.branch)}" if listing.branch else ""
    return f"A git repository{branch}"


def _because(reason: str) -> str:
    """Write a reason into running text; what git said in it may hold any name."""
    head, colon, said = reason.partition(": ")
    return f"because {head}: {code(said)}" if colon else f"because {head}"


def _totals(survey: Survey) -> str:
    files = survey.listing.files
    if not survey.listing.entries:
        return "it holds no files"
    links = sum(entry.kind == "link" for entry in survey.listing.entries)
    folders = {entry.path.rpartition("/")[0] for entry in survey.listing.entries} - {""}
    parts = [
        counted(len(files), "file"),
        f"{counted(survey.counts.lines, 'line')} of text",
        size(sum(entry.size for entry in files)),
    ]
    inside = f" in {counted(len(folders), 'folder')}" if folders else ""
    parts[0] += inside
    if links:
        parts.append(counted(links, "link"))
    return ", ".join(parts)


def _languages(counts: Counts) -> str:
    total = counts.lines
    rows = [
        [
            language,
            f"{tally.files:,}",
            f"{tally.lines:,}",
            f"{tally.lines / total:.1%}" if total else "",
            size(tally.size),
        ]
        for language, tally in counts.languages()
    ]
    text = table(["Language", "Files:", "Lines:", "Share:", "Size:"], rows)
    if counts.with_carriage_returns:
        text += f"\n{counted(counts.with_carriage_returns, 'file')} with CRLF line endings.\n"
    return text


def _largest(survey: Survey) -> str:
    largest = sorted(survey.listing.files, key=lambda entry: (-entry.size, entry.path))
    lines_of = survey.counts.lines_of
    rows = [
        [
            size(entry.size),
            f"{lines_of[entry.path]:,}" if entry.path in lines_of else "",
            cell(entry.path),
        ]
        for entry in largest[: survey.wishes.top]
    ]
    return table(["Size:", "Lines:", "File"], rows)


def _recent(recent: Recent) -> str:
    if not recent.by_git:
        note = f"By modification time, {_because(recent.why)}."
        rows = [[moment(change.at), cell(change.path)] for change in recent.changes]
        return f"{note}\n\n{table(['Changed (UTC)', 'File'], rows)}"
    note = "By commit; a file that git does not track is dated by its modification time."
    if recent.why:
        note += f" Some files may be missing, {_because(recent.why)}."
    rows = [
        [moment(change.at), change.commit or "untracked", cell(change.path)]
        for change in recent.changes
    ]
    return f"{note}\n\n{table(['Changed (UTC)', 'Commit', 'File'], rows)}"


def _markers(markers: Markers, top: int) -> str:
    if not markers.total:
        return "None.\n"
    words = ", ".join(f"{count:,} {word}" for word, count in markers.by_word.items() if count)
    most = sorted(markers.by_file.items(), key=lambda item: (-item[1], item[0]))[:5]
    where = ", ".join(f"{code(path)} ({count:,})" for path, count in most)
    shown = markers.most_urgent(2 * top)
    lines = [
        f"{words}, on {counted(markers.lines, 'line')} in {counted(len(markers.by_file), 'file')}.",
        f"Most in {where}.\n",
        *(f"- {code(f'{place.path}:{place.line}')} {code(place.text)}" for place in shown),
    ]
    if markers.lines > len(shown):
        lines.append(f"- … and {counted(markers.lines - len(shown), 'more line')}")
    return "\n".join(lines) + "\n"


def _oddities(findings: Findings, top: int) -> str:
    lines: list[str] = []
    for kind in findings.kinds():
        found = findings.of(kind)
        lines.append(f"- {TITLES[kind]}: {len(found):,}")
        lines.extend(f"  - {_finding(finding)}" for finding in found[:top])
        if len(found) > top:
            lines.append(f"  - … and {len(found) - top:,} more")
    return "\n".join(lines or ["Nothing odd was found."]) + "\n"


def _finding(finding: Finding) -> str:
    details = [size(finding.size)] if finding.size else []
    if finding.detail:
        details.append(
            f"{finding.detail} {code(finding.other)}" if finding.other else finding.detail
        )
    return f"{code(finding.path)} ({', '.join(details)})" if details else code(finding.path)


def left_out(survey: Survey) -> list[str]:
    """List what the numbers do not cover, each as a sentence."""
    listing, counts = survey.listing, survey.counts
    huge = len(survey.findings.of("huge"))
    links = sum(entry.kind == "link" for entry in listing.entries)
    sentences = [
        (listing.ignored, f"Ignored by git: {_names(listing.ignored)}."),
        (listing.version_control, f"Version control data: {_names(listing.version_control)}."),
        (listing.nested, f"Nested repositories, not entered: {_names(listing.nested)}."),
        (links, f"{counted(links, 'link')}, not followed."),
        (huge, f"{counted(huge, 'file')} over {size(HUGE_BYTES)}: listed, but not read."),
        (counts.unread, f"{counted(counts.unread, 'file')}, after {size(MAX_TOTAL_BYTES)} read."),
        (counts.vanished, f"{counted(counts.vanished, 'file')} that vanished meanwhile."),
        (listing.absent, f"{counted(listing.absent, 'file')} that git tracks but the disk lacks."),
        (listing.is_cut, f"Everything after the first {MAX_ENTRIES:,} files."),
    ]
    return [sentence for applies, sentence in sentences if applies]


def _left_out(survey: Survey) -> str:
    sentences = left_out(survey)
    return "".join(f"- {sentence}\n" for sentence in sentences) or "Nothing.\n"


def _names(paths: list[str]) -> str:
    shown = ", ".join(code(path) for path in paths[:5])
    return f"{shown} and {len(paths) - 5:,} more" if len(paths) > 5 else shown
