"""What does vLLM's own code decide: its config, its model on the meta device, its layers' pages, groups and blocks?"""

from __future__ import annotations

import importlib
from typing import Any

from tonnage.errors import TonnageError, UnknownError, closest_hint
from tonnage.oracle import row
from tonnage.oracle.find import attributes, call, find, find_or_none, version
from tonnage.oracle.job import Job
from tonnage.oracle.meta import on_meta, one_rank_of_each_stage
from tonnage.oracle.pretend import NOT_LOADED

PLANNING = ("vllm.v1.core.kv_cache_planning", "vllm.v1.core.kv_cache_utils")
"""Where blocks are planned: the first since 0.33, the second until 0.32."""

REFUSES = (ValueError, AssertionError, RuntimeError)
"""What vLLM raises when it will not start. Anything else means that it could not be asked."""


def ask(job: Job) -> dict[str, Any]:
    """Return the answers of a row. `pretend` must have been called before.

    Raises UnknownError: this release has moved what is asked. EndpointError: its code failed otherwise.
    """
    answers: dict[str, Any] = {"refused": False}
    try:
        _ask(job, answers)
    except TonnageError:
        raise
    except REFUSES as error:
        if NOT_LOADED:
            raise row.could_not_be_asked(NOT_LOADED[-1], version()) from error
        answers.update(refused=True, reason=row.reason(error), raised_in=row.raised_in(error))
    except Exception as error:
        raise row.could_not_be_asked(error, version()) from error
    return row.in_order(answers)


def _ask(job: Job, answers: dict[str, Any]) -> None:
    config = engine_config(job)
    answers["resolved"] = row.resolved(config)
    extra = answers["extra"] = row.extra(config)
    stages = [_Stage(config, index) for index in range(config.parallel_config.pipeline_parallel_size)]
    answers["weights_per_rank"] = stages[0].weights
    if len(stages) > 1:
        answers["weights_per_stage"] = [stage.weights for stage in stages]
    extra.update(stages[-1].draft)
    answers["shared_kv_layers"] = len(stages[-1].shared)
    extra["attention_backends"], extra["kv_cache_layout"] = _layout(config, stages)
    specs = [stage.specs for stage in stages]
    answers["layer_specs"] = row.layer_specs(specs)
    answers.update(row.blocks_resolved(config.cache_config))
    _plan(config, specs, job.available_kv_bytes, answers)


def engine_config(job: Job) -> Any:
    """Return vLLM's own configuration for the job, as its API server would make it."""
    arguments, usage = find("vllm.engine.arg_utils.EngineArgs"), find("vllm.usage.usage_lib.UsageContext")
    known = attributes(arguments, "EngineArgs", ("__dataclass_fields__",))["__dataclass_fields__"]
    for name in job.args:
        if name not in known:
            hint = closest_hint(name, known, "see vllm serve --help")
            raise UnknownError(f"vllm {version()} has no engine argument {name!r}", where="--engine-arg", hint=hint)
    engine = arguments(model=str(job.model), skip_tokenizer_init=True, load_format="dummy", **job.args)
    return engine.create_engine_config(usage_context=usage.OPENAI_API_SERVER)


class _Stage:
    """One pipeline stage's rank 0: its model built, weighed, and asked for the specs of its layers."""

    def __init__(self, config: Any, index: int) -> None:
        one_rank_of_each_stage(config.parallel_config, index)
        config.compilation_config.static_forward_context.clear()
        torch = importlib.import_module("torch")
        if workspace := find_or_none("vllm.v1.worker.workspace.init_workspace_manager"):
            call(workspace, device=torch.device("meta"))
        with find("vllm.utils.torch_utils.set_default_torch_dtype")(config.model_config.dtype), on_meta():
            model, self.draft = _models(config, index)
        self.weights = row.weights(model, index)
        with _current(config):
            find("vllm.platforms.current_platform").update_block_size_for_backend(config)
        self.layers = dict(config.compilation_config.static_forward_context)
        with _current(config):
            self.specs = call(find("vllm.v1.worker.gpu.attn_utils.get_kv_cache_spec"), vllm_config=config)
            self.shared = call(find("vllm.v1.worker.gpu.attn_utils.get_shared_kv_cache_layers"), vllm_config=config)


