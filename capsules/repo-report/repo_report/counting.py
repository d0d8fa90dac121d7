"""Read every file once: lines by language, and what is odd about the content."""

from __future__ import annotations

from collections.abc import Iterable

from repo_report.content import Content, examine
from repo_report.findings import Findings
from repo_report.folder import Entry, Folder
from repo_report.languages import BINARY, extension_of, is_media, language_of

HUGE_BYTES = 8 * 1024 * 1024
MAX_TOTAL_BYTES = 4 * 1024 * 1024 * 1024
_WITHOUT_SHEBANG = ("bat", "cmd", "ps1")


class Tally:
    """Count the files, lines and bytes of one language."""

    __slots__ = ("files", "lines", "size")

    def __init__(self) -> None:
        self.files = 0
        self.lines = 0
        self.size = 0


class Counts:
    """Hold what one reading of all files told."""

    def __init__(self) -> None:
        self.by_language: dict[str, Tally] = {}
        self.lines_of: dict[str, int] = {}
        self.with_marker: list[Entry] = []
        self.with_carriage_returns = 0
        self.read_bytes = 0
        self.vanished = 0
        self.unread = 0

    @property
    def lines(self) -> int:
        """Count the lines of all text files."""
        return sum(tally.lines for tally in self.by_language.values())

    def languages(self) -> list[tuple[str, Tally]]:
        """List the languages: most lines first, binary files last."""
        return sorted(
            self.by_language.items(),
            key=lambda item: (item[0] == BINARY, -item[1].lines, -item[1].files, item[0]),
        )


def count_lines(folder: Folder, files: Iterable[Entry], findings: Findings) -> Counts:
    """Read *files*, but neither a huge one nor more than `MAX_TOTAL_BYTES` in all."""
    counts = Counts()
    for entry in files:
        if entry.size > HUGE_BYTES:
            findings.add("huge", entry.path, size=entry.size)
        elif counts.read_bytes + entry.size > MAX_TOTAL_BYTES:
            counts.unread += 1
        else:
            _count(folder, entry, counts, findings)
    return counts


def _count(folder: Folder, entry: Entry, counts: Counts, findings: Findings) -> None:
    try:
        data = folder.read(entry.path, HUGE_BYTES)
    except FileNotFoundError:
        counts.vanished += 1
        return
    except OSError as error:
        findings.add("unreadable", entry.path, (error.strerror or str(error)).lower())
        return
    content = examine(data)
    language = BINARY if content.binary else language_of(entry.path, content.shebang)
    tally = counts.by_language.setdefault(language, Tally())
    tally.files += 1
    tally.lines += content.lines
    tally.size += len(data)
    counts.read_bytes += len(data)
    if content.binary:
        if not is_media(entry.path):
            findings.add("blob", entry.path, content.binary, size=len(data))
        return
    counts.lines_of[entry.path] = content.lines
    counts.with_carriage_returns += content.endings == "crlf"
    if content.has_marker:
        counts.with_marker.append(entry)
    _judge(entry, content, findings)


def _judge(entry: Entry, content: Content, findings: Findings) -> None:
    if content.has_conflict:
        findings.add("conflict", entry.path)
    if not content.is_utf8:
        findings.add("encoding", entry.path)
    if content.endings == "mixed":
        findings.add("mixed-endings", entry.path)
    if content.has_long_line:
        findings.add("long-lines", entry.path)
    is_script = content.shebang or extension_of(entry.path) in _WITHOUT_SHEBANG
    if entry.executable and content.lines and not is_script:
        findings.add("no-shebang", entry.path)
