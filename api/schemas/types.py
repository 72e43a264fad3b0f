"""JSON values as they are: in bodies `true` is no number, `0` no truth value, `"1"` neither."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
