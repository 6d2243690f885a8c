"""Which model does a name mean: names and aliases, folders, files, a user's own records; and errors that help."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError, TonnageError, UnknownError
from tonnage.facts.catalog import MODELS, all_names, find_model, index, read_json, record_of

LLAMA_1B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 131072,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_1B_PARAMS = 1_235_814_400


def put(folder: Path, config: Any, name: str = "config.json") -> Path:
    """Write a config (or a text as it stands) into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "means"),
    [
        pytest.param("qwen3.5-4b", "Qwen/Qwen3.5-4B", id="short"),
        pytest.param("Qwen3.5-4B", "Qwen/Qwen3.5-4B", id="case"),
        pytest.param("QWEN/QWEN3.5-4B", "Qwen/Qwen3.5-4B", id="full-upper"),
        pytest.param(" qwen3.5-4b ", "Qwen/Qwen3.5-4B", id="spaces"),
        pytest.param("gpt-oss-20b", "openai/gpt-oss-20b", id="gpt-oss"),
        pytest.param("deepseek-v3", "deepseek-ai/DeepSeek-V3", id="deepseek"),
        pytest.param("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", id="as-published"),
        pytest.param("my-mirror/gpt-oss-20b", "openai/gpt-oss-20b", id="another-owner"),
    ],
)
def test_a_name_is_known_in_any_case_and_without_its_owner(name: str, means: str) -> None:
    """Names as people type them."""
    assert find_model(name).name == means


def test_every_published_name_and_alias_leads_to_a_record() -> None:
    """The index and the records hold together; 246 models, each found by its own name and by its last part."""
    names = all_names()
    assert len(names) == 246
    stems = {name.replace("/", "--", 1) for name in names}
    assert set(index().values()) == stems
    for name in names:
        assert index()[name.lower()] == name.replace("/", "--", 1)
        assert record_of(name) == MODELS / f"{name.replace('/', '--', 1)}.json"
    assert record_of("no-such-model") is None


@pytest.mark.parametrize(
    ("name", "confidence"),
    [
        pytest.param("Qwen/Qwen3.5-4B", "read", id="config-text-read"),
        pytest.param("Qwen/Qwen3-8B-AWQ", "extrapolated", id="derived"),
        pytest.param("huggyllama/llama-13b", "assumed", id="from-memory"),
        pytest.param("inclusionAI/Ling-3.0-flash", "assumed", id="a-layer-count-was-assumed"),
    ],
)
def test_a_record_says_how_sure_it_is(name: str, confidence: str) -> None:
    """The catalogue's README: "config text read", "derived", "from memory"."""
    found = find_model(name)
    assert found.confidence == confidence
    assert found.source
    assert found.released or found.license or found.facts


def test_facts_carry_their_source() -> None:
    """A published number without a source is none."""
    facts = find_model("qwen3.5-4b").facts
    assert facts["params_total"].value == 4_659_865_088
    assert all(fact.source for fact in facts.values())


def test_what_a_config_does_not_describe_is_counted_whole_and_said() -> None:
    """Gemma 4 E4B: an audio tower of 308,756,768 parameters is published and not in the config."""
    found = find_model("google/gemma-4-E4B-it")
    assert found.shape.params_total == 7_996_156_490
    assert any("308,756,768 published parameters" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("qwen3.5-5b", "qwen3.5-9b", id="no-such-size"),
        pytest.param("gemma-3-27", "gemma-3-27b", id="cut"),
        pytest.param("acme/llama-3.1-8b-finetune", "--like NAME", id="fine-tune"),
        pytest.param("zzzzzzzz", "`tonnage models` lists them", id="nothing-close"),
        pytest.param("a\0b", "--like NAME", id="a-name-no-file-can-have"),
    ],
)
def test_an_unknown_name_is_answered_with_the_way_on(name: str, hint: str) -> None:
    """The first hint for a fine-tune that is not listed: --like, or its config.json."""
    with pytest.raises(UnknownError, match="no model is named") as caught:
        find_model(name)
    assert hint in caught.value.hint
    assert "config.json" in caught.value.hint


