"""Which of Marian's parameters stands where, and which architectures are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.errors import ExportError
from export.importing.marian.model import read_marian_model
from export.importing.model import Imported, LanguageChoice
from tests.toy.marian_files import (
    DECODER,
    DIM,
    ENCODER,
    PRE_NORM,
    Array,
    random_parameters,
    write_lexicon,
    write_npz,
)
from tests.unit.export.importing.vocabularies.small_pieces import write_pieces

SIZE = 30
IDS = {"eos_id": 0, "unk_id": 1, "bos_id": -1, "pad_id": -1}
PAIR = LanguageChoice(("de",), ("en",))


def read(
    folder: Path,
    changed: dict[str, Any] | None = None,
    edit: Any = lambda parameters: None,
    source_size: int | None = None,
) -> tuple[Imported, dict[str, Array]]:
    """A model with these options, and the parameters that it was written from."""
    write_pieces(folder / "target.spm", SIZE, **IDS)
    write_pieces(folder / "source.spm", source_size or SIZE, **IDS)
    parameters = random_parameters(SIZE, changed, source_size)
    edit(parameters)
    write_npz(folder / "model.npz", parameters, changed)
    return read_marian_model(folder, PAIR), parameters


def same(found: torch.Tensor, *wanted: Array) -> bool:
    return np.array_equal(found.numpy(), np.concatenate(wanted))


def test_a_student_has_a_recurrent_decoder_and_a_start_of_zeros(tmp_path: Path) -> None:
    imported, given = read(tmp_path)
    state, config = imported.model.state_dict(), imported.model.config
    assert imported.kind == "a model of Marian (npz, SSRU decoder)"
    assert (config.num_encoder_layers, config.num_decoder_layers) == (ENCODER, DECODER)
    assert (config.norm, config.decoder_mixing, config.vocab_size) == ("post", "ssru", SIZE + 1)
    assert same(state["embedding.weight"], given["Wemb"], np.zeros((1, DIM), np.float32))
    here, there = "decoder.1.self_attention", "decoder_l2_rnn"
    gates = given[f"{there}_Wf"].T, given[f"{there}_W"].T
    assert same(state[f"{here}.in_proj.weight"], *gates)
    assert same(state[f"{here}.forget_bias"], given[f"{there}_bf"][0])
    norm = given[f"{there}_ffn_ln_scale"][0]
    assert same(state[f"{here}_residual.norm.weight"], norm)
    ids = imported.special_ids
    assert (ids.pad, ids.unk, ids.bos, ids.eos) == (SIZE, 1, SIZE, 0)
    bias = state["output_bias"]
    assert bias[1] == bias[SIZE] == -1e3
    assert torch.equal(bias[2:SIZE], torch.tensor(given["decoder_ff_logit_out_b"][0, 2:]))


def test_a_teacher_has_norms_before_its_layers_and_at_the_end(tmp_path: Path) -> None:
    imported, given = read(tmp_path, PRE_NORM)
    state, config = imported.model.state_dict(), imported.model.config
    assert imported.kind == "a model of Marian (npz)"
    assert (config.norm, config.activation, config.embedding_norm) == ("pre", "silu", True)
    for side, layer in (("encoder", 2), ("decoder", 1)):
        there, here = f"{side}_l{layer + 1}", f"{side}.{layer}"
        products = [given[f"{there}_self_W{part}"].T for part in "qkv"]
        assert same(state[f"{here}.self_attention.in_proj.weight"], *products)
        biases = [given[f"{there}_self_b{part}"][0] for part in "qkv"]
        assert same(state[f"{here}.self_attention.in_proj.bias"], *biases)
        assert same(state[f"{here}.ffn.down_proj.weight"], given[f"{there}_ffn_W2"].T)
        norm = given[f"{there}_ffn_ffn_ln_bias_pre"][0]
        assert same(state[f"{here}.ffn_residual.norm.bias"], norm)
        assert same(state[f"{side}_norm.weight"], given[f"{side}_top_ln_scale"][0])
        assert same(state[f"{side}_side.norm.bias"], given[f"{side}_emb_ln_bias_pre"][0])
    here, there = "decoder.0.source_attention", "decoder_l1_context"
    both = [given[f"{there}_W{part}"].T for part in "kv"]
    assert same(state[f"{here}.key_value_proj.weight"], *both)
    assert same(state[f"{here}.query_proj.weight"], given[f"{there}_Wq"].T)


@pytest.mark.parametrize("transposed", [True, False])
def test_embeddings_of_their_own_are_taken_apart(tmp_path: Path, transposed: bool) -> None:
    def turn(parameters: dict[str, Array]) -> None:
        if not transposed:
            rows = parameters.pop("decoder_ff_logit_out_Wt")
            parameters["decoder_ff_logit_out_W"] = np.ascontiguousarray(rows.T)

    changed = {"tied-embeddings-all": False}
    imported, given = read(tmp_path, changed, turn, source_size=26)
    state, start = imported.model.state_dict(), np.zeros((1, DIM), np.float32)
    assert same(state["source_embedding.weight"], given["encoder_Wemb"])
    assert same(state["embedding.weight"], given["decoder_Wemb"], start)
    rows = given.get("decoder_ff_logit_out_Wt")
    rows = given["decoder_ff_logit_out_W"].T if rows is None else rows
    assert same(state["output_matrix"], rows, start)


def test_an_output_without_a_bias_has_zeros(tmp_path: Path) -> None:
    changed = {"output-omit-bias": True}
    imported, _ = read(tmp_path, changed, lambda p: p.pop("decoder_ff_logit_out_b"))
    assert not imported.model.state_dict()["output_bias"][2:SIZE].any()


def test_a_shortlist_beside_it_is_read_with_it(tmp_path: Path) -> None:
    write_lexicon(tmp_path / "lex.s2t.bin", [[piece] for piece in range(SIZE)], 4)
    imported, _ = read(tmp_path)
    assert imported.shortlist is not None
    assert imported.shortlist.of([]).tolist() == [0, 1, 2, 3]
    assert imported.search["beam_size"] == 1


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"type": "s2s"}, "type 's2s' is not supported"),
        ({"transformer-ffn-activation": "gelu"}, "'gelu' is not supported; it must be 'relu' or"),
        ({"dec-cell": "gru"}, "dec-cell 'gru' is not supported"),
        ({"transformer-postprocess": "da"}, "transformer-postprocess 'da' is not supported"),
        ({"transformer-ffn-depth": 3}, "transformer-ffn-depth 3 is not supported"),
        ({"dim-vocabs": [SIZE]}, "dim-vocabs must be two sizes, of one source and a target"),
        ({"dim-vocabs": [SIZE, 0]}, "dim-vocabs must be an integer >= 1"),
        ({"dim-vocabs": [SIZE, 40]}, "two equal sizes where source and target share an embedding"),
        ({"transformer-flavour": "new"}, "'transformer-flavour' .'new'. is not known"),
    ],
)
def test_architectures_that_are_not_supported_are_named(
    tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExportError, match=words):
        read(tmp_path, changed)


def test_parameters_that_are_missing_or_not_known_are_named(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="'encoder_l1_ffn_W1' is missing"):
        read(tmp_path, edit=lambda p: p.pop("encoder_l1_ffn_W1"))
    more = {"encoder_l1_gate": np.ones((1, 3), np.float32)}
    with pytest.raises(ExportError, match=r"'encoder_l1_gate' \[1, 3\] is not known"):
        read(tmp_path, edit=lambda p: p.update(more))
