"""Weighing checkpoints by their headers: tiny real files, and every way in which a file can be wrong."""

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError, TonnageError, UnknownError
from tonnage.facts.checkpoint import (
    CLASSES,
    HEADER_LIMIT_BYTES,
    Checkpoint,
    TensorInfo,
    assemble,
    read_file,
    read_folder,
    read_header,
    read_remote,
    summarise,
)
from tonnage.facts.dtype import STORAGE_BITS

Entry = dict[str, Any]


def entry(dtype: str, shape: list[Any], start: Any, stop: Any) -> Entry:
    """Return one tensor of a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def raw(header: bytes, data_bytes: int = 0) -> bytes:
    """Return a file with this header, whatever it says, and so many bytes behind it."""
    return len(header).to_bytes(8, "little") + header + bytes(data_bytes)


def packed(tensors: dict[str, tuple[str, list[int]]]) -> bytes:
    """Return an honest file with these tensors, one after the other."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, (dtype, shape) in tensors.items():
        elements = 1
        for dimension in shape:
            elements *= dimension
        size = -(-elements * STORAGE_BITS[dtype] // 8)
        header[name] = entry(dtype, shape, position, position + size)
        position += size
    return raw(json.dumps(header).encode(), position)


def read(file: bytes) -> tuple[TensorInfo, ...]:
    """Read a whole file held in memory."""
    return read_header(file, len(file), "x.safetensors")


# One file: what is right

TWO = packed({"a": ("F32", [2, 3]), "b": ("BF16", [5])})


def test_a_file_is_read_as_the_format_describes_it() -> None:
    """Names, types, shapes and bytes by hand: 6 x 4 and 5 x 2."""
    assert read(TWO) == (TensorInfo("a", "F32", (2, 3), 24), TensorInfo("b", "BF16", (5,), 10))


def test_bytes_and_streams_and_range_readers_say_the_same() -> None:
    """Three ways to reach a file, one answer."""
    expected = read(TWO)
    assert read_header(io.BytesIO(TWO), len(TWO), "x") == expected
    assert read_remote(lambda start, stop: TWO[start:stop], len(TWO), "x") == expected


@pytest.mark.parametrize(
    ("dtype", "shape", "expected"),
    [
        pytest.param("F64", [], 8, id="scalar"),
        pytest.param("F32", [0, 7], 0, id="no-elements"),
        pytest.param("F4", [3], 2, id="half-a-byte-rounds-up"),
        pytest.param("F6_E2M3", [4], 3, id="six-bits"),
        pytest.param("BOOL", [9], 9, id="a-bool-is-a-byte"),
        pytest.param("C64", [2], 16, id="complex"),
        pytest.param("F8_E4M3", [128, 128], 16_384, id="fp8"),
    ],
)
def test_bytes_follow_from_shape_and_dtype(dtype: str, shape: list[int], expected: int) -> None:
    """Elements times bits, in whole bytes upward."""
    assert read(packed({"w": (dtype, shape)}))[0].bytes == expected


def test_tensors_come_in_the_order_of_their_bytes() -> None:
    """The header may list them in any order; empty ones may share an offset."""
    header = {"z": entry("U8", [2], 1, 3), "e": entry("U8", [0], 1, 1), "a": entry("U8", [1], 0, 1)}
    file = raw(json.dumps(header).encode() + b"   ", 3)
    assert [tensor.name for tensor in read(file)] == ["a", "e", "z"]


def test_a_length_that_looks_like_a_pickle_is_still_a_length() -> None:
    """640 is `80 02 00 ...` in little-endian, the first bytes of a pickle; headers are padded to 8, so it happens."""
    header = json.dumps({"w": entry("U8", [1], 0, 1)}).encode().ljust(640)
    assert raw(header, 1).startswith(b"\x80\x02")
    assert read(raw(header, 1))[0].name == "w"


def test_a_file_without_tensors_is_a_file() -> None:
    """safetensors writes and reads `{}`."""
    assert read(raw(b"{}")) == ()


def test_only_the_header_of_a_large_file_is_read(tmp_path: Path) -> None:
    """40 GB of weights, as a sparse file, are weighed at once."""
    size = 40 * 10**9
    header = json.dumps({"w": entry("U8", [size], 0, size)}).encode()
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:
        file.write(raw(header))
        file.truncate(8 + len(header) + size)
    assert read_file(path)[0].bytes == size


def test_a_remote_header_takes_one_request_where_it_is_small() -> None:
    """Most headers are below 100 kB, so the first request brings all of it."""
    asked: list[tuple[int, int]] = []

    def fetch(start: int, stop: int) -> bytes:
        asked.append((start, stop))
        return TWO[start:stop]

    read_remote(fetch, len(TWO), "x")
    assert asked == [(0, len(TWO))]


def test_a_long_remote_header_is_fetched_by_its_own_range() -> None:
    """Beyond the first 100 kB only the header is asked for, never the weights."""
    file = packed({f"layers.{number}.weight": ("U8", [10_000]) for number in range(2_000)})
    asked: list[tuple[int, int]] = []

    def fetch(start: int, stop: int) -> bytes:
        asked.append((start, stop))
        return file[start:stop]

    assert len(read_remote(fetch, len(file), "x")) == 2_000
    header_bytes = int.from_bytes(file[:8], "little")
    assert asked == [(0, 100_000), (8, 8 + header_bytes)]


def test_a_server_that_ignores_ranges_is_told_apart() -> None:
    """A range reader that returns something else is no source of facts."""
    file = packed({f"layers.{number}.weight": ("U8", [10_000]) for number in range(2_000)})
    with pytest.raises(InputError) as caught:
        read_remote(lambda start, stop: file, len(file) + 1, "x")
    assert caught.value.hint


# One file: what is wrong

OK = entry("U8", [1], 0, 1)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        pytest.param(b"", "0 bytes are too few", id="empty"),
        pytest.param(b"1234567", "7 bytes are too few", id="shorter-than-a-length"),
        pytest.param(bytes(64), "the header is empty", id="only-reserved"),
        pytest.param((5 * 10**9).to_bytes(8, "little") + b"{}", "5,000,000,000 bytes is above", id="5-GB-header"),
        pytest.param(b"\xff" * 16, "above safetensors' limit", id="all-ones"),
        pytest.param(
            (1000).to_bytes(8, "little") + b"{}",
            "incomplete: 10 bytes, and the header alone takes 1,008",
            id="beyond",
        ),
        pytest.param(raw(b'{"\xff": 1}'), "not JSON", id="not-utf-8"),
        pytest.param(raw(b"\xef\xbb\xbf{}"), "not JSON", id="byte-order-mark"),
        pytest.param(raw("{}".encode("utf-16-le")), "not JSON", id="utf-16"),
        pytest.param(raw(b"[]"), "does not begin with '{'", id="array"),
        pytest.param(raw(b"{} {}"), "not JSON", id="two-values"),
        pytest.param(raw(b'{"a":' * 100_000), "not JSON", id="deep"),
        pytest.param(raw(b'{"a":NaN}'), "NaN is not JSON", id="nan"),
        pytest.param(raw(b'{"\\ud800":1}'), "not JSON", id="lone-surrogate"),
        pytest.param(raw(b'{"a":' + b"9" * 5_000 + b"}"), "not JSON", id="number-of-5000-digits"),
        pytest.param(raw(b'{"a":1,"a":1}'), "key 'a' appears twice", id="tensor-twice"),
        pytest.param(raw(b'{"__metadata__":{"a":1}}'), "__metadata__", id="metadata-number"),
        pytest.param(raw(b'{"__metadata__":[]}'), "__metadata__", id="metadata-array"),
    ],
)
def test_a_file_without_a_sound_header_is_refused(file: bytes, says: str) -> None:
    """Each names the file, says what is wrong, and what to do."""
    with pytest.raises(InputError) as caught:
        read(file)
    assert str(caught.value).startswith("x.safetensors")
    assert says in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        pytest.param([], "expected the fields", id="no-object"),
        pytest.param({"dtype": "U8", "shape": [1]}, "expected the fields", id="no-offsets"),
        pytest.param(OK | {"scale": 1}, "found ['data_offsets', 'dtype', 'scale', 'shape']", id="foreign"),
        pytest.param(OK | {"dtype": 8}, "dtype 8 is not a name", id="dtype-number"),
        pytest.param(OK | {"dtype": ["U8"]}, "is not a name", id="dtype-list"),
        pytest.param(OK | {"shape": 1}, "shape 1 is not", id="shape-number"),
        pytest.param(OK | {"shape": [-1]}, "shape [-1] is not", id="shape-negative"),
        pytest.param(OK | {"shape": [1.0]}, "shape [1.0] is not", id="shape-float"),
        pytest.param(OK | {"shape": [True]}, "shape [True] is not", id="shape-bool"),
        pytest.param(OK | {"shape": ["1"]}, "shape ['1'] is not", id="shape-text"),
        pytest.param(OK | {"shape": [2**32, 2**32]}, "more elements than any file", id="shape-overflow"),
        pytest.param(OK | {"shape": [2]}, "takes 2 bytes, but offsets 0 to 1 hold 1", id="too-few-bytes"),
        pytest.param(OK | {"data_offsets": [0]}, "not two whole numbers", id="one-offset"),
        pytest.param(OK | {"data_offsets": [0, 1, 2]}, "not two whole numbers", id="three-offsets"),
        pytest.param(OK | {"data_offsets": [-1, 0]}, "not two whole numbers", id="offset-negative"),
        pytest.param(OK | {"data_offsets": [False, True]}, "not two whole numbers", id="offset-bool"),
        pytest.param(OK | {"data_offsets": None}, "not two whole numbers", id="offset-null"),
        pytest.param(OK | {"data_offsets": [1, 0]}, "hold -1", id="offsets-reversed"),
        pytest.param(OK | {"data_offsets": [1, 2]}, "leaves a hole before it of 1 bytes", id="hole"),
    ],
)
def test_a_tensor_that_cannot_be_is_refused(wrong: object, says: str) -> None:
    """The message names file and tensor."""
    with pytest.raises(InputError) as caught:
        read(raw(json.dumps({"w": wrong}).encode(), 1))
    assert str(caught.value).startswith("x.safetensors: tensor 'w': ")
    assert says in str(caught.value)
    assert caught.value.hint