def test_like_lends_the_shape_and_keeps_the_name() -> None:
    """`--like qwen3-32b` for a fine-tune."""
    found = find_model("acme/my-tune", like="qwen3-32b")
    assert found.name == "acme/my-tune"
    assert found.shape == find_model("Qwen/Qwen3-32B").shape
    assert any("as asked by --like" in note for note in found.notes)


def test_like_an_unknown_model_is_refused_by_that_name() -> None:
    """The typo is in what was asked for."""
    with pytest.raises(UnknownError, match="'qwen3-33b'"):
        find_model("acme/my-tune", like="qwen3-33b")


def test_a_folder_and_a_config_path_give_the_same_shape(tmp_path: Path) -> None:
    """A folder without weights is planned from its config, and says so."""
    path = put(tmp_path / "my-tune", LLAMA_1B)
    folder, file = find_model(str(path.parent)), find_model(str(path))
    assert folder.shape.params_total == file.shape.params_total == LLAMA_1B_PARAMS
    assert folder.name == file.name == "my-tune"
    assert folder.confidence == file.confidence == "read"
    assert any("no safetensors in the folder" in note for note in folder.notes)
    assert folder.measured_bytes == {}


def test_a_config_under_another_name_takes_the_files_name(tmp_path: Path) -> None:
    """Configs kept side by side in one folder."""
    assert find_model(str(put(tmp_path, LLAMA_1B, "llama-1b.json"))).name == "llama-1b"


def test_a_folder_with_weights_is_measured(tmp_path: Path) -> None:
    """From the header alone: all of a small Llama's parameters as one BF16 tensor, in a sparse file."""
    small = {**LLAMA_1B, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    small |= {"intermediate_size": 128, "vocab_size": 512}
    parameters = 512 * 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64) + 64
    put(tmp_path / "m", small)
    header = json.dumps({"w": {"dtype": "BF16", "shape": [parameters], "data_offsets": [0, 2 * parameters]}}).encode()
    with (tmp_path / "m" / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 2 * parameters)
    found = find_model(str(tmp_path / "m"))
    assert found.shape.params_total == parameters
    assert found.measured_bytes == {"BF16": 2 * parameters}
    assert (found.facts["weight_bytes"].value, found.facts["weight_bytes"].source) == (2 * parameters, "safetensors headers")


def test_the_quantisation_file_beside_a_config_is_read(tmp_path: Path) -> None:
    """ModelOpt checkpoints of older exports declare nothing in config.json."""
    put(tmp_path / "m", LLAMA_1B)
    put(tmp_path / "m", {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}, "hf_quant_config.json")
    assert find_model(str(tmp_path / "m")).shape.quantisation.label == "FP8"
    assert find_model(str(tmp_path / "m" / "config.json")).shape.quantisation.label == "FP8"


def test_own_records_go_before_the_catalogue(tmp_path: Path) -> None:
    """`--facts DIR`: a record by its id, or a config.json by the file's name, in any case."""
    put(tmp_path, {"id": "acme/Tuned-1B", "config": LLAMA_1B, "facts": {}, "verified": "derived"}, "acme--Tuned-1B.json")
    put(tmp_path, LLAMA_1B, "bare.json")
    put(tmp_path, {"id": "mine", "config": LLAMA_1B, "facts": {}}, "qwen3.5-4b.json")
    for name in ("acme/tuned-1b", "Tuned-1B", "tuned-1b"):
        found = find_model(name, facts_dir=tmp_path)
        assert (found.name, found.shape.params_total, found.confidence) == ("acme/Tuned-1B", LLAMA_1B_PARAMS, "extrapolated")
    assert find_model("bare", facts_dir=tmp_path).shape.params_total == LLAMA_1B_PARAMS
    assert find_model("qwen3.5-4b", facts_dir=tmp_path).name == "mine"
    assert find_model("gpt-oss-20b", facts_dir=tmp_path).name == "openai/gpt-oss-20b"


