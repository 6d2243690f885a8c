"""The sampler's warm-up does not fit: logits of max-num-seqs rows over the whole vocabulary, in 32 bits."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case
from tonnage.units import gib

ID = "oom-sampler"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    seqs = int(sign.number("seqs") or case.server.number("--max-num-seqs") or 1024)
    vocabulary = case.model.shape.vocab_size if case.model is not None else 0
    each = f" of a vocabulary of {vocabulary:,}: {gib(seqs * vocabulary * 4)} GiB a copy, several at once" if vocabulary else ""
    given = case.server.flag("--max-num-seqs") is not None
    told = f"--max-num-seqs {seqs}" if given else f"the default of {seqs:,} sequences"
    best = case.load.users if case.load is not None else 256
    return Told(
        f"weights and pool fitted; what utilization leaves did not hold the sampler's logits for {told}{each}",
        f"use --max-num-seqs {min(256, max(8, best))}, or --gpu-memory-utilization 0.90; more cards do not help",
        {"max_num_seqs_default": seqs} if not given else {"max_num_seqs": seqs},
    )