def test_a_dtype_that_nobody_defined_is_refused() -> None:
    """Never taken for F16."""
    with pytest.raises(UnknownError, match=r"x\.safetensors: tensor 'w': safetensors dtype 'Q4_K'"):
        read(raw(json.dumps({"w": entry("Q4_K", [1], 0, 1)}).encode(), 1))


def test_overlapping_tensors_are_refused() -> None:
    """Two tensors in the same bytes would be counted twice."""
    header = {"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}
    with pytest.raises(InputError, match=r"tensor 'b': overlaps the one before by 2 bytes"):
        read(raw(json.dumps(header).encode(), 6))


def test_a_truncated_file_says_how_much_is_there() -> None:
    """The user learns that the download stopped, not that the engine crashed."""
    with pytest.raises(InputError) as caught:
        read(TWO[:-4])
    assert caught.value.problem == f"the download is incomplete: {len(TWO) - 4:,} of {len(TWO):,} bytes"
    assert caught.value.hint == "fetch the file again"


def test_trailing_bytes_are_refused() -> None:
    """Bytes that belong to no tensor may hide something."""
    with pytest.raises(InputError, match="7 bytes after the last tensor belong to no tensor"):
        read(TWO + bytes(7))


def test_a_stream_shorter_than_its_size_is_refused() -> None:
    """A file that shrinks while it is read does not come back half-read."""
    with pytest.raises(InputError, match="asked for bytes"):
        read_header(TWO[:20], len(TWO), "x")


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 4976698672\n"


@pytest.mark.parametrize(
    ("file", "says"),
    [
        pytest.param(LFS, "is a git-LFS pointer, not the weights (135 of 4,976,698,672 bytes)", id="git-lfs"),
        pytest.param(b"GGUF\x03\x00\x00\x00" + bytes(64), "is a GGUF file", id="gguf"),
        pytest.param(b"PK\x03\x04\x00\x00\x08\x08" + bytes(64), "is a zip with a pickle inside", id="torch-zip"),
        pytest.param(b"PK\x03\x04", "is a zip with a pickle inside", id="torch-zip-cut"),
        pytest.param(b"\x80\x02}q\x00(X\x05\x00\x00" + bytes(64), "is a pickle", id="pickle-2"),
        pytest.param(b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94.", "is a pickle", id="pickle-4"),
        pytest.param(b"<!DOCTYPE html><html>", "is a web page", id="html"),
    ],
)
def test_other_formats_are_called_by_their_name(file: bytes, says: str) -> None:
    """Asked for safetensors and given something else: say what it is and what to do."""
    with pytest.raises(InputError) as caught:
        read(file)
    assert caught.value.problem.startswith(says)
    assert caught.value.hint


def test_a_5_gb_header_length_is_refused_without_reading_it() -> None:
    """Only the 8 bytes of the length and the first few for a name are ever asked for."""
    asked: list[int] = []

    def fetch(start: int, stop: int) -> bytes:
        asked.append(stop)
        return ((5 * 10**9).to_bytes(8, "little") + bytes(256))[start:stop]

    with pytest.raises(InputError, match="above safetensors' limit of 100,000,000"):
        read_remote(fetch, 6 * 10**9, "x")
    assert max(asked) <= 100_000
    assert HEADER_LIMIT_BYTES == 100_000_000


def test_a_hostile_shape_is_refused_at_once() -> None:
    """A million twos would be a number of a million bits; the product stops where it leaves 64 bits."""
    began = time.perf_counter()
    with pytest.raises(InputError, match="more elements"):
        read(raw(json.dumps({"w": entry("U8", [2] * 1_000_000, 0, 1)}).encode(), 1))
    assert time.perf_counter() - began < 5


# One file: laws

shapes = st.lists(st.integers(0, 9), max_size=4)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(lambda name: name != "__metadata__")
models = st.dictionaries(names, st.tuples(st.sampled_from(sorted(STORAGE_BITS)), shapes), max_size=8)


@given(models)
def test_what_was_written_is_read(model: dict[str, tuple[str, list[int]]]) -> None:
    """Any names, types and shapes come back, and the bytes add up to the file."""
    file = packed(model)
    found = read(file)
    assert {tensor.name: (tensor.dtype, list(tensor.shape)) for tensor in found} == model
    assert sum(tensor.bytes for tensor in found) == len(file) - 8 - int.from_bytes(file[:8], "little")


def answers(file: bytes) -> None:
    """Read, and let only our own errors pass; anything else fails the test."""
    try:
        read(file)
    except TonnageError as error:
        assert error.hint
        assert len(str(error)) < 1_000


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_in_our_own_words(file: bytes) -> None:
    """Nothing but a TonnageError, with a hint, whatever the file holds."""
    answers(file)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
odd_entries = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["U8", "F4", "F99"]) | json_values,
        "shape": shapes | json_values,
        "data_offsets": st.lists(st.integers(-2, 9), max_size=3) | json_values,
        "more": json_values,
    },
)


