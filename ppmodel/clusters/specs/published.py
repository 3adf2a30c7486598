"""The ``config.json`` of a published model as the entries of a model file."""

from ppmodel.errors import SpecificationError

_KEYS = {
    "blocks": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads",
    "mlp_hidden": "intermediate_size", "vocabulary": "vocab_size",
}  # fmt: skip
_USUAL_SEQUENCE = 4096
_ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}
_NO_ATTENTION = "mamba", "ssm_", "linear_attn", "linear_conv", "lru_"
"""First letters of the keys of layers without attention."""

_REMEDY = "take the config.json of a transformer, or copy data/templates/model.yaml"


def read_config(config, path):
    """The same as `entries_of_config`; whatever else such a file may hold is refused in one line."""
    try:
        return entries_of_config(config, path)
    except (ArithmeticError, AttributeError, TypeError):
        rule = "has values that are not those of a transformer"
        raise SpecificationError("config", None, rule, _REMEDY, where=str(path)) from None


def entries_of_config(config, path):
    """The entries of a model file that say the same as the configuration of a published model.

    Parameters
    ----------
    config : dict
        As Hugging Face's ``transformers`` writes it; of a model of several kinds of data, that of its text.
    path : Path
        The file, for sources and errors.

    Returns
    -------
    dict

    Raises
    ------
    SpecificationError
        If a size of every transformer is missing, or layers are of another kind.

    Examples
    --------
    >>> from pathlib import Path
    >>> sizes = dict.fromkeys(["num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"], 64)
    >>> entries = entries_of_config(sizes | {"vocab_size": 1000, "rms_norm_eps": 1e-6}, Path("config.json"))
    >>> entries["blocks"]
    {'value': 64, 'kind': 'stated', 'source': 'config.json'}
    >>> entries["norm"]["value"], entries["gated_mlp"]["value"]
    ('rmsnorm', False)
    """
    config = {name: value for name, value in config.get("text_config", config).items() if value is not None}
    for key in _KEYS.values():
        if key not in config:
            raise SpecificationError(key, None, "is missing", _REMEDY, where=str(path))

    def first(*keys, otherwise=0):
        """The value of the first of these keys that the file has."""
        return next((config[key] for key in keys if key in config), otherwise)

    others = [item for item in config.items() if item[0].startswith(_NO_ATTENTION)]
    others += [("layer_types", word) for word in first("layer_types", otherwise=[]) if word not in _ATTENTION]
    if others:
        rule = "is of layers without attention, which are not modelled"
        raise SpecificationError(*others[0], rule, _REMEDY, where=str(path))
    heads, kind = config["num_attention_heads"], first("model_type", otherwise="")
    sequence = min(first("max_position_embeddings", otherwise=2**20), _USUAL_SEQUENCE)
    if (size := first("head_dim")) % 2:
        rule, remedy = "must be even: rotary positions turn pairs of values", f"write, for example, {size // 2 * 2 + 2}"
        raise SpecificationError("head_dim", size, rule, remedy, where=str(path))
    values = {field: config[key] for field, key in _KEYS.items()} | {
        "mlp_hidden": first("intermediate_size_mlp", "intermediate_size"),
        "kv_heads": first("num_key_value_heads", otherwise=heads),
        "head_size": first("head_dim", otherwise=config["hidden_size"] / heads),
        "gated_mlp": first("hidden_act", "hidden_activation", otherwise="") in ("silu", "swish", "gelu_pytorch_tanh"),
        "norm": "rmsnorm" if "rms_norm_eps" in config else "layernorm",
        "bias": bool(first("mlp_bias", "use_bias", "bias")),
        "dropout": any(first(key) > 0 for key in ("attention_dropout", "resid_pdrop", "hidden_dropout")),
        "learned_positions": not any(key.startswith(("rope", "rotary")) for key in config),
        "tied_embeddings": bool(first("tie_word_embeddings")),
        "mtp_layers": first("num_nextn_predict_layers"),
        "qk_norm": kind.startswith("qwen3"),
        "qkv_bias": bool(first("qkv_bias", "attention_bias", otherwise=kind.startswith("qwen2"))),
    }  # fmt: skip
    types = first("layer_types", otherwise=["sliding_attention"])
    if (window := first("sliding_window")) and first("use_sliding_window", otherwise=True):
        values |= {"window": window, "global_every": len(types) // (types.count("full_attention") or len(types) + 1)}
    blocks = {}
    if number := first("n_routed_experts", "num_local_experts", "num_experts"):
        width, llama4 = first("moe_intermediate_size", "intermediate_size"), int("intermediate_size_mlp" in config)
        blocks["experts"] = {
            "number": number, "experts_per_token": first("num_experts_per_tok"), "hidden": width,
            "shared": first("n_shared_experts", otherwise=first("shared_expert_intermediate_size") // width or llama4),
            "dense_layers": first("first_k_dense_replace", otherwise=len(first("mlp_only_layers", otherwise=[]))),
            "every": first("interleave_moe_layer_step", "decoder_sparse_step", otherwise=1),
        }  # fmt: skip
    if rank := first("kv_lora_rank"):
        rope, nope = first("qk_rope_head_dim"), first("qk_nope_head_dim")
        values |= {"kv_heads": heads, "head_size": rope + nope}
        blocks["latent_attention"] = {
            "query_rank": first("q_lora_rank"), "key_value_rank": rank, "rope_head_size": rope,
            "nope_head_size": nope, "value_head_size": first("v_head_dim"),
        }  # fmt: skip

    def stated(values):
        return {name: {"value": value, "kind": "stated", "source": path.name} for name, value in values.items()}

    why = "the usual length, or the model's longest; --sequence replaces it"
    open_values = {"sequence": {"value": sequence, "kind": "our choice", "source": why}}
    return {"title": path.stem} | stated(values) | open_values | {name: stated(block) for name, block in blocks.items()}
