"""What a search of a layer starts from on a device: variants, and candidates to try first.

Uniform draws from the space of a blocked variant hardly ever have codes that suit a device, and
there is no need to learn which do (:mod:`mapper.rewrites.families`): a few candidates of the
device's family come first, behind what tuning records know. The search goes on from there over
the whole space.
"""

from __future__ import annotations

from collections.abc import Mapping

from mapper.constraint_rules.predicate import Variable
from mapper.device_profile import DeviceProfile
from mapper.layer_spec import LayerSpec
from mapper.pipeline import Subject
from mapper.rewrites.catalogue import CHAINS
from mapper.rewrites.families import Family, family_of
from mapper.solver.space import Space
from mapper.tuning_records import best_record, nearest, records_of, shipped_records
from mapper.variants import VARIANTS
from nestmap.tuning.proposals.blocked_proposals import BlockedProposals
from nestmap.tuning.proposals.shorter_vectors import fitting
from nestmap.tuning.record_files import device_folder

#: Variants of which each work-item works alone, on the vectors of a core.
PROCESSOR_VARIANTS = ("blocked", "blocked-in-place")
#: As these, where every filter has a channel of its own.
DEPTHWISE_VARIANT = "channelwise"
#: As these, for a band of tiles: as fast where weights are many, by other tiles.
BAND_VARIANTS = ("blocked-bands", "blocked-bands-in-place")
#: Candidates of a family for each variant of a layer.
STARTING_CANDIDATES = 6
_SEED = 0


def tuned_variants(facts: Mapping[str, str], layer: LayerSpec | None = None) -> tuple[str, ...]:
    """The variants of a layer that are tuned on a device unless others are asked for.

    Of a ``layer`` those that compute it: ``high-level``, which computes all, where none of the
    others does; ``channelwise`` on a processor where it is depthwise; and first the variant of its
    fastest record on the device.
    """
    lone = family_of(facts) is Family.SINGLE
    names = (*(PROCESSOR_VARIANTS if lone else ()), "direct", "partial")
    if layer is None:
        return names
    depthwise = (DEPTHWISE_VARIANT,) if lone else ()
    target = facts.get("device.target", "")
    best = best_record(shipped_records(device_folder(facts)), layer, target=target)
    wanted = dict.fromkeys((*((best.variant,) if best else ()), *depthwise, *names))
    found = tuple(n for n in wanted if n in VARIANTS and VARIANTS[n].applies(layer) is None)
    return found or ("high-level",)


def starting_candidates(
    subject: Subject, space: Space, profile: DeviceProfile, facts: Mapping[str, str]
) -> tuple[Mapping[Variable, int], ...]:
    """Records of a layer in this variant on this device, fastest first, then its family's.

    All lie in ``space``, and none has longer vectors than ``profile``. A program that is no layer's
    has none.
    """
    if subject.layer is None:
        return ()
    records = records_of(shipped_records(device_folder(facts)), subject.layer)
    of_variant = (record for record in records if record.variant == subject.variant)
    near = sorted(nearest(of_variant, profile.target), key=lambda record: record.time_ms)
    known = fitting(subject, space, profile, (record.choices for record in near))
    if subject.variant not in CHAINS:
        return tuple(known)
    proposals = BlockedProposals(
        subject.layer, subject.variant, subject, space, profile, family_of(facts), _SEED, known
    )
    return tuple(proposals.propose(len(known) + STARTING_CANDIDATES))
