"""Numbers with their units, as every page shows them; ``static/formats.js`` does the same.

Three significant figures are what a measurement of this kind carries; the exact value stands in
an attribute or an export. A narrow no-break space (U+202F) keeps number and unit together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from markupsafe import Markup

SPACE = "\u202f"
#: Digits of the largest and of the smallest float.
_EXACT = Context(prec=800)
ABSENT = "–"
_TIME_UNITS = ((1e-6, "ns", 1e6), (1e-3, "µs", 1e3), (1.0, "ms", 1.0), (1e3, "s", 1e-3))
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_GROUPED_BELOW = 10**12
_RATE_UNITS = ("", "k", "M", "G", "T", "P")


def significant(value: float, figures: int = 3) -> str:
    """A positive number with so many significant figures, zeros at its end included."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else ABSENT
    decimals = max(0, figures - 1 - math.floor(math.log10(abs(value))))
    text = _fixed(value, decimals)
    # 9.995 becomes 10.00 with three decimals too many: counted once more.
    again = max(0, figures - 1 - math.floor(math.log10(abs(float(text)))))
    return text if again == decimals else _fixed(value, again)


def _fixed(value: float, decimals: int) -> str:
    """As scripts' ``toFixed``: of two that are equally near the larger."""
    exact = Decimal(value).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP, _EXACT)
    return f"{exact:f}"


def time_ms(value: float | None) -> str:
    """Milliseconds, in the unit that reads best: ``1.23 ms``, ``45.6 µs``, ``12.0 s``."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value == 0:
        return f"0{SPACE}ms"
    scale, unit = next(
        ((factor, name) for least, name, factor in reversed(_TIME_UNITS) if abs(value) >= least),
        (1e6, "ns"),
    )
    return f"{significant(value * scale)}{SPACE}{unit}"


def size(value: float | None) -> str:
    """Bytes in binary units: ``1.50 MiB``; below 1,024 exact."""
    if value is None or not math.isfinite(value):
        return ABSENT
    power = 0
    while abs(value) >= 1024 and power < len(_BYTE_UNITS) - 1:
        value /= 1024
        power += 1
    shown = f"{value:.0f}" if power == 0 else significant(value)
    return f"{shown}{SPACE}{_BYTE_UNITS[power]}"


def count(value: float | None) -> str:
    """A whole number in groups of three."""
    return ABSENT if value is None else f"{value:,.0f}".replace(",", SPACE)


def large(value: int | None) -> str:
    """A number of mappings: in groups of three, from a million million on as a power of ten."""
    if value is None:
        return ABSENT
    if abs(value) < _GROUPED_BELOW:
        return f"{value:,}".replace(",", SPACE)
    digits = str(value)
    exponent = str(len(digits) - 1).translate(_SUPERSCRIPTS)
    # A float need not hold it.
    return f"{int(digits[:4]) / 1000:.2f}{SPACE}×{SPACE}10{exponent}"


def rate(value: float | None, unit: str) -> str:
    """A number of ``unit`` with a decimal prefix: ``12.3 GFLOP/s``."""
    if value is None or not math.isfinite(value):
        return ABSENT
    power = 0
    while abs(value) >= 1000 and power < len(_RATE_UNITS) - 1:
        value /= 1000
        power += 1
    return f"{significant(value)}{SPACE}{_RATE_UNITS[power]}{unit}"


def percent(value: float | None) -> str:
    """A share of one: ``12.3 %``."""
    return ABSENT if value is None else f"{value * 100:.1f}{SPACE}%"


def seconds(value: float | None) -> str:
    """A span: ``45 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value < 60:
        return f"{value:.0f}{SPACE}s"
    whole = round(value)
    for least, unit, smaller, small_unit in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= least:
            rest = whole % least // smaller
            tail = f" {rest}{SPACE}{small_unit}" if rest else ""
            return f"{whole // least}{SPACE}{unit}{tail}"
    return ABSENT


def utc(value: datetime | None) -> str:
    """A time in UTC to the second, with its zone."""
    return ABSENT if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def when(value: datetime | None) -> Markup:
    """A ``time`` element, which a script turns into the reader's zone and ``3 min ago``."""
    if value is None:
        return Markup(ABSENT)
    shown = value.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(shown.isoformat(), utc(shown))


def short_hash(value: str | None) -> str:
    """The beginning of a hash or id, enough to tell apart what stands on one page."""
    if not value:
        return ABSENT
    prefix, _, rest = value.partition("_")
    return f"{prefix}_…{rest[-6:]}" if rest else value[:10]


def spelled(value: Any) -> str:
    """A parameter's value: text as it is, lists joined."""
    if isinstance(value, (list, tuple)):
        return " × ".join(map(str, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {spelled(item)}" for name, item in value.items())
    return str(value)


FILTERS: dict[str, Callable[..., Any]] = {
    "time_ms": time_ms,
    "size": size,
    "count": count,
    "large": large,
    "rate": rate,
    "percent": percent,
    "seconds": seconds,
    "utc": utc,
    "when": when,
    "short_hash": short_hash,
    "spelled": spelled,
    "significant": significant,
}