@given(st.dictionaries(st.text(max_size=4), odd_entries | json_values, max_size=3), st.integers(0, 20))
def test_odd_headers_are_refused_in_our_own_words(header: dict[str, object], data_bytes: int) -> None:
    """Any JSON in any place of a header."""
    answers(raw(json.dumps(header).encode(), data_bytes))


@given(models, st.lists(st.tuples(st.integers(0, 10_000), st.binary(min_size=1, max_size=3)), min_size=1, max_size=4))
def test_damaged_files_are_refused_in_our_own_words(
    model: dict[str, tuple[str, list[int]]],
    damage: list[tuple[int, bytes]],
) -> None:
    """A sound file with a few bytes changed, inserted or cut."""
    file = packed(model)
    for position, patch in damage:
        position %= len(file)
        file = file[:position] + patch + file[position + len(patch) % 3 :]
    answers(file)


@given(models, st.data())
def test_a_cut_file_is_never_accepted(model: dict[str, tuple[str, list[int]]], data: st.DataObject) -> None:
    """However much is missing at the end, the file is refused."""
    file = packed(model)
    with pytest.raises(InputError):
        read(file[: data.draw(st.integers(0, len(file) - 1))])


# A folder

FIRST = packed({"model.embed_tokens.weight": ("BF16", [8, 4]), "model.norm.weight": ("F32", [4])})
SECOND = packed({"lm_head.weight": ("BF16", [8, 4])})
SHARDS = {"model-00001-of-00002.safetensors": FIRST, "model-00002-of-00002.safetensors": SECOND}
MAP = {
    "model.embed_tokens.weight": "model-00001-of-00002.safetensors",
    "model.norm.weight": "model-00001-of-00002.safetensors",
    "lm_head.weight": "model-00002-of-00002.safetensors",
}
INDEX = "model.safetensors.index.json"


