"""Report on a folder or git repository: the harness of the capsule `repo-report`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import capsule_agent
from repo_report.content import MARKERS
from repo_report.counting import Counts, count_lines
from repo_report.findings import Findings
from repo_report.folder import Entry, Folder, opened
from repo_report.git import Git
from repo_report.listing import Listing, list_files
from repo_report.markdown import counted
from repo_report.markers import Markers, find_markers
from repo_report.oddities import find_oddities
from repo_report.recent import Recent, find_recent
from repo_report.report import Survey, sections
from repo_report.summary import summary
from repo_report.wishes import Wishes, read_wishes

ACTIVITY_INTERVAL = 1.0


def work(task: capsule_agent.Task, agent: capsule_agent.Agent) -> None:
    """Survey the work directory and end the turn with the report."""
    with ExitStack() as stack:
        try:
            whole = stack.enter_context(opened(task.workdir, "", agent.checkpoint))
            wishes = read_wishes(task.text, task.data, _folder_test(whole))
            folder = stack.enter_context(opened(task.workdir, wishes.folder, agent.checkpoint))
        except OSError as error:
            agent.turn_failed("declined", f"the work directory cannot be opened: {error}")
            return
        survey = _survey(agent, folder, os.path.join(task.workdir, wishes.folder), wishes)
    report = _write(agent, survey)
    try:
        _save(os.path.join(task.out, "report.md"), report)
    except OSError as error:
        agent.turn_failed("other", f"the report cannot be saved: {error}")
        return
    agent.turn_end(report, data=summary(survey))


def _folder_test(whole: Folder) -> Callable[[str], bool]:
    def is_folder(path: str) -> bool:
        try:
            return whole.look(path).kind == "folder"
        except OSError:
            return False

    return is_folder


def _survey(agent: capsule_agent.Agent, folder: Folder, path: str, wishes: Wishes) -> Survey:
    git = Git(path, agent.checkpoint)
    findings = Findings()
    listing = _list(agent, folder, git, findings, wishes)
    counts = _count(agent, folder, listing, findings)
    markers = _mark(agent, folder, counts)
    recent = _date(agent, listing, git, wishes.top)
    _doubt(agent, folder, listing, findings)
    return Survey(wishes, listing, counts, markers, recent, findings)


def _list(
    agent: capsule_agent.Agent, folder: Folder, git: Git, findings: Findings, wishes: Wishes
) -> Listing:
    agent.activity("listing files")
    with agent.tool("list_files", {"folder": wishes.folder or "."}) as call:
        listing = list_files(folder, git, findings)
        source = "listed by git" if listing.by_git else f"walked, because {listing.why_walked}"
        call.result(f"{counted(len(listing.files), 'file')}, {source}")
    return listing


def _count(
    agent: capsule_agent.Agent, folder: Folder, listing: Listing, findings: Findings
) -> Counts:
    agent.activity("counting lines")
    with agent.tool("count_lines", {"files": len(listing.files)}) as call:
        files = _shown(agent, "counting lines", listing.files)
        counts = count_lines(folder, files, findings)
        most = [f"{name} {tally.lines:,}" for name, tally in counts.languages()[:3] if tally.lines]
        call.result(f"{counted(counts.lines, 'line')}{': ' if most else ''}{', '.join(most)}")
    return counts


def _mark(agent: capsule_agent.Agent, folder: Folder, counts: Counts) -> Markers:
    agent.activity("looking for things left to do")
    asked = {"words": list(MARKERS), "files": len(counts.with_marker)}
    with agent.tool("find_markers", asked) as call:
        markers = find_markers(folder, _shown(agent, "looking for markers", counts.with_marker))
        call.result(", ".join(f"{count:,} {word}" for word, count in markers.by_word.items()))
    return markers


def _date(agent: capsule_agent.Agent, listing: Listing, git: Git, top: int) -> Recent:
    agent.activity("looking for the latest changes")
    with agent.tool("recent_changes", {"count": top}) as call:
        recent = find_recent(listing, git, top)
        source = "by commit" if recent.by_git else f"by modification time, because {recent.why}"
        call.result(f"{counted(len(recent.changes), 'file')}, {source}")
    return recent


def _doubt(
    agent: capsule_agent.Agent, folder: Folder, listing: Listing, findings: Findings
) -> None:
    agent.activity("looking for oddities")
    with agent.tool("find_oddities", {"names": len(listing.entries)}) as call:
        find_oddities(folder, listing, findings)
        kinds = [f"{kind} {len(findings.of(kind)):,}" for kind in findings.kinds()]
        call.result(", ".join(kinds) or "nothing odd")


def _shown(agent: capsule_agent.Agent, what: str, entries: list[Entry]) -> Iterator[Entry]:
    """Yield *entries* and show how far we are, now and then."""
    due = time.monotonic() + ACTIVITY_INTERVAL
    for done, entry in enumerate(entries):
        if time.monotonic() > due:
            agent.activity(f"{what}: {done:,} of {len(entries):,} files")
            due = time.monotonic() + ACTIVITY_INTERVAL
        yield entry


def _write(agent: capsule_agent.Agent, survey: Survey) -> str:
    agent.activity("writing the report")
    written: list[str] = []
    for section in sections(survey):
        agent.checkpoint()
        agent.delta(section)
        written.append(section)
    return "".join(written)


def _save(path: str, report: str) -> None:
    # A name that the run's out folder already holds may be a link that leads out of it.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o644), "w", encoding="utf-8") as file:
        file.write(report)


if __name__ == "__main__":
    capsule_agent.serve(work)