def test_a_facts_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    """The hint says what such a folder holds."""
    with pytest.raises(InputError, match="is not a folder") as caught:
        find_model("qwen3.5-4b", facts_dir=tmp_path / "absent")
    assert "records" in caught.value.hint


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        pytest.param({"params_total": {"value": [1]}}, "facts are malformed", id="value-is-a-list"),
        pytest.param([], "facts are malformed", id="facts-are-a-list"),
        pytest.param({"params_total": 4}, "facts are malformed", id="bare-number"),
    ],
)
def test_a_record_with_malformed_facts_is_refused(tmp_path: Path, facts: Any, said: str) -> None:
    """A user's own record is input like any other."""
    put(tmp_path, {"id": "m", "config": LLAMA_1B, "facts": facts}, "m.json")
    with pytest.raises(InputError, match=said):
        find_model("m", facts_dir=tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(json.dumps(LLAMA_1B)[:150], "is not whole JSON", id="cut-in-half"),
        pytest.param("", "is not whole JSON", id="empty"),
        pytest.param("[" * 100_000, "is not whole JSON", id="deep"),
        pytest.param("[1, 2]", "is not a JSON object", id="list"),
        pytest.param('"x"', "is not a JSON object", id="text"),
        pytest.param('{"architectures": [Infinity', "is not whole JSON", id="infinity-and-cut"),
        pytest.param("1" * 5000, "is not whole JSON", id="a-number-of-5000-digits"),
    ],
)
def test_a_config_that_is_not_whole_is_refused_with_its_path(tmp_path: Path, text: str, said: str) -> None:
    """One line and a hint, never a traceback."""
    path = put(tmp_path, text)
    with pytest.raises(InputError) as caught:
        find_model(str(path))
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """A binary file under the name of a config."""
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00NaN\xff" * 20)
    with pytest.raises(InputError, match="is not whole JSON"):
        find_model(str(tmp_path))


def test_infinity_and_nan_in_a_published_config_are_let_through(tmp_path: Path) -> None:
    """Falcon-H1 and others publish `time_step_limit: [0.0, Infinity]`, which JSON proper does not know."""
    text = json.dumps({**LLAMA_1B, "time_step_limit": [0.0, float("inf")], "z_loss": float("nan")})
    assert "Infinity" in text
    assert find_model(str(put(tmp_path, text))).shape.params_total == LLAMA_1B_PARAMS


@pytest.mark.parametrize("name", ["./absent", "/no/such/folder", "absent/config.json", "~/no-such-model-here", "x.json"])
def test_a_path_that_is_not_there_is_said_to_be_missing(name: str) -> None:
    """A path is never taken for a name of the catalogue."""
    with pytest.raises(InputError, match="there is no such file") as caught:
        find_model(name)
    assert "config.json" in caught.value.hint


def test_a_folder_without_a_config_is_said_to_lack_it(tmp_path: Path) -> None:
    """The message names the file that is missing."""
    with pytest.raises(InputError, match=r"config\.json: there is no such file"):
        find_model(str(tmp_path))


def test_a_directory_named_config_json_is_refused(tmp_path: Path) -> None:
    """Odd, and possible: the folder itself lacks a config."""
    (tmp_path / "config.json").mkdir()
    with pytest.raises(InputError):
        find_model(str(tmp_path))


def test_a_file_larger_than_any_config_is_refused_unread(tmp_path: Path) -> None:
    """A weights file given by mistake; sparse, so that the test writes nothing."""
    path = tmp_path / "model.json"
    with path.open("wb") as file:
        file.truncate(65 * 2**20)
    with pytest.raises(InputError, match="is larger than any config"):
        read_json(path)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_under_a_configs_name_never_break_the_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Whatever a file holds, a value or an error of ours comes back."""
    path = tmp_path_factory.getbasetemp() / "arbitrary.json"
    path.write_bytes(data)
    try:
        find_model(str(path))
    except TonnageError as error:
        assert str(path) in str(error)


@given(st.text(max_size=30))
def test_arbitrary_names_are_found_or_refused(name: str) -> None:
    """No text that a person may type breaks the search."""
    with contextlib.suppress(TonnageError):
        find_model(name)
