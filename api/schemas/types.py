"""JSON values as they are: in bodies `true` is no number, `0` no truth value, `"1"` neither."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator, Field

Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True)]
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")


def _rfc_3339(value: object) -> object:
    """Texts of RFC 3339 alone: a number is not taken for seconds since 1970."""
    if not isinstance(value, str) or _RFC_3339.fullmatch(value) is None:
        raise ValueError("not a date and time of RFC 3339 with its zone")
    return value


Timestamp = Annotated[AwareDatetime, BeforeValidator(_rfc_3339)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
