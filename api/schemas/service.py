"""The service about itself."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from api.problems import ProblemType


class ProblemTypeDocument(BaseModel):
    """A type of problem explained."""

    type: str
    title: str
    status: int
    description: str

    @classmethod
    def of(cls, found: ProblemType) -> ProblemTypeDocument:
        """The document of a type."""
        return cls(
            type=found.uri,
            title=found.title,
            status=found.status,
            description=found.description,
        )


class Health(BaseModel):
    """The process answers."""

    status: Literal["ok"]


class Readiness(BaseModel):
    """Whether requests can be served; each part is `ok` or says what is wrong."""

    status: Literal["ready", "not-ready"]
    database: str
    solver: str


class Version(BaseModel):
    """What runs here."""

    nestmap: str
    api: Literal["v1"]
    lease_protocol: Literal[1]


class Session(BaseModel):
    """Whose token it is."""

    token: str
    scope: Literal["admin", "user", "device"]