def _models(config: Any, index: int) -> tuple[Any, dict[str, Any]]:
    build = find("vllm.model_executor.model_loader.utils.initialize_model")
    model, drafting = call(build, vllm_config=config), config.speculative_config
    last = index == config.parallel_config.pipeline_parallel_size - 1
    if drafting is None or drafting.draft_model_config is None or not last:
        return model, {}
    with find("vllm.compilation.backends.set_model_tag")("eagle_head"):
        draft = call(build, vllm_config=config, model_config=drafting.draft_model_config)
    return model, {"draft": row.draft(draft, drafting)}


def _current(config: Any) -> Any:
    return find("vllm.config.set_current_vllm_config")(config)


def _layout(config: Any, stages: list[_Stage]) -> tuple[dict[str, int], str]:
    base = find("vllm.model_executor.layers.attention_layer_base.AttentionLayerBase")
    layers = [layer for stage in stages for layer in stage.layers.values() if isinstance(layer, base)]
    counted: dict[Any, int] = {}
    for layer in layers:
        backend = layer.get_attn_backend()
        counted[backend] = counted.get(backend, 0) + 1
    with _current(config):
        call(find("vllm.v1.core.single_type_kv_cache_manager.register_all_kvcache_specs"), vllm_config=config)
        supported = call(find("vllm.v1.attention.backends.utils.get_supported_kv_cache_layouts"), backends=list(counted))
        layout = call(
            find("vllm.v1.attention.backends.utils.resolve_kv_cache_layout"),
            vllm_config=config,
            supported_layouts=[[each.name for each in supported]] * len(stages),
            kv_cache_specs=[spec for stage in stages for spec in stage.specs.values()],
        )
    return {backend.__name__: count for backend, count in counted.items()}, str(layout.name)


def _planning(*names: str) -> Any:
    return find(*(f"{module}.{name}" for name in names for module in PLANNING))


def _plan(config: Any, specs: list[dict[str, Any]], available: int, answers: dict[str, Any]) -> None:
    builder = find_or_none("vllm.v1.core.kv_cache_config_builder.get_kv_cache_config_builder")
    known: dict[str, Any] = {"vllm_config": config, "kv_cache_specs": specs, "available_memory": [available] * len(specs)}
    known["builder"] = call(builder, vllm_config=config) if builder else None
    whole = find_or_none(f"{PLANNING[0]}.get_global_kv_cache_groups")
    if whole:
        known["global_kv_cache_groups"] = call(whole, **known)
        config.adjust_dcp_kv_cache_interleave_size(known["global_kv_cache_groups"])

    def of_groups(groups: Any) -> dict[str, int]:
        block = call(_planning("_pool_bytes_per_block_from_builder", "_pool_bytes_per_block"), kv_cache_groups=groups, **known)
        most = call(_planning("_max_memory_usage_bytes_from_groups"), kv_cache_groups=groups, **known)
        return {"bytes_per_block": block, "max_len_request_bytes": most}

    try:
        planned = call(_planning("get_kv_cache_configs"), **known)
    except ValueError as error:
        answers.update(refused=True, reason=row.reason(error, bare=True), raised_in=row.raised_in(error))
        groups = known.get("global_kv_cache_groups") or call(_planning("get_kv_cache_groups"), kv_cache_spec=dict(specs[0]), **known)
        answers.update(of_groups(groups))
        return
    whole_config = call(find("vllm.v1.core.kv_cache_utils.generate_scheduler_kv_cache_config"), kv_cache_configs=planned)
    groups = planned[0].kv_cache_groups
    answers["groups"] = [row.group(group, config) for group in groups]
    answers["num_gpu_blocks"] = whole_config.num_blocks
    if not groups:
        answers.update(bytes_per_block=0, max_len_request_bytes=0, kv_cache_size_tokens=None, max_concurrency=None)
        return
    answers.update(of_groups(groups))
    capacity = find("vllm.v1.core.kv_cache_utils.get_kv_cache_capacity")
    tokens, concurrency = call(capacity, vllm_config=config, kv_cache_config=whole_config)
    answers.update(kv_cache_size_tokens=tokens, max_concurrency=concurrency)
