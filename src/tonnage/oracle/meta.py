"""How does vLLM build a model without memory or other ranks? On torch's meta device, in process groups of one process."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

from tonnage.oracle.find import find

CREATES = (
    "empty", "zeros", "ones", "full", "tensor", "arange", "randn", "rand", "linspace", "eye", "randint", "randperm", "as_tensor",
    "empty_strided", "logspace", "tril_indices", "triu_indices", "full_like", "zeros_like",
)  # fmt: skip


def on_meta() -> Any:
    """Tensors are made on torch's meta device, with shapes and dtypes and no contents, whatever device is asked for."""
    torch = importlib.import_module("torch")
    mode = importlib.import_module("torch.overrides").TorchFunctionMode
    meta, creates = torch.device("meta"), {getattr(torch, name) for name in CREATES}

    def there(device: Any) -> Any:
        named = str(device).partition(":")[0] if isinstance(device, str | torch.device) else ""
        return meta if named == "cuda" or type(device) is int else device

    def run(self: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if function is torch.Tensor.cuda:
            return args[0].to(meta)
        if function is torch.Tensor.pin_memory:
            return args[0]
        if function in (torch.Tensor.item, torch.Tensor.tolist) and args[0].is_meta:
            return 0 if function is torch.Tensor.item else []
        if function is torch.Tensor.to:
            args = tuple(there(arg) if isinstance(arg, str | torch.device) else arg for arg in args)
        if "device" in named:
            named["device"] = there(named["device"])
        elif function in creates:
            named["device"] = meta
        named.pop("pin_memory", None)
        return function(*args, **named)

    return type("OnMeta", (mode,), {"__torch_function__": run})()


class Group:
    """A process group that has a size, a rank and nobody else in it; what is sent through it comes back."""

    def __init__(self, name: str, size: int, rank: int = 0) -> None:
        self.unique_name, self.world_size, self.rank, self.rank_in_group, self.local_rank = name, size, rank, rank, rank
        self.ranks, self.first_rank, self.last_rank = list(range(size)), 0, size - 1
        self.is_first_rank, self.is_last_rank = rank == 0, rank == size - 1
        self.device, self.device_index = importlib.import_module("torch").device("meta"), 0
        self.device_communicator = self.mq_broadcaster = None
        self.use_device_communicator = self.use_custom_op_call = False
        self.device_group = self.cpu_group = SimpleNamespace(size=lambda: size, rank=lambda: rank, group_name=name, world_size=size)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: args[0] if args else None


def one_rank_of_each_stage(parallel: Any, stage: int) -> None:
    """Process groups have their sizes but no other processes: rank 0 of each pipeline stage is built, one after another."""
    state = importlib.import_module("vllm.distributed.parallel_state")
    distributed = importlib.import_module("torch").distributed
    tp, pp, dp = parallel.tensor_parallel_size, parallel.pipeline_parallel_size, parallel.data_parallel_size
    dcp, world = parallel.decode_context_parallel_size, tp * pp
    sizes = {"TP": tp, "DP": dp, "DCP": dcp, "PCP": 1, "EP": tp * dp, "EPLB": tp * dp, "WORLD": world, "INNER_DP_WORLD": world, "ETP": tp}
    find("vllm.distributed.parallel_state.get_pp_group")
    for name, size in sizes.items():
        setattr(state, f"_{name}", Group(f"{name.lower()}:0", size))
    state._PP = Group("pp:0", pp, stage)  # type: ignore[attr-defined]
    state._NODE_COUNT = 1  # type: ignore[attr-defined]
    state.in_the_same_node_as = lambda group, source_rank=0: [True] * getattr(group, "world_size", 1)  # type: ignore[attr-defined]
    distributed.is_initialized = lambda: False
    distributed.get_rank = lambda *args, **kwargs: 0
    distributed.get_world_size = lambda *args, **kwargs: world