def index(weight_map: object, **metadata: object) -> bytes:
    """Return an index file."""
    return json.dumps({"metadata": metadata, "weight_map": weight_map}).encode()


def folder(path: Path, files: dict[str, bytes]) -> Path:
    """Write a model folder."""
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"model.safetensors": packed({"w": ("BF16", [8, 8]), "n": ("F32", [4])})}, id="one-file"),
        pytest.param(SHARDS, id="numbered"),
        pytest.param(SHARDS | {INDEX: index(MAP, total_size=144)}, id="indexed"),
        pytest.param({"a.safetensors": FIRST, "b.safetensors": SECOND}, id="any-names"),
        pytest.param(SHARDS | {"._model.safetensors": b"x", "config.json": b"{}", "a.bin": b"x"}, id="others-beside"),
    ],
)
def test_a_folder_weighs_what_its_tensors_weigh(tmp_path: Path, files: dict[str, bytes]) -> None:
    """64 elements of BF16 and 4 of F32, by hand, however they are spread."""
    found = read_folder(folder(tmp_path, files))
    assert (found.bytes, found.elements) == (144, 68)
    assert found.by_dtype == {"BF16": 128, "F32": 16}
    assert found.notes == ()


def test_links_are_followed(tmp_path: Path) -> None:
    """The hub's cache is a folder of links into a folder of blobs."""
    (tmp_path / "blob").write_bytes(FIRST)
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "model.safetensors").symlink_to(tmp_path / "blob")
    assert read_folder(tmp_path / "snapshot").files == ("model.safetensors",)


