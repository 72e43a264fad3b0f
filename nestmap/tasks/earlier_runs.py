"""What a run with ``transfer`` learns before it measures anything: what earlier runs measured."""

from __future__ import annotations

from collections.abc import Sequence

from mapper.device_profile import DeviceProfile
from mapper.errors import LimitError, NestmapError
from nestmap.subjects import subject_of_document
from nestmap.tasks.context import Context
from nestmap.tasks.replies import Replies
from nestmap.tasks.run_requests import Earlier
from nestmap.tuning.learned import Group, LearnedModel, group_of, with_layer


def learned_from(
    earlier: Sequence[Earlier],
    device: DeviceProfile,
    without: Sequence[str],
    seed: int,
    context: Context,
    replies: Replies,
) -> LearnedModel:
    """A model of the studies that can still be read, but of the programs ``without`` (hashes).

    InputError where they are too few, LimitError and Cancelled as the request's watch says.
    """
    groups: list[Group] = []
    for number, study in enumerate(earlier):
        context.watch.tick()
        try:
            label, _, variant = study.name.rpartition("/")
            subject = with_layer(subject_of_document(study.program, study.name), label, variant)
            if subject.hash() not in without:
                groups.append(group_of(study.name, subject, study.mode, device, study.measured))
        except LimitError:
            raise
        except NestmapError:
            # Of another release: other rules, or another generator.
            continue
        replies.progress({"done": number + 1, "of": len(earlier)})
    return LearnedModel(groups, seed)
