"""Vidur's half of sim_peers.py, run by the Python that has Vidur: a folder of profiles and a trace -> seconds and steps, as JSON.

    VENV/bin/python bench/peer_vidur.py FOLDER

The folder holds mlp.csv, attention.csv and trace.csv. One simulation a process, for Vidur numbers its replicas across simulations.

Vidur 0.0.26 as its wheel has it cannot build a linear-regression predictor: one abstract method is left out. It is added here; nothing
in a simulation calls it. Profiles are read from the folder in place of a download. Everything else is Vidur's own, at its fastest as
measured: the native predictor, its chunked-prefill scheduler (vLLM's present way, too), and no metrics, traces or plots.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from vidur.config import (  # type: ignore[import-not-found]
    CacheConfig,
    ClusterConfig,
    LinearRegressionExecutionTimePredictorConfig,
    MetricsConfig,
    ReplicaConfig,
    SarathiSchedulerConfig,
    SimulationConfig,
    TraceRequestGeneratorConfig,
)
from vidur.entities import Batch  # type: ignore[import-not-found]
from vidur.execution_time_predictor import ExecutionTimePredictorRegistry  # type: ignore[import-not-found]
from vidur.execution_time_predictor.linear_regression_execution_time_predictor import (  # type: ignore[import-not-found]
    LinearRegressionExecutionTimePredictor,
)
from vidur.simulator import Simulator  # type: ignore[import-not-found]

OUTPUTS = (
    *("write_metrics", "write_json_trace", "enable_chrome_trace", "store_plots", "store_operation_metrics", "store_request_metrics"),
    *("store_token_completion_metrics", "store_batch_metrics", "store_utilization_metrics", "keep_individual_batch_metrics"),
)


class Predictor(LinearRegressionExecutionTimePredictor):  # type: ignore[misc]
    """Vidur's linear regression, from profiles in a folder."""

    def _load_predictions_from_hf(self) -> Any:
        raise LookupError("nothing is downloaded")

    def _get_input_files(self) -> tuple[str, str, str, str]:
        folder = Path(self._config.cache_dir).parent
        return str(folder / "mlp.csv"), str(folder / "attention.csv"), "", ""

    def _get_kv_parallel_communication_time(self, batch: Any) -> float:
        return 0.0


def configured(folder: Path) -> Any:
    """Return the configuration: Llama 3 8B on one H100, 256 requests and 8,192 tokens a step at most."""
    return SimulationConfig(
        cluster_config=ClusterConfig(
            replica_config=ReplicaConfig(
                model_name="meta-llama/Llama-3-8B",
                num_pipeline_stages=1,
                tensor_parallel_size=1,
                device="h100",
                network_device="h100_dgx",
            ),
            cache_config=CacheConfig(block_size=16),
            replica_scheduler_config=SarathiSchedulerConfig(batch_size_cap=256, chunk_size=8192),
        ),
        request_generator_config=TraceRequestGeneratorConfig(
            trace_file=str(folder / "trace.csv"), date="1970-01-01", prefill_scale_factor=1, time_scale_factor=1
        ),
        execution_time_predictor_config=LinearRegressionExecutionTimePredictorConfig(
            cache_dir=str(folder / "cache"),
            prediction_max_batch_size=256,
            prediction_max_tokens_per_request=8192,
            num_training_job_threads=1,
            k_fold_cv_splits=2,
            polynomial_degree=[2],
            polynomial_include_bias=[True],
            polynomial_interaction_only=[False],
            fit_intercept=[True],
            use_native_execution_time_predictor=True,
        ),
        metrics_config=MetricsConfig(output_dir=str(folder / "output"), **dict.fromkeys(OUTPUTS, False)),
    )


def main() -> int:
    """Train, then time one simulation, construction and run; print both and return 0."""
    logging.getLogger("vidur").setLevel(logging.CRITICAL)
    config = configured(Path(sys.argv[1]))
    cluster, kind = config.cluster_config, config.execution_time_predictor_config.get_type()
    predictor = Predictor(config.execution_time_predictor_config, cluster.replica_config, cluster.cache_config)
    ExecutionTimePredictorRegistry.unregister(kind)
    ExecutionTimePredictorRegistry.register(kind, lambda **_: predictor)
    started = time.perf_counter()
    simulator = Simulator(config)
    simulator.run()
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "steps": Batch.generate_id()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