def test_files_outside_the_index_are_not_counted_and_said(tmp_path: Path) -> None:
    """Mistral's folders hold the model twice, as consolidated.safetensors too."""
    files = {**SHARDS, INDEX: index(MAP), "consolidated.safetensors": packed({"output.weight": ("BF16", [8, 4])})}
    found = read_folder(folder(tmp_path, files))
    assert found.bytes == 144
    assert found.notes == ("not counted, since the index does not name them: consolidated.safetensors",)


def test_the_second_layout_is_left_out_without_an_index_too(tmp_path: Path) -> None:
    """model.safetensors beside consolidated.safetensors: the same weights under other names."""
    files = {"model.safetensors": SECOND, "consolidated.safetensors": packed({"output.weight": ("BF16", [8, 4])})}
    found = read_folder(folder(tmp_path, files))
    assert (found.files, found.bytes) == (("model.safetensors",), 64)
    assert "consolidated.safetensors" in found.notes[0]


def test_a_consolidated_file_alone_is_the_model(tmp_path: Path) -> None:
    """Mistral publishes some models in that layout only."""
    assert read_folder(folder(tmp_path, {"consolidated.safetensors": SECOND})).bytes == 64


def test_an_index_of_another_name_counts_where_it_is_the_only_one(tmp_path: Path) -> None:
    """consolidated.safetensors.index.json, with shards to match."""
    shard = "consolidated-00001-of-00001.safetensors"
    files = {shard: SECOND, "consolidated.safetensors.index.json": index({"lm_head.weight": shard})}
    assert read_folder(folder(tmp_path, files)).files == (shard,)


