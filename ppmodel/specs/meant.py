"""What an unknown key of a file was meant to be, and which other file a file looks like."""

from ppmodel.errors import did_you_mean

_ALIASES = {
    "blocks": "num_hidden_layers num_layers n_layers n_layer layers",
    "hidden": "hidden_size d_model n_embd model_dim",
    "heads": "num_attention_heads num_heads n_heads n_head",
    "kv_heads": "num_key_value_heads num_query_groups n_kv_heads",
    "head_size": "head_dim kv_channels",
    "mlp_hidden": "intermediate_size ffn_hidden_size ffn_dim d_ff",
    "gated_mlp": "swiglu",
    "norm": "normalization",
    "sequence": "seq_length seq_len sequence_length context_length max_position_embeddings",
    "vocabulary": "vocab_size padded_vocab_size",
    "global_batch": "global_batch_size batch_size gbs",
    "tied_embeddings": "tie_word_embeddings",
    "element_bytes": "dtype torch_dtype",
    "experts.number": "num_experts num_local_experts n_routed_experts",
    "experts.experts_per_token": "num_experts_per_tok moe_router_topk top_k",
    "experts.hidden": "moe_intermediate_size moe_ffn_hidden_size",
    "experts.shared": "n_shared_experts num_shared_experts",
    "recompute": "activation_checkpointing recompute_granularity",
    "pp": "pipeline_parallel pipeline_parallel_size pipeline_model_parallel_size",
    "tp": "tensor_parallel tensor_parallel_size tensor_model_parallel_size",
    "cp": "context_parallel context_parallel_size",
    "ep": "expert_parallel expert_parallel_size expert_model_parallel_size",
    "etp": "expert_tensor_parallel expert_tensor_parallel_size",
    "dp": "data_parallel data_parallel_size",
    "gpus": "num_gpus devices world_size",
    "chunks": "virtual_pipeline_model_parallel_size num_virtual_stages vpp",
    "microbatch_size": "micro_batch_size micro_batch mbs",
    "zero": "zero_stage",
    "precision": "dtype",
    "peak_compute": "flops peak_flops tflops",
    "memory_bandwidth": "hbm_bandwidth",
    "memory_capacity": "gpu_memory hbm_capacity memory_size",
    "network_bandwidth": "nic_bandwidth ib_bandwidth inter_node_bandwidth",
    "nodes.node_bandwidth": "nvlink_bandwidth intra_node_bandwidth",
    "nodes.devices_per_node": "gpus_per_node",
    "seeds.from": "first start",
    "seeds.to": "last stop end",
}
"""Keys of ours, and what configurations of Hugging Face and Megatron-LM, or people, call them."""


def meant_key(key, keys, parents=()):
    """What an unknown key was probably meant to be, as a remedy; empty if nothing is near.

    Parameters
    ----------
    key : str
        As written.
    keys : iterable of str
        The keys that its place has.
    parents : sequence of str or int
        The keys of the blocks around it, and places in lists.

    Examples
    --------
    >>> meant_key("num_hidden_layers", ["blocks", "mlp_hidden"])
    'did you mean blocks?'
    >>> meant_key("num_experts", ["blocks", "experts"]), meant_key("num_experts", ["number"], ["experts"])
    ('did you mean experts.number?', 'did you mean number?')
    """
    key, block = str(key).lower().replace("-", "_"), "".join(f"{part}." for part in parents if isinstance(part, str))
    for name, aliases in _ALIASES.items():
        short = name.removeprefix(block)
        if key in aliases.split() and name.startswith(block) and short.partition(".")[0] in keys:
            return f"did you mean {short}?"
    return did_you_mean(key, keys)


def looks_like(keys, file_type):
    """Which other file one with these keys looks like; None if it is nearest to its own form.

    Parameters
    ----------
    keys : iterable of str
        The file's keys.
    file_type : type of pydantic.BaseModel
        The form that it was read against.

    Returns
    -------
    str or None

    Examples
    --------
    >>> from ppmodel.specs import SystemSpec
    >>> from ppmodel.specs.entries import file_form
    >>> looks_like(["title", "blocks", "hidden"], file_form(SystemSpec)), looks_like(["tp"], file_form(SystemSpec))
    ('model', None)
    """
    from ppmodel.specs.entries import file_form
    from ppmodel.specs.layout import LayoutSpec
    from ppmodel.specs.model import ModelSpec
    from ppmodel.specs.system import SystemSpec

    def shared(form):
        return len(form.model_fields.keys() & set(map(str, keys)) - {"title"})

    forms = {"model": file_form(ModelSpec), "system": file_form(SystemSpec), "layout": file_form(LayoutSpec)}
    nearest = max(forms, key=lambda name: shared(forms[name]))
    return nearest if shared(forms[nearest]) > max(1, 2 * shared(file_type)) else None
