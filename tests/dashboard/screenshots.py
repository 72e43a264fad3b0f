"""Screenshots of pages for the documentation: PNGs with a palette, which stay small in git."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path

import numpy as np
from playwright.sync_api import Page

FOLDER = Path(__file__).parents[2] / "docs" / "img" / "dashboard"
#: Pixels of a long page that its screenshot has.
MOST_HEIGHT = 1_500
_COLOURS = 256
#: Colours between which the palette chooses; the rest of a page's are rarer than any of them.
_MOST_CANDIDATES = 20_000
#: The browser reads its own PNGs: there is no other reader among the tests' packages.
_PIXELS = """async (png) => {
    const bytes = Uint8Array.from(atob(png), (letter) => letter.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes], {type: 'image/png'}));
    const context = new OffscreenCanvas(image.width, image.height).getContext('2d');
    context.drawImage(image, 0, 0);
    const pixels = context.getImageData(0, 0, image.width, image.height).data;
    let text = '';
    for (let start = 0; start < pixels.length; start += 32768)
        text += String.fromCharCode(...pixels.subarray(start, start + 32768));
    return [image.width, image.height, btoa(text)];
}"""


def take(page: Page, name: str, *, whole: bool, part: str = "") -> None:
    """Write ``docs/img/dashboard/<name>``: the page's top, or all of it with the figures that are
    drawn once they come into view; or one ``part`` of it, by its selector."""
    if part:
        page.locator(part).scroll_into_view_if_needed()
    elif whole:
        height = page.evaluate("() => document.documentElement.scrollHeight")
        for place in range(0, height, 600):
            page.evaluate(f"() => window.scrollTo(0, {place})")
            page.wait_for_timeout(150)
        page.evaluate("() => window.scrollTo(0, 0)")
    page.wait_for_timeout(600)
    if part:
        png = page.locator(part).screenshot()
    else:
        png = page.screenshot() if not whole else _whole(page)
    width, height, pixels = page.evaluate(_PIXELS, base64.b64encode(png).decode("ascii"))
    shown = np.frombuffer(base64.b64decode(pixels), np.uint8).reshape(height, width, 4)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / name).write_bytes(png_with_palette(shown[:, :, :3]))


def _whole(page: Page) -> bytes:
    width, height = page.evaluate(
        "() => [document.documentElement.clientWidth, document.documentElement.scrollHeight]"
    )
    return page.screenshot(
        full_page=True, clip={"x": 0, "y": 0, "width": width, "height": min(height, MOST_HEIGHT)}
    )


def png_with_palette(pixels: np.ndarray) -> bytes:
    """A PNG of RGB ``pixels`` (height, width, 3) with at most 256 colours: exactly these where
    the image has no more, else each pixel gets the nearest of a palette."""
    height, width, _ = pixels.shape
    packed = pixels.astype(np.uint32) @ np.array([65_536, 256, 1], np.uint32)
    found, place, counts = np.unique(packed, return_inverse=True, return_counts=True)
    colours = np.stack([found >> 16, found >> 8 & 255, found & 255], axis=1).astype(np.float32)
    palette = _palette(colours, counts)
    nearest = np.zeros(len(colours), np.uint8)
    least = np.full(len(colours), np.inf, np.float32)
    for number, colour in enumerate(palette):
        distance = ((colours - colour) ** 2).sum(axis=1)
        nearest[distance < least] = number
        least = np.minimum(least, distance)
    # Each line begins with the filter of that line: none.
    lines = np.zeros((height, width + 1), np.uint8)
    lines[:, 1:] = nearest[place.reshape(height, width)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, data)
        for kind, data in (
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            (b"PLTE", palette.astype(np.uint8).tobytes()),
            (b"IDAT", zlib.compress(lines.tobytes(), 9)),
            (b"IEND", b""),
        )
    )


def _palette(colours: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The commonest colour, then again and again the one that most pixels are furthest from."""
    if len(colours) <= _COLOURS:
        return colours
    common = np.argsort(counts, kind="stable")[::-1][:_MOST_CANDIDATES]
    colours, counts = colours[common], counts[common]
    chosen = [0]
    least = np.full(len(colours), np.inf, np.float32)
    while len(chosen) < _COLOURS:
        least = np.minimum(least, ((colours - colours[chosen[-1]]) ** 2).sum(axis=1))
        chosen.append(int(np.argmax(least * counts)))
    return colours[chosen]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