def test_a_wrong_total_in_the_index_is_noted_and_not_used(tmp_path: Path) -> None:
    """Published totals count shared tensors twice or round; the headers are exact."""
    found = read_folder(folder(tmp_path, SHARDS | {INDEX: index(MAP, total_size=150)}))
    assert found.bytes == 144
    assert found.notes == ("the index claims 150 bytes; the headers have 144, which is what counts",)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        pytest.param({}, "the folder is empty", id="empty"),
        pytest.param({"model.bin": b""}, "pickled weights only", id="bin"),
        pytest.param({"model.gguf": b""}, "GGUF only", id="gguf"),
        pytest.param({"config.json": b"{}"}, "no safetensors in this folder", id="config-only"),
        pytest.param(
            {"model-00001-of-00004.safetensors": FIRST, "model-00004-of-00004.safetensors": SECOND},
            "2 of 4 shards of 'model' are missing, the first is number 2",
            id="gap",
        ),
        pytest.param({"model-00003-of-00002.safetensors": FIRST}, "shard 3 of 2 cannot be", id="number-above-total"),
        pytest.param({"model-00000-of-00002.safetensors": FIRST}, "shard 0 of 2 cannot be", id="number-zero"),
        pytest.param(
            {"model-00001-of-00002.safetensors": FIRST, INDEX: index(MAP)},
            "1 of 2 shards named by the index are missing: model-00002-of-00002.safetensors",
            id="indexed-shard-missing",
        ),
        pytest.param({INDEX: index(MAP)}, "2 of 2 shards named by the index are missing", id="index-alone"),
        pytest.param(
            SHARDS | {INDEX: index(MAP | {"model.norm.weight": "model-00002-of-00002.safetensors"})},
            "disagree on 1 of 3 tensors; the index has 'model.norm.weight' in model-00002-of-00002.safetensors, the h",
            id="index-puts-a-tensor-elsewhere",
        ),
        pytest.param(
            SHARDS | {INDEX: index(MAP | {"model.bias": "model-00001-of-00002.safetensors"})},
            "'model.bias' in model-00001-of-00002.safetensors, the headers in no file",
            id="index-names-a-tensor-too-many",
        ),
        pytest.param(
            SHARDS | {INDEX: index({name: file for name, file in MAP.items() if name != "model.norm.weight"})},
            "disagree on 1 of 3 tensors; the index has 'model.norm.weight' in no file",
            id="index-lacks-a-tensor",
        ),
        pytest.param({"a.safetensors": FIRST, "b.safetensors": FIRST}, "is in both a.safetensors and b", id="twice"),
        pytest.param(SHARDS | {INDEX: index({"w": "../w.safetensors"})}, "no safetensors file of this", id="outside"),
        pytest.param(SHARDS | {INDEX: index({"w": "w.bin"})}, "no safetensors file of this folder", id="index-of-bin"),
        pytest.param(SHARDS | {INDEX: index({"w": 1})}, "no safetensors file of this folder", id="index-number"),
        pytest.param(SHARDS | {INDEX: index({})}, "the index has no weight_map", id="index-empty"),
        pytest.param(SHARDS | {INDEX: b"[]"}, "the index is not JSON: it is not an object", id="index-array"),
        pytest.param(SHARDS | {INDEX: b"{"}, "the index is not JSON", id="index-cut"),
        pytest.param(SHARDS | {INDEX: LFS}, "is a git-LFS pointer", id="index-lfs"),
        pytest.param(
            SHARDS | {"a.safetensors.index.json": index(MAP), "b.safetensors.index.json": index(MAP)},
            "2 index files, and none is model.safetensors.index.json",
            id="two-indexes",
        ),
        pytest.param(SHARDS | {"model-00002-of-00002.safetensors": SECOND[:-1]}, "is incomplete", id="shard-cut"),
    ],
)
def test_a_folder_that_is_no_whole_model_is_refused(tmp_path: Path, files: dict[str, bytes], says: str) -> None:
    """The message names the folder or the file in it, and says what to do."""
    with pytest.raises(InputError) as caught:
        read_folder(folder(tmp_path, files))
    assert str(caught.value).startswith(str(tmp_path))
    assert says in str(caught.value)
    assert caught.value.hint


