"""What an image or a document in a request is at most, in tokens, as providers publish it.

- `messages`: an image is scaled down to what the newest models read, 4 784 tokens
  (platform.claude.com/docs/en/build-with-claude/vision; older models: about 1 600). A list of
  measured counts of several sizes has at most 4 005.
- `chat-completions`, `responses`: by tiles, 85 + 170 a tile of 512 pixels after scaling to 2048 by
  768, so at most 8 of them; the most costly model of this kind has 2 833 + 5 667 a tile. By patches
  of 32 pixels, times a factor of at most 2.46; some models scale down to 1 536 patches, or 2 500,
  or 10 000, and the newest have been measured not to (developers.openai.com/api/docs/guides/
  images-vision; huggingface.co/datasets/JOHNISKING/image-token-cost: 14 364 for 4032 by 3024). So
  the size counts where it can be read, in patches of 28 pixels, which other servers have; else the
  most that a side of 6 000 pixels comes to.
- `generate-content`: 258 a tile, and no size within 3072 by 3072 has more than 24 of them; newer
  models have 2 240 at most (ai.google.dev/gemini-api/docs/media-resolution and .../tokens).

A document of pages is text and an image for each page. Its pages are compressed, so its size says
nothing: only the provider's own counter does.
"""

from __future__ import annotations

import base64
from typing import Literal, assert_never

from msgspec import Struct

from capsule_runtime.core.gateway.apis import Api

_OF_MESSAGES = 6_000
_OF_GENERATE = 24 * 258 + 1_024
_BY_TILES = 2_833 + 8 * 5_667
_TILED = "4o-mini"
"""In the names of the models that count so dearly by tiles."""
_PATCH = 28
_LARGEST_SIDE = 6_000
_AROUND = 512
"""For the words around an image, and for what rounding makes of its size."""
_HEAD_CHARS = 32
"""Of base64: the 24 bytes in which two formats tell their size."""
_PNG = b"\x89PNG\r\n\x1a\n"


class Media(Struct, frozen=True):
    """An image or a document that stands in a body, with *chars* characters of base64.

    *width* and *height* are pixels, where they can be told.
    """

    kind: Literal["image", "document"]
    chars: int
    width: int | None = None
    height: int | None = None


def image_of(data: str) -> Media:
    """Return the image that *data* is, in base64."""
    size = _size_of(data[:_HEAD_CHARS])
    return Media("image", len(data), *(size or (None, None)))


def document_of(data: str) -> Media:
    """Return the document that *data* is, in base64."""
    return Media("document", len(data))


def most_tokens(media: Media, api: Api, model: str) -> int | None:
    """Return what *media* is at most for *model*, in tokens; None if nobody can tell."""
    if media.kind == "document":
        return None
    match api:
        case Api.MESSAGES:
            return _OF_MESSAGES
        case Api.GENERATE:
            return _OF_GENERATE
        case Api.CHAT | Api.RESPONSES:
            return _BY_TILES if _TILED in model.lower() else _by_patches(media)
        case _:
            assert_never(api)


def _by_patches(media: Media) -> int:
    width, height = media.width or _LARGEST_SIDE, media.height or _LARGEST_SIDE
    patches = _covering(width) * _covering(height)
    # 5/2 is more than any factor that was published.
    return min(patches, _covering(_LARGEST_SIDE) ** 2) * 5 // 2 + _AROUND


def _covering(side: int) -> int:
    return -(-side // _PATCH)


def _size_of(head: str) -> tuple[int, int] | None:
    """Return width and height, where the first bytes of an image tell them at a fixed place."""
    try:
        raw = base64.b64decode(head, validate=True)
    except ValueError:
        return None
    if raw.startswith(_PNG) and raw[12:16] == b"IHDR" and len(raw) >= 24:
        return int.from_bytes(raw[16:20], "big"), int.from_bytes(raw[20:24], "big")
    return None
