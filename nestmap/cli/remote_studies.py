"""The studies of a service in the form in which a store gives them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from mapper.errors import InputError, LimitError, Problem
from nestmap.client.errors import ServiceError, bad_answer

if TYPE_CHECKING:
    from db.records import CandidateRecord, FrontPoint, StoredDevice, Study
    from nestmap.client import Client
    from nestmap.client.documents import CandidateDocument, StudyDocument

MOST_STUDIES = 100_000


class Studies(Protocol):
    """What ``nestmap front`` reads: a store, or a service."""

    def studies(self) -> Sequence[Study]:
        """All, oldest first."""
        ...

    def study(self, study_id: int) -> Study:
        """One; InputError where there is none."""
        ...

    def devices(self) -> Sequence[StoredDevice]:
        """What the studies were made on."""
        ...

    def front(self, study: Study) -> Sequence[FrontPoint]:
        """The front of one study, fastest first."""
        ...

    def candidate(self, candidate_id: str) -> CandidateRecord:
        """What was chosen for a point of a front."""
        ...


class RemoteStudies:
    """Those of a service; its methods raise ServiceError."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._listed: list[StudyDocument] | None = None

    def studies(self) -> Sequence[Study]:
        """All, oldest first; LimitError where there are more than are read."""
        return [_study(found) for found in self._documents()]

    def study(self, study_id: int) -> Study:
        """One of them; InputError where there is none."""
        try:
            return _study(self._client.study(study_id))
        except ServiceError as error:
            if error.kind != "not-found":
                raise
            message = "no such study in the store"
            raise InputError(Problem("study", message, str(study_id))) from None

    def devices(self) -> Sequence[StoredDevice]:
        """Devices with studies, by what they call themselves."""
        from db.records import StoredDevice

        names = {found["device_id"]: found["device_name"] for found in self._documents()}
        return [StoredDevice(number, name, {}) for number, name in sorted(names.items())]

    def front(self, study: Study) -> Sequence[FrontPoint]:
        """The front of one study, fastest first."""
        from db.records import FrontPoint

        points = self._client.front(study=study.id)["points"]
        return [FrontPoint(p["time_ms"], p["memory_bytes"], p["candidate"]) for p in points]

    def candidate(self, candidate_id: str) -> CandidateRecord:
        """What was chosen for a point of a front."""
        return record_of(self._client.candidate(candidate_id))

    def _documents(self) -> list[StudyDocument]:
        if self._listed is None:
            listed = list(islice(self._client.studies(), MOST_STUDIES + 1))
            if len(listed) > MOST_STUDIES:
                allowed = f"{MOST_STUDIES}"
                raise LimitError(
                    Problem("", "there are more studies than are read", "", allowed, "--study ID")
                )
            self._listed = listed
        return self._listed


def record_of(found: CandidateDocument) -> CandidateRecord:
    """A service's candidate as a store has it."""
    from db.records import CandidateRecord

    return CandidateRecord(
        program_hash=found["program"],
        parameters=found["parameters"],
        mapping=found["mapping"],
        local_sizes=found["local_sizes"],
        source_hash=found["source_hash"],
        memory_bytes=found["memory_bytes"],
        nestmap_version=found["nestmap_version"],
    )


def _study(found: StudyDocument) -> Study:
    from db.records import Study

    try:
        created_at = datetime.fromisoformat(found["created_at"])
    except ValueError:
        raise bad_answer("not a time", found["created_at"], path="/created_at") from None
    return Study(
        id=found["id"],
        program_hash=found["program"],
        device_id=found["device_id"],
        mode=found["mode"],
        seed=found["seed"],
        label=found["label"],
        variant=found["variant"],
        created_at=created_at,
    )
