"""Which of the variables that a run is given are secrets, and how their values may be written.

A value is a secret of the run if the grants or the driver name its variable as one, or if its name
says so; and if it is long enough not to be found in other words. Nothing else is ever redacted.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

SECRET_CHARACTERS = 8
"""How long a value, or a way to write it, must be to be looked for."""
_LINE_CHARACTERS = 16
_SHORT_CHARACTERS = 512

_IS_SECRET = re.compile(
    r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL)S?(_|$)"
    r"|(^|_)(AUTH|AUTHORIZATION|BEARER|COOKIE|DSN|JWT|PASS|PAT)(_|$)"
    r"|_PWD(_|$)",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Tell whether a variable called *name* is there to hold a secret."""
    return _IS_SECRET.search(name) is not None


def secrets_of(env: Mapping[str, str], declared: Collection[str]) -> dict[str, str]:
    """Return the secrets in *env* by name; all *declared* ones are, whatever their names say."""
    return {
        name: value
        for name, value in env.items()
        if (name in declared or is_secret_name(name)) and len(value.strip()) >= SECRET_CHARACTERS
    }


def forms_of(value: str) -> tuple[str, ...]:
    """Return how *value* may be written: as it is, escaped, encoded, and each of its long lines."""
    value = _printable(value.strip())
    forms = {form for form in _forms(value) if len(form) >= SECRET_CHARACTERS}
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def _printable(value: str) -> str:
    """Return *value* as it reads where it was not UTF-8."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _forms(value: str) -> Iterator[str]:
    raw = value.encode()
    for plain in (value, *_lines(value)):
        yield plain
        for escape in (_json, _ascii, _ascii_upper, _php, _html_safe):
            yield escape(plain)
            yield _json(escape(plain))  # a JSON text in a JSON text, as tools write it
    yield from _base64(raw)
    yield raw.hex()
    yield raw.hex().upper()
    yield value.lower()  # names of hosts are
    yield value.upper()
    for kept in (b"-._~", b"-._~/", b"-_.*", b"-_.!~*'()"):
        yield _percent(raw, kept, "%%%02X")
        yield _percent(raw, kept, "%%%02x")
        yield _percent(raw, kept, "%%%02X").replace("%20", "+")
    if len(value) <= _SHORT_CHARACTERS:
        yield _units(value, "\\u%04x", lambda _: True)
        yield _units(value, "\\u%04X", lambda _: True)


def _lines(value: str) -> list[str]:
    """Return the lines of a key in a file: programs show one, or write others between them."""
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) < 2:
        return []
    return [it for it in lines if len(it) >= _LINE_CHARACTERS and not it.startswith("-----")]


def _json(text: str) -> str:
    return msgspec.json.encode(text)[1:-1].decode()


def _ascii(text: str) -> str:
    return _units(_json(text), "\\u%04x", lambda c: c > "~")


def _ascii_upper(text: str) -> str:
    return _units(_json(text), "\\u%04X", lambda c: c > "~")


def _php(text: str) -> str:
    return _ascii(text).replace("/", "\\/")


def _html_safe(text: str) -> str:
    return _units(_json(text), "\\u%04x", lambda c: c in "<>&\u2028\u2029")


def _units(text: str, form: str, is_escaped: Callable[[str], bool]) -> str:
    return "".join(
        "".join(form % unit for unit in _utf16(char)) if is_escaped(char) else char for char in text
    )


def _utf16(char: str) -> tuple[int, ...]:
    raw = char.encode("utf-16-be", "surrogatepass")
    return tuple(int.from_bytes(raw[i : i + 2], "big") for i in range(0, len(raw), 2))


def _base64(raw: bytes) -> Iterator[str]:
    """Yield *raw* in base 64: by itself, and what it comes to within something longer."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(raw).decode().rstrip("=")
        for before in range(3):
            # The characters at both ends hold bits of the neighbours.
            whole = (before + len(raw)) * 8 // 6
            yield encode(bytes(before) + raw).decode()[-(-before * 8 // 6) : whole]


def _percent(raw: bytes, kept: bytes, form: str) -> str:
    return "".join(
        chr(byte) if (chr(byte).isalnum() and byte < 128) or byte in kept else form % byte
        for byte in raw
    )
