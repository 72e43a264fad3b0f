"""JSON values as they are: in bodies `true` is no number, `0` no truth value, `"1"` neither.

What is refused here is in the OpenAPI document too: the patterns, bounds and names are made into
it from these annotations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AwareDatetime,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from typing_extensions import TypeAliasType

from mapper.layer_sets import layer_names, names_in_short
from mapper.profiles import profile_names

#: The largest integer that every reader of JSON holds exactly (RFC 7493, section 2.2).
MAX_WHOLE = 2**53 - 1
#: No text may hold a NUL: PostgreSQL stores none.
NO_NUL = r"^[^\x00]*$"

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


@dataclass(frozen=True, slots=True)
class OneOf:
    """A text that is one of these names; the document lists them, or has a pattern of them."""

    names: tuple[str, ...]
    message: str
    allowed: str
    pattern: str = ""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._known, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        if self.pattern:
            return {"type": "string", "pattern": self.pattern}
        return {"type": "string", "enum": list(self.names)}

    def _known(self, value: str) -> str:
        if value not in self.names:
            raise PydanticCustomError("name", "{message}", {
                "message": self.message, "allowed": self.allowed,
            })  # fmt: skip
        return value


class NeverNull:
    """Of what may be left out of a URL or the headers: neither can say null."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        forms: list[dict[str, Any]] = handler(schema)["anyOf"]
        return next(form for form in forms if form.get("type") != "null")


def _layer_pattern() -> str:
    """Exactly the names of layers; two hundred in a list would hide all else of the document."""
    numbers: dict[str, list[str]] = {}
    for name in layer_names():
        set_name, _, number = name.partition("/")
        numbers.setdefault(set_name, []).append(number)
    sets = "|".join(f"{name}/({'|'.join(found)})" for name, found in numbers.items())
    return f"^({sets})$"


LayerName = TypeAliasType(
    "LayerName",
    Annotated[
        str,
        OneOf(layer_names(), "there is no layer of this name", names_in_short(), _layer_pattern()),
    ],
)
#: Whoever reads the subject knows its variants.
VariantName = TypeAliasType(
    "VariantName",
    Annotated[
        str,
        Field(
            min_length=1,
            max_length=100,
            pattern=NO_NUL,
            description="A layer's variant (/v1/variants) or a program's sketch "
            "(/v1/schedules/sketches)",
        ),
    ],
)
ProfileName = TypeAliasType(
    "ProfileName",
    Annotated[str, OneOf(profile_names(), "no such device profile", ", ".join(profile_names()))],
)

#: An object whose members another reader checks, or nobody. What holds of every text and integer
#: of a body is not repeated for each level of it: readers of schemas take long for recursion.
JsonObject = Annotated[
    dict[str, Any],
    Field(
        description="Any members: no text in it holds a NUL, no integer has more than 64 bits",
        json_schema_extra={"propertyNames": {"pattern": NO_NUL}},
    ),
]
