"""Costs of operations and transfers, and the memory of stages."""

from ppmodel.costs.collectives import Collective, Group, collective_s, group_of
from ppmodel.costs.data_parallel import persistent_bytes
from ppmodel.costs.partition import (
    LayerTimes,
    check_layout,
    microbatch_sequences,
    slowest_over_mean,
    stage_blocks,
    stage_layers,
)
from ppmodel.costs.roofline import Kernels, kernels_s
from ppmodel.costs.stages import Offload, Stages, cell_streams_of, model_costs, stages
from ppmodel.costs.table import OpCosts, are_seconds, comm_over_forward, side_by_side, uniform_costs, with_pairs
from ppmodel.costs.totals import Parameters, model_flops, parameters
from ppmodel.costs.transfers import buffer_bytes, hockney_s, message_bytes, receivers
from ppmodel.costs.transformer import block_operations, embedding_operations, head_operations, logits_bytes
from ppmodel.costs.work import PARTS, BlockOperation, Kernel, Work
