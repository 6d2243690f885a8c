"""The causes, one a file: an id, and what is told of it; some are judged from periodic lines and not from one message."""

from __future__ import annotations

from types import ModuleType

from tonnage.diagnose.causes import (
    architecture_unsupported,
    block_size_unsupported,
    checkpoint_broken,
    collective_timeout,
    driver_mismatch,
    flag_unknown,
    hub_unreachable,
    max_len_exceeds_cache,
    memory_held_by_others,
    no_cache_blocks,
    oom_activation,
    oom_graph,
    oom_sampler,
    oom_weights,
    port_in_use,
    precision_unsupported,
    preempting,
    prefix_cache_ineffective,
    probe_killed,
    remote_code_refused,
    seqs_above_state_blocks,
    shm_too_small,
    tp_indivisible,
)

CAUSES: dict[str, ModuleType] = {
    cause.ID: cause
    for cause in (
        oom_weights,
        oom_activation,
        oom_graph,
        oom_sampler,
        memory_held_by_others,
        max_len_exceeds_cache,
        no_cache_blocks,
        seqs_above_state_blocks,
        tp_indivisible,
        precision_unsupported,
        flag_unknown,
        block_size_unsupported,
        shm_too_small,
        probe_killed,
        hub_unreachable,
        remote_code_refused,
        architecture_unsupported,
        collective_timeout,
        driver_mismatch,
        checkpoint_broken,
        port_in_use,
        preempting,
        prefix_cache_ineffective,
    )
}
"""Every cause by its id."""
