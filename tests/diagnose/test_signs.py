"""Which message means which cause, over the releases, and which only look so."""
# ruff: noqa: E501 - messages and lines are quoted as they are written

from __future__ import annotations

import pytest

from tonnage.diagnose.reader import read_starts
from tonnage.diagnose.signs import sign_of


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache (14528).", "max-len-exceeds-cache"),
        ("ValueError: To serve at least one request with the models's max seq len (8192), (1.00 GiB KV cache is needed, which is larger than the available KV cache memory (0.50 GiB).", "max-len-exceeds-cache"),
        ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.", "no-cache-blocks"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "no-cache-blocks"),
        ("ValueError: Total number of attention heads (40) must be divisible by tensor parallel size (3).", "tp-indivisible"),
        ("AssertionError: 151936 is not divisible by 7", "tp-indivisible"),
        ("ValueError: Weight input_size_per_partition = 64 is not divisible by weight quantization block_k = 128.", "tp-indivisible"),
        ("ValueError: The quantization method modelopt is not supported for the current GPU. Minimum capability: 89. Current capability: 80.", "precision-unsupported"),
        ("api_server.py: error: unrecognized arguments: --disable-log-requests", "flag-unknown"),
        ("vllm serve: error: argument --kv-cache-dtype: invalid choice: 'fp4' (choose from 'auto', 'fp8')", "flag-unknown"),
        ("RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.", "shm-too-small"),
        ("OSError: You are trying to access a gated repo.", "hub-unreachable"),
        ("huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the files on the Hub", "hub-unreachable"),
        ("ValueError: Loading /m requires you to execute the configuration file in that repo; it contains custom code which must be executed", "remote-code-refused"),
        ("ValueError: Model architectures ['Qwen3NextForCausalLM'] are not supported for now.", "architecture-unsupported"),
        ("TimeoutError: RPC call to execute_model timed out.", "collective-timeout"),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "driver-mismatch"),
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.9", "driver-mismatch"),
        ("OSError: /models/x does not appear to have a file named config.json.", "checkpoint-broken"),
        ("safetensors_rust.SafetensorError: Error while deserializing: HeaderTooLarge", "checkpoint-broken"),
        ("WARNING: Sequence group 3 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. total_num_cumulative_preemption=51", "preempting"),
        ("OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use", "port-in-use"),
    ],
)  # fmt: skip
def test_a_message_means_its_cause(text: str, cause: str) -> None:
    """Words of releases from 0.5 on, and of what stands under them."""
    found = sign_of(text)
    assert found is not None and found[0] == cause


@pytest.mark.parametrize(
    "text",
    [
        "No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging",
        "resource_tracker: There appear to be 2 leaked shared_memory objects to clean up at shutdown",
        "Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.",
        "Your GPU does not have native support for FP4 computation but FP4 quantization is being used.",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        "Using default MoE config. Performance might be sub-optimal! Config file not found at /x",
    ],
)
def test_remarks_are_no_causes(text: str) -> None:
    """What appears in logs of servers that are well, or says only that something else went wrong."""
    assert sign_of(text) is None


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 79.19 GiB of which 1.00 MiB is free."


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        (["Starting to load model /m..."], "oom-weights"),
        (['  File "/x/loader.py", line 3, in load_model'], "oom-weights"),
        (["Model loading took 10.0 GiB memory and 3.0 seconds"], "oom-activation"),
        (
            ['  File "/x/gpu_worker.py", line 3, in determine_available_memory', '  File "/x/llama.py", line 9, in forward'],
            "oom-activation",
        ),
        (["Available KV cache memory: 3.00 GiB", '  File "/x/gpu_model_runner.py", line 3, in capture_model'], "oom-graph"),
        (['  File "/x/gpu_model_runner.py", line 3, in capture_model', '  File "/x/r.py", line 1, in _dummy_sampler_run'], "oom-sampler"),
        (["Available KV cache memory: 3.00 GiB", "INFO:     Application startup complete."], "oom-activation"),
        (["Available KV cache memory: 3.00 GiB", '  File "/x/r.py", line 1, in initialize_kv_cache'], "memory-held-by-others"),
    ],
)
def test_an_out_of_memory_is_told_apart_by_where_it_was(before: list[str], cause: str) -> None:
    """By the functions of its traceback, else by the stage of the start."""
    (start,) = read_starts(enumerate([*before, OOM], 1))
    assert [sign.cause for sign in start.signs] == [cause]