def dangling(path: Path) -> None:
    """A link into a cache that was emptied."""
    (path / "model.safetensors").symlink_to(path / "gone")


def nested(path: Path) -> None:
    """A folder that has the name of a file."""
    (path / "model.safetensors").mkdir()


def no_index(path: Path) -> None:
    """An index that is a dangling link."""
    (path / INDEX).symlink_to(path / "gone")


@pytest.mark.parametrize("spoil", [dangling, nested, no_index])
def test_what_cannot_be_opened_is_refused(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    """A link to nowhere and a folder are no weights."""
    spoil(tmp_path)
    with pytest.raises(InputError, match=r"is not a file|is a link to a file that is not there"):
        read_folder(tmp_path)


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing disk or missing rights come back as our error with the system's words."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = folder(tmp_path, {"model.safetensors": FIRST})
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        read_folder(path)


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    """Given a file, the hint asks for its folder; given nothing, to check the path."""
    path = folder(tmp_path, {"model.safetensors": FIRST}) / "model.safetensors"
    with pytest.raises(InputError, match="is not a folder") as caught:
        read_folder(path)
    assert caught.value.hint == "give the folder that holds it"
    with pytest.raises(InputError, match="is not a folder"):
        read_folder(tmp_path / "nowhere")


def test_a_cache_folder_is_answered_with_where_to_look(tmp_path: Path) -> None:
    """models--ORG--NAME of the hub's cache keeps the files below snapshots/."""
    (tmp_path / "snapshots").mkdir()
    with pytest.raises(InputError) as caught:
        read_folder(tmp_path)
    assert "snapshots/" in caught.value.hint


@given(models, st.integers(1, 4))
def test_sharding_changes_no_total(model: dict[str, tuple[str, list[int]]], count: int) -> None:
    """Spread over any number of files, a model weighs the same."""
    items = sorted(model.items())
    parts = {f"part-{part}.safetensors": packed(dict(items[part::count])) for part in range(count)}
    whole = Checkpoint(read(packed(model)))
    split = assemble(parts, parts.__getitem__, lambda name: read(parts[name]), where="x")
    assert (split.bytes, split.elements, split.by_dtype) == (whole.bytes, whole.elements, whole.by_dtype)
    assert sum(split.by_dtype.values()) == split.bytes


# What it is made of


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.embed_tokens.weight", "embedding"),
        ("model.language_model.embed_tokens.weight", "embedding"),
        ("model.language_model.embed_tokens_per_layer.weight", "embedding"),
        ("tok_embeddings.weight", "embedding"),
        ("transformer.wte.weight", "embedding"),
        ("backbone.embeddings.weight", "embedding"),
        ("lm_head.weight", "lm_head"),
        ("output.weight", "lm_head"),
        ("model.norm.weight", "norm"),
        ("model.layers.0.input_layernorm.weight", "norm"),
        ("model.layers.3.self_attn.q_norm.weight", "norm"),
        ("model.layers.3.self_attn.kv_a_layernorm.weight", "norm"),
        ("transformer.h.0.ln_1.weight", "norm"),
        ("model.layers.0.linear_attn.norm.weight", "norm"),
        ("model.layers.0.self_attn.q_proj.weight", "attention"),
        ("model.layers.0.self_attn.kv_b_proj.weight", "attention"),
        ("model.layers.0.self_attn.sinks", "attention"),
        ("model.layers.0.linear_attn.A_log", "attention"),
        ("model.layers.0.linear_attn.conv1d.weight", "attention"),
        ("model.layers.0.mamba.in_proj.weight", "attention"),
        ("backbone.layers.0.mixer.in_proj.weight", "attention"),
        ("layers.0.attention.wq.weight", "attention"),
        ("model.layers.0.mlp.gate_proj.weight", "mlp"),
        ("model.layers.0.mlp.down_proj.weight_packed", "mlp"),
        ("backbone.layers.1.mixer.up_proj.weight", "mlp"),
        ("layers.0.feed_forward.w1.weight", "mlp"),
        ("model.layers.5.mlp.experts.17.up_proj.weight", "experts"),
        ("model.layers.5.mlp.experts.gate_up_proj_blocks", "experts"),
        ("model.layers.5.mlp.shared_experts.up_proj.weight", "experts"),
        ("model.layers.5.mlp.shared_expert_gate.weight", "experts"),
        ("model.layers.5.mlp.gate.weight", "experts"),
        ("model.layers.5.mlp.gate.e_score_correction_bias", "experts"),
        ("model.layers.5.mlp.router.weight", "experts"),
        ("model.layers.5.block_sparse_moe.experts.0.w1.weight", "experts"),
        ("model.layers.0.mlp.gate_proj.weight_scale_inv", "scales"),
        ("model.layers.0.mlp.gate_proj.weight_scale", "scales"),
        ("model.layers.0.self_attn.k_scale", "scales"),
        ("model.layers.0.self_attn.q_proj.qzeros", "scales"),
        ("model.layers.0.self_attn.q_proj.scales", "scales"),
        ("model.layers.0.self_attn.q_proj.input_scale", "scales"),
        ("model.layers.0.mlp.experts.gate_up_proj_scales", "scales"),
        ("model.visual.blocks.0.attn.qkv.weight", "vision"),
        ("visual.merger.mlp.0.weight", "vision"),
        ("vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight", "vision"),
        ("model.vision_tower.blocks.0.norm1.weight", "vision"),
        ("multi_modal_projector.linear_1.weight", "vision"),
        ("mtp.layers.0.self_attn.q_proj.weight", "draft"),
        ("mtp.fc.weight", "draft"),
        ("model.mtp.layers.0.mlp.up_proj.weight", "draft"),
        ("something.else", "other"),
    ],
)
def test_tensors_are_classed_by_their_published_names(name: str, expected: str) -> None:
    """Names as Qwen, Llama, DeepSeek, gpt-oss, Mistral, Gemma, Nemotron and their quantised versions publish them."""
    assert summarise(Checkpoint((TensorInfo(name, "U8", (1,), 1),))) == {expected: 1}


def test_a_draft_layer_is_found_by_its_parts() -> None:
    """DeepSeek-V3 stores its MTP layer as layer 61 of 0..60; everything in it is draft, layer 6 is not."""
    names = ["eh_proj.weight", "self_attn.q_proj.weight", "mlp.experts.0.up_proj.weight", "embed_tokens.weight"]
    tensors = [TensorInfo(f"model.layers.61.{name}", "U8", (10,), 10) for name in names]
    tensors.append(TensorInfo("model.layers.6.self_attn.q_proj.weight", "U8", (1,), 1))
    assert summarise(Checkpoint(tuple(tensors))) == {"draft": 40, "attention": 1}


@given(models)
def test_the_classes_sum_to_the_checkpoint(model: dict[str, tuple[str, list[int]]]) -> None:
    """Nothing is lost and nothing is counted twice, whatever the names."""
    checkpoint = Checkpoint(read(packed(model)))
    classes = summarise(checkpoint)
    assert sum(classes.values()) == checkpoint.bytes
    assert set(classes) <= set(CLASSES)
